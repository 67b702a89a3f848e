"""Commands that a probe settles, as callers see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.core.messages import ReceivedMessage
from tests.api.rig import COMMANDS, Rig, homing_with, running
from tests.waiting import eventually

DEVICE = COMMANDS.split("/")[3]
TOPIC = f"homing/{DEVICE}/osd"
RULES = """
[[event]]
name = "state"
topic = "homing/{device_id}/osd"

[[probe]]
methods = ["cover_open"]
topic = "homing/{device_id}/osd"
done = [{ path = "data.cover_state", is_in = [1] }]
goal = true
within = "10m"
"""


@pytest.fixture
async def keeping(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(events={"url": "memory://"}, profiles={"dir": homing_with(tmp_path, RULES)}) as rig:

        async def is_ready() -> bool:
            return (await rig.http.get("/readyz")).status_code == 200

        await eventually(is_ready)
        yield rig


async def test_what_the_device_says_answers_the_parked_caller(keeping: Rig) -> None:
    sending = asyncio.create_task(keeping.send("cover_open", timeout="4s", headers={"Prefer": "wait=20"}))
    while not sending.done():  # a device tells its state again and again
        keeping.broker.publish(ReceivedMessage(TOPIC, b'{"data": {"cover_state": 1}}', qos=1))
        await asyncio.wait([sending], timeout=0.05)
    reply = sending.result()
    command = reply.json()
    assert (reply.status_code, command["state"], command["matched_by"]) == (200, "succeeded", "probe")
    found = command["confirmed_by"]
    assert command["created_at"] < found["at"] <= command["finished_at"]
    assert found == {"kind": "goal", "topic": TOPIC, "at": found["at"], "value": {"data.cover_state": 1}}
    assert (await keeping.http.get(f"/v1/commands/{command['id']}")).json() == command
    explained = (await keeping.http.get(f"/v1/commands/{command['id']}/explain")).json()
    assert explained["verdict"]["code"] == "probe_confirmed"
    (evidence,) = explained["verdict"]["evidence"]
    assert evidence.startswith(f"data.cover_state was 1 on {TOPIC}, told ")
    assert 'homing_probe_total{result="goal"} 1' in (await keeping.http.get("/metrics")).text
