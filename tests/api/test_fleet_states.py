"""Targets of a fleet run by presence and by last values, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.core.messages import ReceivedMessage
from tests.api.rig import Rig, homing_with, is_ready, running
from tests.api.test_fleets import RUNS, becomes, tell
from tests.waiting import eventually

EVENT = '[[event]]\nname = "state"\ntopic = "homing/{device_id}/osd"\n'
DOCKS = {"dock-1": b'{"fw": "1"}', "dock-2": b'{"fw": "2"}', "dock-3": b"no JSON"}
ALL = {"devices": [*DOCKS, "dock-4"]}


@pytest.fixture
async def keeping(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(events={"url": "memory://"}, profiles={"dir": homing_with(tmp_path, EVENT)}) as rig:

        async def are_kept() -> bool:
            answers = [await rig.http.get(f"/v1/state/homing/{one}/osd") for one in DOCKS]
            return all(one.status_code == 200 for one in answers)

        await eventually(lambda: is_ready(rig))
        await tell(rig, ["dock-1", "dock-2"])
        await tell(rig, ["dock-2"], online=False)
        for name, value in DOCKS.items():
            rig.broker.publish(ReceivedMessage(f"homing/{name}/osd", value, qos=1))
        await eventually(are_kept)
        yield rig


def state(**compared: Any) -> dict[str, Any]:
    return {"state": {"topic": "homing/{device_id}/osd", "when": [{"path": "fw", **compared}]}}


async def chosen(rig: Rig, targets: object) -> list[str]:
    body = {"targets": targets, "command": {"method": "ok"}, "order": "as_listed"}
    answer = await rig.http.post(RUNS, json=body, params={"dry_run": "true"})
    if answer.status_code == 422:
        assert answer.json()["type"] == "urn:homing:problem:no-targets", answer.text
        return []
    assert answer.status_code == 200, answer.text
    found: list[str] = answer.json()["devices"]
    return found


@pytest.mark.parametrize(
    ("asked", "docks"),
    [
        (state(is_not=["2"]), ["dock-1"]),
        ({"not": state(is_in=["2"])}, ["dock-1"]),
        (state(is_in=["1", "2"]), ["dock-1", "dock-2"]),
        (state(is_in=["3"]), []),
        ({"online": True}, ["dock-1"]),
        ({"online": False}, ["dock-2"]),
        ({"any": [{"online": False}, {"devices": ["dock-4"]}]}, ["dock-2", "dock-4"]),
        ({"all": [{"online": True}, state(is_in=["2"])]}, []),
    ],
)
async def test_what_devices_have_said_last_chooses_among_those_that_are_named(
    keeping: Rig, asked: object, docks: list[str]
) -> None:
    assert await chosen(keeping, {"all": [ALL, asked]}) == docks


async def test_a_run_keeps_its_targets_whatever_they_say_afterwards(keeping: Rig) -> None:
    body = {"targets": {"all": [ALL, state(is_in=["1"])]}, "command": {"method": "ok", "hold": "1m"}}
    run = (await keeping.http.post(RUNS, json=body)).json()
    assert (run["total"], run["targets"]) == (1, body["targets"])
    await becomes(keeping, run, "succeeded")
