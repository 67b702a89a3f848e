"""Replies leave when their message is settled, once, bounded, and never to ourselves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.core.commands.callback import Answer
from app.core.commands.routing import Recorded
from app.core.errors import BrokerUnavailableError, StoreUnavailableError
from app.core.messages import Publication, ReceivedMessage
from app.mqtt.base import InboundDelivery, Puback, Subscription
from app.mqtt.loopback import LoopbackMqttClient
from app.replies.replier import MOST_A_SECOND
from tests.api.rig import Rig, running
from tests.waiting import eventually

REPLIES = (
    "thing/product/+/events_reply",
    "thing/product/+/requests_reply",
    "sys/product/+/status_reply",
    "echo/+/told",
)


ECHO = """
name = "echo"
description = ""
[request]
topic = "echo/{device_id}/do"
payload = { id = "{id}" }
[[response]]
name = "done"
topic = "echo/{device_id}/done"
correlation = "id"
sources = [{ path = "id" }]
rules = [{ state = "succeeded" }]
"""
"""A family of which nothing is said yet but commands and answers."""


class Dock:
    """Asks, and keeps what it is told."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.told: list[tuple[str, Any]] = []
        self._client = LoopbackMqttClient(rig.broker, "dock", Counter())

    async def start(self) -> None:
        await self._client.start([Subscription(one) for one in REPLIES], self._hear)
        await self._client.wait_connected()

    def say(self, topic: str, body: object, *, retain: bool = False) -> None:
        self.rig.broker.publish(ReceivedMessage(topic, json.dumps(body).encode(), retain=retain))

    async def silence(self, reason: str) -> None:
        """Return when a reply was dropped for this reason, or the message for want of one; nothing was told."""
        await eventually(lambda: self.rig.counters[f"drop.{reason}"] > 0)
        assert self.told == []

    def _hear(self, delivery: InboundDelivery) -> None:
        delivery.acknowledge()
        self.told.append((delivery.message.topic, json.loads(delivery.message.payload)))


@asynccontextmanager
async def dock_with(**settings: Any) -> AsyncIterator[Dock]:
    async with running(**settings) as rig:
        dock = Dock(rig)
        await dock.start()
        yield dock


@asynccontextmanager
async def dock_at(folder: Path | None = None) -> AsyncIterator[Dock]:
    async with dock_with(profiles={"dir": folder}) as dock:
        yield dock


@pytest.fixture
async def dock() -> AsyncIterator[Dock]:
    async with dock_at() as one:
        yield one


def event(**extra: Any) -> dict[str, Any]:
    return {"tid": "t", "bid": "b", "method": "hms", "need_reply": 1, "data": {}} | extra


async def test_a_dock_that_asks_is_answered_and_it_is_counted(dock: Dock) -> None:
    dock.say("thing/product/D1/requests", event(method="airport_organization_get"))
    dock.say("sys/product/D1/status", event(method="update_topo"))
    dock.say("thing/product/D1/events", event())
    await eventually(lambda: len(dock.told) == 3)
    assert {topic for topic, _ in dock.told} == {one.replace("+", "D1") for one in REPLIES[:3]}
    assert dock.rig.counters["reply.sent"] == 3
    assert not any(name.startswith("drop.") for name, count in dock.rig.counters.items() if count)


async def test_a_device_that_asks_was_heard(dock: Dock) -> None:
    """Commands that wait for it are sent then."""
    dock.say("thing/product/D1/requests", event(method="airport_organization_get"))
    await eventually(lambda: len(dock.told) == 1)
    asked = {"method": "cover_open", "profile": "dji", "hold": "1h"}
    command = (await dock.rig.http.post("/v1/devices/D1/commands", json=asked)).json()
    explained = (await dock.rig.http.get(f"/v1/commands/{command['id']}/explain")).json()
    assert [(one["profile"], one["topic"]) for one in explained["heard"]] == [("dji", "thing/product/D1/requests")]


