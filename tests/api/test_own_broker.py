"""The broker in a node, as those who operate it see it over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.core.broker.codes import PacketType, Property, ProtocolVersion, ReasonCode
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.packets import (
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    Packet,
    Publish,
    PublishAck,
    Suback,
    Subscribe,
)
from app.core.broker.properties import Properties
from app.core.broker.wire import Framing
from homing_rig.ports import lasting_port
from tests.api.rig import running
from tests.api.test_access import Site, guarded

V5 = ProtocolVersion.V5


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    port = lasting_port()
    async with guarded(tmp_path, broker={"url": f"mqtt://127.0.0.1:{port}"}) as site:
        site.port = port
        yield site


class Client:
    """A client of MQTT 5 that reads when it is asked to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._framing = Framing()

    async def say(self, packet: Packet) -> Packet:
        """Return the answer."""
        self._writer.write(encode(packet, V5))
        return await self.hear()

    async def hear(self) -> Packet:
        while True:
            for first, body in self._framing.feed(await self._reader.read(65_536)):
                return decode(first, body, V5)


@asynccontextmanager
async def client(site: Site, client_id: str, who: str = "boss") -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    one = Client(reader, writer)
    key = site.keys[who].text.encode()
    said = await one.say(Connect(V5, client_id, user_name=who, password=key))
    assert isinstance(said, Connack)
    assert said.reason is ReasonCode.SUCCESS
    try:
        yield one
    finally:
        writer.transport.abort()


