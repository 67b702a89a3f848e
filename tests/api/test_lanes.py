"""Lanes over HTTP: commands of the same lane leave for a device in its order, whoever sends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.api.rig import Rig, homing_with, running
from tests.api.test_held import becomes
from tests.waiting import eventually

LANES = """
[[lane]]
name = "flight"
methods = ["silent", "ok", "refuse"]
order = "fifo"

[[lane]]
name = "aim"
methods = ["aim_*"]
order = "latest"

[[lane]]
name = "move"
methods = ["move_*"]
order = "fifo_ack"

[[lane]]
name = "look"
methods = ["silent_look"]
order = "lifo"

[[lane]]
name = "mission"
methods = ["ok_step_*", "silent_step"]
order = "fifo"
on_failure = "stop"

[[lane]]
name = "blink"
methods = ["ok_blink_*"]
order = "fifo"
pace = "5/s"

[[lane]]
name = "clean"
methods = ["ok_clean"]
excludes = ["mission"]

[[lane]]
name = "door"
methods = ["door"]
hold = "0s"
"""
ASYNC = {"Prefer": "respond-async"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(profiles={"dir": homing_with(tmp_path, LANES)}) as rig:
        yield rig


async def put(rig: Rig, method: str, **members: Any) -> dict[str, Any]:
    answer = await rig.send(method, headers=ASYNC, **members)
    assert answer.status_code == 202, answer.text
    command: dict[str, Any] = answer.json()
    return command


async def test_each_is_sent_after_the_outcome_of_the_one_before_it(rig: Rig) -> None:
    head = await put(rig, "silent", timeout="20s")
    behind = [await put(rig, "ok", timeout="20s") for _ in range(3)]
    assert [one["state"] for one in (head, *behind)] == ["pending", "held", "held", "held"]
    assert "hold" not in head
    assert behind[0]["hold"]["waits_for"] == ["lane"]
    assert behind[0]["hold"]["lane"] == "flight"
    await eventually(lambda: asyncio.sleep(0, len(rig.device.received) == 1))
    explained = (await rig.http.get(f"/v1/commands/{behind[0]['id']}/explain")).json()["verdict"]
    assert explained["code"] == "held"
    assert "it goes through lane flight (fifo) of drone-1" in explained["evidence"][0]
    assert (await rig.http.delete(f"/v1/commands/{head['id']}")).status_code == 200
    for one in behind:
        await becomes(rig, one, "succeeded")
    assert [one["id"] for one in rig.device.received] == [one["id"] for one in (head, *behind)]
    assert len(rig.open_commands) == 0


async def test_who_waits_is_told_the_outcome_of_a_command_that_waited_in_its_lane(rig: Rig) -> None:
    head = await put(rig, "silent", timeout="20s")
    waiting = asyncio.ensure_future(rig.send("refuse", timeout="20s"))
    await eventually(lambda: asyncio.sleep(0, len(rig.store.registrations) == 2))
    await rig.http.delete(f"/v1/commands/{head['id']}")
    answer = await waiting
    assert (answer.status_code, answer.json()["state"]) == (200, "failed")


async def test_a_mute_head_frees_its_lane_at_its_timeout(rig: Rig) -> None:
    head = await put(rig, "silent", timeout="300ms")
    behind = await put(rig, "ok", timeout="20s")
    await becomes(rig, behind, "succeeded")
    assert (await rig.http.get(f"/v1/commands/{head['id']}")).json()["state"] == "timed_out"


async def test_who_waits_too_long_is_told_that_it_goes_on(rig: Rig) -> None:
    await put(rig, "silent", timeout="20s")
    answer = await rig.send("ok", headers={"Prefer": "wait=1"}, timeout="20s")
    assert (answer.status_code, answer.json()["state"]) == (202, "held")
    assert answer.headers["location"] == f"/v1/commands/{answer.json()['id']}"


async def test_only_the_last_one_waits_where_the_latest_counts(rig: Rig) -> None:
    first, second = [await put(rig, "aim_at", params={"to": i}, timeout="20s") for i in range(2)]
    waiting = asyncio.ensure_future(rig.send("aim_at", params={"to": 2}, timeout="20s", headers={"Prefer": "wait=20"}))
    await becomes(rig, second, "cancelled")
    await put(rig, "aim_at", params={"to": 3}, timeout="20s")
    replaced = (await waiting).json()
    assert (replaced["state"], replaced["error"]["code"]) == ("cancelled", "superseded")
    await rig.http.delete(f"/v1/commands/{first['id']}")
    await eventually(lambda: asyncio.sleep(0, len(rig.device.received) == 2))
    assert [one["params"]["to"] for one in rig.device.received] == [0, 3]


async def test_a_lane_that_holds_nothing_refuses(rig: Rig) -> None:
    await put(rig, "door", timeout="20s")
    refused = await rig.send("door")
    assert (refused.status_code, refused.json()["type"]) == (429, "urn:homing:problem:device-busy")
    assert "lane door of device drone-1 is taken" in refused.json()["detail"]


async def test_a_lane_has_fifty_that_wait_at_most(rig: Rig) -> None:
    await put(rig, "silent", timeout="20s")
    for _ in range(50):
        await put(rig, "ok")
    refused = await rig.send("ok")
    assert (refused.status_code, refused.json()["type"]) == (429, "urn:homing:problem:too-many-held")
    assert "lane flight of it has 50" in refused.json()["detail"]


async def test_the_next_one_is_sent_once_the_broker_has_the_one_before_it(rig: Rig) -> None:
    made = [await put(rig, f"move_{i}", timeout="20s") for i in range(5)]
    await eventually(lambda: asyncio.sleep(0, len(rig.device.received) == 5))
    assert [one["method"] for one in rig.device.received] == [one["method"] for one in made]
    states = [(await rig.http.get(f"/v1/commands/{one['id']}")).json()["state"] for one in made]
    assert set(states) <= {"pending", "acknowledged"}, "the device is silent: nothing waits for an outcome"


async def _has_received(rig: Rig, count: int) -> bool:
    return len(rig.device.received) == count


async def test_the_last_one_that_came_is_sent_first(rig: Rig) -> None:
    first, *others = [await put(rig, "silent_look", params={"to": i}, timeout="20s") for i in range(4)]
    assert [one["state"] for one in others] == ["held"] * 3
    for sent, end in enumerate((first, *reversed(others)), 1):
        await eventually(partial(_has_received, rig, sent))
        assert (await rig.http.delete(f"/v1/commands/{end['id']}")).status_code == 200
    assert [one["params"]["to"] for one in rig.device.received] == [0, 3, 2, 1]


async def test_after_a_failure_the_rest_of_a_lane_waits_for_a_person(rig: Rig) -> None:
    head = await put(rig, "silent_step", timeout="20s")
    behind = [await put(rig, f"ok_step_{i}", timeout="20s") for i in range(2)]
    assert (await rig.http.delete(f"/v1/commands/{head['id']}")).status_code == 200
    resume = "/v1/devices/drone-1/lanes/mission/resume"

    async def explained() -> bool:
        verdict = (await rig.http.get(f"/v1/commands/{behind[0]['id']}/explain")).json()["verdict"]
        return "lane mission (fifo) of drone-1 stands since command " + head["id"] in verdict["evidence"][0]

    async def counted() -> bool:
        return "homing_lanes_stopped 1.0" in (await rig.http.get("/metrics")).text

    await eventually(explained)
    await eventually(counted)
    late = await put(rig, "ok_step_late", timeout="20s")
    dry = (await rig.http.post("/v1/devices/drone-1/commands?dry_run=true", json={"method": "ok_step_x"})).json()
    assert (dry["would"], dry["lane"]["stopped"], dry["lane"]["position"]) == ("wait", True, 4)
    assert len(rig.device.received) == 1
    resumed = await rig.http.post(resume)
    assert resumed.status_code == 200, resumed.text
    told = resumed.json()
    assert (told["resumed"], told["stopped_by"], told["next"]) == (True, head["id"], behind[0]["id"])
    for one in (*behind, late):
        await becomes(rig, one, "succeeded")
    again = (await rig.http.post(resume)).json()
    assert again == {"device_id": "drone-1", "lane": "mission", "resumed": False}
    refused = await rig.http.post("/v1/devices/drone-1/lanes/Mission/resume")
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:homing:problem:invalid-input")


async def test_a_lane_keeps_its_pace_over_the_outcomes(rig: Rig) -> None:
    made = [await put(rig, f"ok_blink_{i}", timeout="20s") for i in range(4)]
    assert [one["state"] for one in made] == ["pending", "held", "held", "held"]
    for one in made:
        await becomes(rig, one, "succeeded")
    found = [(await rig.http.get(f"/v1/commands/{one['id']}")).json() for one in made]
    assert [one["method"] for one in rig.device.received] == [one["method"] for one in found]


async def test_a_lane_waits_for_one_that_it_excludes_and_goes_on_with_its_outcome(rig: Rig) -> None:
    flying = await put(rig, "silent_step", timeout="20s")
    cleaning = await put(rig, "ok_clean", timeout="20s")
    assert cleaning["state"] == "held"
    verdict = (await rig.http.get(f"/v1/commands/{cleaning['id']}/explain")).json()["verdict"]
    assert "until mission of it have nothing in flight" in verdict["evidence"][0]
    assert (await rig.http.delete(f"/v1/commands/{flying['id']}")).status_code == 200
    await becomes(rig, cleaning, "succeeded")
