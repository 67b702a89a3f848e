"""Commands that interlocks judge: sent while all conditions hold, refused with the reason otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.core.messages import ReceivedMessage
from tests.api.rig import COMMANDS, Rig, homing_with, is_ready, running
from tests.waiting import eventually

DEVICE = COMMANDS.split("/")[3]
RULES = """
[[event]]
name = "state"
topic = "homing/{device_id}/osd"

[[interlock]]
name = "on_the_ground"
methods = ["ok", "big_*"]
inputs.mode = { topic = "homing/{device_id}/osd", path = "data.mode", max_age = "1h" }
when = [
    { path = "inputs.mode", is_in = [0] },
    { path = "params.height", at_most = 120 },
]
say = "the cover closes only over a drone that stands in its dock"
"""
LOW = {"height": 100}


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    return homing_with(tmp_path, RULES)


@pytest.fixture
async def keeping(profiles: Path) -> AsyncIterator[Rig]:
    async with running(events={"url": "memory://"}, profiles={"dir": profiles}) as rig:
        await eventually(lambda: is_ready(rig))
        yield rig


async def say(rig: Rig, payload: bytes) -> None:
    """Let the device say this, and return when it is the last value of its topic."""
    topic = f"homing/{DEVICE}/osd"
    before = (await rig.http.get(f"/v1/state/{topic}")).headers.get("etag")
    rig.broker.publish(ReceivedMessage(topic, payload, qos=1))

    async def is_kept() -> bool:
        tag = (await rig.http.get(f"/v1/state/{topic}")).headers.get("etag")
        return bool(tag != before)

    await eventually(is_kept)


def first(body: dict[str, Any]) -> dict[str, Any]:
    """The first condition of the first interlock that refuses."""
    condition: dict[str, Any] = body["interlocks"][0]["conditions"][0]
    return condition


async def test_a_command_is_sent_only_while_all_conditions_hold(keeping: Rig) -> None:
    await say(keeping, b'{"data": {"mode": 4}}')
    refused = await keeping.send("ok", params=LOW)
    body = refused.json()
    assert (refused.status_code, body["type"]) == (409, "urn:homing:problem:interlock")
    assert body["interlocks"][0]["interlock"] == "on_the_ground"
    shown = first(body)
    assert shown.pop("age").endswith("s")
    assert shown == {"path": "inputs.mode", "wanted": {"is_in": [0]}, "result": "violated", "value": 4}
    assert "the cover closes only over a drone that stands in its dock: inputs.mode is 4, said " in body["detail"]
    assert "(needed: is_in [0])" in body["detail"]
    assert keeping.store.registrations == [], "nothing is on record of it"
    assert keeping.device.received == []

    await say(keeping, b'{"data": {"mode": 0}}')
    assert (await keeping.send("ok", params=LOW)).status_code == 200
    high = await keeping.send("ok", params={"height": 120.5})
    assert (high.status_code, high.json()["interlocks"][0]["conditions"][1]["result"]) == (409, "violated")
    assert len(keeping.device.received) == 1
    counts = {name: keeping.counters[f"interlock.{name}"] for name in ("holds", "violated", "unknown", "blind")}
    assert counts == {"holds": 1, "violated": 2, "unknown": 0, "blind": 0}


async def test_other_methods_are_not_judged(keeping: Rig) -> None:
    assert (await keeping.send("refuse")).status_code == 200
    assert not any(name.startswith("interlock.") for name in keeping.counters)


@pytest.mark.parametrize(
    ("payload", "because"),
    [
        (b'{"data": {"mode": "0"}}', "it is a string, which is not what it is compared with"),
        (b'{"data": {"mode": false}}', "it is a boolean, which is not what it is compared with"),
        (b'{"data": {}}', "its last value has no such member"),
        (b'{"data": {"mode": NaN}}', "it cannot be read: not_a_number"),
        (b'{"data": {"mode": 1' + b"0" * 400 + b"}}", "it cannot be read: number_out_of_range"),
        (b"\xff\x00", "it cannot be read: not_utf8"),
        (b"[0]", "its last value has no such member"),
    ],
)
async def test_what_is_unknown_refuses(keeping: Rig, payload: bytes, because: str) -> None:
    await say(keeping, payload)
    refused = await keeping.send("ok", params=LOW)
    assert refused.status_code == 409
    assert (first(refused.json())["result"], first(refused.json())["because"]) == ("unknown", because)
    assert keeping.device.received == []
    assert keeping.counters["interlock.unknown"] == 1


async def test_a_device_that_has_said_nothing_is_unknown(keeping: Rig) -> None:
    refused = await keeping.send("ok", params=LOW)
    assert (refused.status_code, first(refused.json())["because"]) == (409, "nothing was ever said on its topic")


async def test_a_repeated_call_is_told_of_the_command_that_was_sent(keeping: Rig) -> None:
    await say(keeping, b'{"data": {"mode": 0}}')
    key = {"Idempotency-Key": "order-1"}
    sent = await keeping.send("ok", params=LOW, headers=key)
    await say(keeping, b'{"data": {"mode": 4}}')
    again = await keeping.send("ok", params=LOW, headers=key)
    assert (again.status_code, again.json()["id"]) == (200, sent.json()["id"])
    assert again.headers["idempotent-replayed"] == "true"
    assert (await keeping.send("ok", params=LOW, headers={"Idempotency-Key": "order-2"})).status_code == 409
    assert len(keeping.device.received) == 1


async def test_a_node_without_an_event_log_is_blind(profiles: Path) -> None:
    async with running(profiles={"dir": profiles}) as rig:
        refused = await rig.send("ok", params=LOW)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:homing:problem:interlock-blind")
        assert "interlocks on_the_ground: this node has no event log" in refused.json()["detail"]
        assert rig.store.registrations == []
        assert rig.counters["interlock.blind"] == 1
