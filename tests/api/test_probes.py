"""Commands that a probe settles, as callers see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.core.messages import ReceivedMessage
from tests.api.rig import COMMANDS, Rig, homing_with, is_ready, running
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
        await eventually(lambda: is_ready(rig))
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


async def test_what_timed_out_is_looked_for_when_somebody_asks(tmp_path: Path) -> None:
    rules = RULES.replace('"10m"', '"1s"')
    async with running(events={"url": "memory://"}, profiles={"dir": homing_with(tmp_path, rules)}) as rig:
        await eventually(lambda: is_ready(rig))
        sent = await _timed_out(rig, "cover_open")
        path = f"/v1/commands/{sent['id']}"
        nothing = (await rig.http.post(f"{path}/probe")).json()
        assert (nothing["result"], nothing["command"]) == ("untold", sent)

        async def found() -> bool:
            rig.broker.publish(ReceivedMessage(TOPIC, b'{"data": {"cover_state": 1}}', qos=1))
            return bool((await rig.http.post(f"{path}/probe")).json()["result"] == "goal")

        await eventually(found)
        command = (await rig.http.get(path)).json()
        verified = command.pop("verified")
        assert command == sent
        assert (verified["state"], verified["kind"], verified["topic"]) == ("succeeded", "goal", TOPIC)
        assert sent["finished_at"] < verified["at"] <= verified["found_at"]
        rig.broker.publish(ReceivedMessage(TOPIC, b'{"data": {"cover_state": 0}}', qos=1))
        assert (await rig.http.post(f"{path}/probe")).json()["command"]["verified"] == verified
        explained = (await rig.http.get(f"{path}/explain")).json()
        assert explained["verdict"]["code"] == "probe_verified"
        assert "verified" in [step["what"] for step in explained["timeline"]]
        assert 'homing_probe_verified_total{result="goal"} 1' in (await rig.http.get("/metrics")).text


async def test_only_what_has_timed_out_and_has_a_probe_is_looked_for(keeping: Rig) -> None:
    other = await _timed_out(keeping, "light_on")
    refused = await keeping.http.post(f"/v1/commands/{other['id']}/probe")
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:homing:problem:invalid-input")
    is_open = (await keeping.send("cover_open", timeout="60s", headers={"Prefer": "respond-async"})).json()
    refused = await keeping.http.post(f"/v1/commands/{is_open['id']}/probe")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:homing:problem:illegal-transition")
    unknown = await keeping.http.post(f"/v1/commands/{other['id'][:4]}{'0' * 26}/probe")
    assert unknown.status_code == 404


async def _timed_out(rig: Rig, method: str) -> dict[str, Any]:
    reply = await rig.send(method, timeout="1s", headers={"Prefer": "wait=20"})
    assert reply.status_code == 504
    command: dict[str, Any] = reply.json()["command"]
    return command