async def listed(site: Site, path: str, member: str, **query: str) -> list[dict[str, Any]]:
    """All pages of one entry each."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = await site.rig.http.get(
            f"/v1/broker/{path}", params={**query, **cursor, "limit": "1"}, headers=site.headers("watcher")
        )
        assert answer.status_code == 200, answer.text
        found += answer.json()[member]
        assert len(answer.json()[member]) <= 1
        if answer.json()["cursor"] is None:
            return found
        cursor = {"cursor": answer.json()["cursor"]}


async def test_sessions_are_listed_and_ended(site: Site) -> None:
    async with client(site, "dock/1") as one, client(site, "höre", "operator"):
        sessions = await listed(site, "sessions", "sessions")
        assert [(one["client_id"], one["principal"], one["connected"]) for one in sessions] == [
            ("dock/1", "boss", True),
            ("höre", "operator", True),
        ]
        for who, status in ((None, 401), ("watcher", 403), ("admin", 403), ("boss", 204), ("boss", 404)):
            url = "/v1/broker/sessions/dock%2F1"
            assert (await site.rig.http.delete(url, headers=site.headers(who))).status_code == status, who
        said = await one.hear()
        assert isinstance(said, Disconnect)
        assert said.reason is ReasonCode.ADMINISTRATIVE_ACTION
        assert [one["client_id"] for one in await listed(site, "sessions", "sessions")] == ["höre"]
    for who, status in ((None, 401), ("admin", 403), ("watcher", 200)):
        for path in ("sessions", "retained"):
            assert (await site.rig.http.get(f"/v1/broker/{path}", headers=site.headers(who))).status_code == status


async def test_a_session_is_shown_with_what_it_has(site: Site) -> None:
    async with client(site, "dock/1") as one, client(site, "talker") as talker:
        wanted = FilterOptions("homing/+/event", 2, no_local=True, retain_handling=2)
        number = Properties({Property.SUBSCRIPTION_IDENTIFIER: 7})
        assert isinstance(await one.say(Subscribe(1, (wanted, FilterOptions("$share/g/a", 1)), number)), Suback)
        assert isinstance(await one.say(Publish("homing/dock/event", b"own", 2, packet_id=9)), PublishAck)
        await talker.say(Publish("homing/x/event", b"four", 2, packet_id=1))
        sent = await one.hear()
        assert isinstance(sent, Publish)
        url = "/v1/broker/sessions/dock%2F1"
        for who, status in ((None, 401), ("admin", 403)):
            assert (await site.rig.http.get(url, headers=site.headers(who))).status_code == status, who
        shown = (await site.rig.http.get(url, headers=site.headers("watcher"))).json()
        (listing,) = [one for one in await listed(site, "sessions", "sessions") if one["client_id"] == "dock/1"]
        assert listing.items() <= shown.items()
        assert (shown["subscriptions"], shown["in_flight"], shown["received"]) == (2, 1, 1)
        plain = {"no_local": False, "retain_as_published": False, "retain_handling": 0, "identifier": 7}
        assert shown["filters"] == [
            {"filter": "$share/g/a", "qos": 1, **plain},
            {"filter": "homing/+/event", "qos": 2, **plain, "no_local": True, "retain_handling": 2},
        ]
        in_flight = {"packet_id": sent.packet_id, "topic": "homing/x/event", "qos": 2, "bytes": 4, "released": False}
        assert shown["in_flight_messages"] == [in_flight]
        assert shown["received_ids"] == [9]
        await one.say(PublishAck(PacketType.PUBREC, sent.packet_id))
        shown = (await site.rig.http.get(url, headers=site.headers("watcher"))).json()
        assert shown["in_flight_messages"] == [{**in_flight, "released": True}]
    answer = await site.rig.http.get("/v1/broker/sessions/nobody", headers=site.headers("watcher"))
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (404, "not-in-broker")


async def test_retained_messages_are_listed_and_deleted(site: Site) -> None:
    topics = ["a/1", "a/2", "b/" + "ü" * 400, "b/" + "ü" * 399 + "x"]
    async with client(site, "one") as one:
        for number, topic in enumerate(topics):
            said = await one.say(Publish(topic, b"x" * number + b"y", 1, packet_id=number + 1, retain=True))
            assert isinstance(said, PublishAck)
    listing = await listed(site, "retained", "retained")
    found = [one for one in listing if not one["topic"].startswith("$SYS/")]
    assert sorted(one["topic"] for one in found) == sorted(topics)
    assert found[0] == {"topic": "a/1", "qos": 1, "bytes": 1, "client_id": "one"}
    assert [one["topic"] for one in await listed(site, "retained", "retained", topic="a/+")] == ["a/1", "a/2"]
    for who, topic, status in (
        ("watcher", "a/1", 403),
        ("boss", "a/1", 204),
        ("boss", "a/1", 404),
        ("boss", "a/+", 422),
        ("boss", "", 422),
    ):
        answer = await site.rig.http.delete("/v1/broker/retained", params={"topic": topic}, headers=site.headers(who))
        assert answer.status_code == status, (who, topic)
    assert [one["topic"] for one in await listed(site, "retained", "retained", topic="a/+")] == ["a/2"]
    refused = await site.rig.http.get("/v1/broker/retained?topic=a%23", headers=site.headers("boss"))
    assert refused.status_code == 422


@pytest.mark.parametrize("topic", ["a\n", "\x01", "\uffff", "$share", "/"])
async def test_what_clients_may_retain_can_be_deleted_though_its_topic_is_odd(site: Site, topic: str) -> None:
    """As that of a script that reads it from a file."""
    async with client(site, "one") as one:
        assert isinstance(await one.say(Publish(topic, b"x", 1, packet_id=1, retain=True)), PublishAck)
    assert topic in [one["topic"] for one in await listed(site, "retained", "retained")]
    answer = await site.rig.http.delete("/v1/broker/retained", params={"topic": topic}, headers=site.headers("boss"))
    assert answer.status_code == 204, answer.text
    assert topic not in [one["topic"] for one in await listed(site, "retained", "retained")]


async def test_a_node_without_a_broker_says_so() -> None:
    async with running() as rig:
        for method, path in (
            ("GET", "sessions"),
            ("GET", "retained"),
            ("GET", "sessions/x"),
            ("DELETE", "sessions/x"),
            ("DELETE", "retained?topic=x"),
        ):
            answer = await rig.http.request(method, f"/v1/broker/{path}")
            assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (404, "no-broker")
