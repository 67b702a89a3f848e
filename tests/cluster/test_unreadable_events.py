"""Payloads that nobody can read, of a real device on a real Mosquitto: what it has PUBACK for is in the log."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow.parquet as pq

from app.core.messages import Publication
from tests.cluster.harness import NodeProcess, cluster_of
from tests.cluster.talker import DEVICE, HALLO, Talker
from tests.cluster.test_cold_events import cold_events
from tests.cluster.test_events import LoneNode, homing
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

TOPIC = f"thing/product/{DEVICE}/events"
UNREADABLE = {
    "cut": b'{"tid": "t1", "method": "hms", "data": {"li',
    "binary": bytes(range(256)),
    "empty": b"",
    "NaN": b'{"tid": "t2", "height": NaN}',
    "duplicate key": b'{"tid": "t3", "tid": "t4"}',
    "large integer": b'{"tid": "t5", "n": 18446744073709551616}',
    "lone surrogate": b'{"tid": "\\ud800"}',
    "128 KiB": b'{"tid": "' + b"x" * (131_072 - 9),
    "deep": b"[" * 60_000 + b"]" * 60_000,
    "deep objects": b'{"a":' * 900 + b"1" + b"}" * 900,
    "BOM": b'\xef\xbb\xbf{"tid": "t6"}',
    "UTF-16": '{"tid": "t7"}'.encode("utf-16"),
    "infinite": b'{"tid": "t8", "n": 1e999}',
    "nested duplicate": b'{"tid": "t9", "data": {"a": {"b" :1, "b":2}}}',
    "escaped duplicate": b'{"tid": "t10", "\\u0074id": "t11"}',
    "two documents": b'{"tid": "t12"}{"tid": "t13"}',
    "NUL": b"\x00",
    "lines": b"data: x\n\nevent: gap\ndata: {}\n\n",
}
READABLE = {
    "minus zero": b"-0",
    "nothing": b" null\n",
    "lines": b'{\r\n"tid": "t14",\n\n"a": "\xe2\x80\xa8"}',
    "large": b"18446744073709551615",
}
SAID = [*UNREADABLE.values(), *READABLE.values()]
KILLS = 2


def bytes_of(event: dict[str, Any]) -> bytes:
    """Return what was said, as somebody has it who reads JSON; of what can be read, one form for all that mean the
    same.
    """
    return b64decode(event["data_base64"], validate=True) if "data_base64" in event else canonical(event["data"])


def canonical(value: object) -> bytes:
    return b"JSON " + json.dumps(value, sort_keys=True).encode()


EXPECTED = [*UNREADABLE.values(), *(canonical(json.loads(one)) for one in READABLE.values())]


async def found(node: NodeProcess) -> list[dict[str, Any]]:
    asked, events, more = {"topic": TOPIC, "from": "1970-01-01T00:00:00Z", "limit": "50"}, [], True
    async with aiohttp.ClientSession() as http:
        while more:
            async with http.get(f"{node.url}/v1/events", params=asked) as answer:
                page = await answer.json()
                assert answer.status == 200, page
            events += page["events"]
            asked["cursor"], more = page["cursor"], page["more"]
            asked.pop("from", None)
    return [one for one in events if one.get("data") != HALLO]


async def say(device: Talker) -> None:
    """Everything once, in this order; it returns with the last PUBACK."""
    await asyncio.gather(*(device.client.publish(Publication(TOPIC, one)) for one in SAID))


async def test_what_nobody_can_read_is_in_the_log_byte_for_byte_though_the_node_is_killed(
    mosquitto: MosquittoProcess, tmp_path: Path
) -> None:
    node, device = LoneNode(mosquitto, tmp_path), Talker(mosquitto)
    with node:
        await device.start()
        await device.heard_by(node)
        for _ in range(KILLS):
            saying = asyncio.create_task(say(device))
            await asyncio.sleep(0)
            await asyncio.to_thread(node.kill)
            await saying
            await asyncio.to_thread(node.start)

        async def all_there() -> bool:
            got = [bytes_of(one) for one in await found(node)]
            return all(got.count(one) >= KILLS for one in EXPECTED)

        await eventually(all_there)
        await device.client.stop()
        for event in await found(node):
            assert event["device_id"] == DEVICE
            assert event["kind"] == "dji:event"
            assert event["id"] == ("t14" if event.get("data", {}) not in ({}, 0, None, 2**64 - 1) else None)
        shown = await asyncio.to_thread(
            homing, "events", "read", TOPIC, "--from", "-1h", "--output", "ndjson", "--node", node.url
        )
        lines = [json.loads(line) for line in shown.splitlines()]
        assert {bytes_of(one) for one in lines if one.get("data") != HALLO} == set(EXPECTED)


async def test_every_reader_of_a_cluster_gets_them_and_so_does_the_cold_tier(
    redis_server: RedisProcess, mosquitto: MosquittoProcess, tmp_path: Path
) -> None:
    env = {"HOMING_EVENTS_URL": redis_server.node_url, "HOMING_CLUSTER_LEASE": "2s"}
    env |= {"HOMING_EVENTS_COLD": str(tmp_path / "cold"), "HOMING_EVENTS_HOT": "0s"}
    env |= {"HOMING_EVENTS_GENERATION_BYTES": "1000000", "HOMING_MQTT_SHARE_GROUP": "unreadable"}
    device = Talker(mosquitto)
    with cluster_of(2, redis_server, mosquitto, **env) as cluster:
        one, other = cluster.nodes
        await device.start()
        await device.heard_by(one, other)
        asked = ("events", "follow", TOPIC, "--from", "-1h", "--count", str(2 * len(SAID)), "--output", "ndjson")
        following = asyncio.create_task(asyncio.to_thread(homing, *asked, "--node", other.url))
        rounds = 8
        for _ in range(rounds):
            await say(device)

        async def there() -> bool:
            return len(await found(other)) >= rounds * len(SAID)

        await eventually(there)
        assert [bytes_of(event) for event in await found(one)] == EXPECTED * rounds, "in the order of the device"
        followed = [json.loads(line) for line in (await following).splitlines()]
        told = [bytes_of(event) for event in followed if event.get("data") != HALLO]
        assert told == (EXPECTED * rounds)[: len(told)]

        async with aiohttp.ClientSession() as http:

            async def cooled() -> bool:
                return await cold_events(http, other) >= 2 * len(SAID)

            await eventually(cooled)
            await device.client.publish(Publication(TOPIC, UNREADABLE["binary"]))

            async def is_last() -> bool:
                async with http.get(f"{one.url}/v1/state/{TOPIC}") as answer:
                    return answer.status == 200 and (await answer.json()).get("data_base64") is not None

            await eventually(is_last)
            async with http.get(f"{one.url}/v1/state/{TOPIC}") as answer:
                assert bytes_of(await answer.json()) == UNREADABLE["binary"]
            async with http.get(f"{other.url}/v1/devices/{DEVICE}/state") as answer:
                (value,) = [each for each in (await answer.json())["values"] if each["topic"] == TOPIC]
                assert bytes_of(value) == UNREADABLE["binary"]
        files = sorted((tmp_path / "cold").rglob("*.parquet"))
        cold = [row for file in files for row in pq.read_table(file, columns=["topic", "value"]).to_pylist()]
        kept = {row["value"] for row in cold if row["topic"] == TOPIC}
        assert set(SAID) <= kept, "byte for byte"
        assert [bytes_of(event) for event in await found(other)][: rounds * len(SAID)] == EXPECTED * rounds
    await device.client.stop()