async def test_a_command_that_issued_a_mission_is_found(dock: Dock) -> None:
    file = {"url": "u", "fingerprint": "f"}
    params = {"flight_id": "F1", "file": file}
    sent = await dock.rig.http.post(
        "/v1/devices/D1/commands",
        json={"method": "flighttask_prepare", "params": params, "profile": "dji"},
        headers={"Prefer": "respond-async"},
    )
    assert sent.status_code == 202
    dock.say("thing/product/D1/requests", event(method="flighttask_resource_get", data={"flight_id": "F1"}))
    await eventually(lambda: len(dock.told) == 1)
    assert dock.told[0][1]["data"] == {"result": 0, "output": {"file": file}}


async def test_what_the_store_did_not_take_is_not_said_to_be_heard(dock: Dock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker keeps the event, which comes again, and then it gets its reply."""
    tried = 0

    async def away(_answer: Answer, _receiver: str, *, open_only: bool) -> Recorded:
        assert not open_only
        nonlocal tried
        tried += 1
        raise StoreUnavailableError("away")

    job = event(bid="042-01JCZX0000000000000000000A", data={"output": {"status": "ok"}, "result": 0})
    with monkeypatch.context() as patch:
        patch.setattr(dock.rig.store, "respond", away)
        dock.say("thing/product/D1/events", job)
        await eventually(lambda: tried == 1)
        assert dock.told == []
    dock.rig.broker.disconnect("node-a")
    dock.rig.broker.restore("node-a")
    await eventually(lambda: len(dock.told) == 1)


async def test_a_retained_question_was_asked_long_ago(dock: Dock) -> None:
    dock.say("thing/product/D1/requests", event(method="config"), retain=True)
    await dock.silence("retained")


async def test_a_device_that_asks_without_end_is_answered_so_often_a_second(dock: Dock) -> None:
    for _ in range(MOST_A_SECOND + 20):
        dock.say("sys/product/D1/status", event(method="update_topo"))
    dock.say("sys/product/D2/status", event(method="update_topo"))
    await eventually(lambda: "sys/product/D2/status_reply" in {topic for topic, _ in dock.told})
    assert dock.rig.counters["drop.reply_flood"] >= 1
    assert len(dock.told) <= 2 * MOST_A_SECOND + 1


async def test_a_device_whose_id_is_none_gets_nothing(dock: Dock) -> None:
    dock.say("sys/product/a%20b/status", event(method="update_topo"))
    await dock.silence("reply_foreign_device")


async def test_no_reply_goes_to_a_topic_that_nodes_read_under_another_profile(tmp_path: Path) -> None:
    (tmp_path / "echo.toml").write_text(
        ECHO
        + """
[[reply]]
name = "loop"
topic = "echo/{device_id}/ask"
match = [{ path = "loop", present = true }]
to = "homing/{device_id}/response"
payload = { id = "x" }
[[reply]]
name = "unmade"
topic = "echo/{device_id}/ask"
to = "echo/{device_id}/told"
payload = { n = { jmespath = "abs(message.n)" } }
"""
    )
    async with dock_at(tmp_path) as dock:
        dock.say("echo/D1/ask", {"loop": 1})
        await dock.silence("reply_to_ourselves")
        dock.say("echo/D1/ask", {"n": "x"})
        await dock.silence("reply_unmade")
        dock.say("echo/D1/ask", {"n": -2})
        await eventually(lambda: dock.told == [("echo/D1/told", {"n": 2})])


async def test_without_a_connection_the_device_has_to_ask_again(dock: Dock, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_publication: Publication) -> Puback:
        raise BrokerUnavailableError("away")

    monkeypatch.setattr(dock.rig.mqtt, "publish", away)  # a broker that goes between delivery and reply
    dock.say("sys/product/D1/status", event(method="update_topo"))
    await dock.silence("reply_unsent")
