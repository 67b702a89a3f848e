"""Profiles that a node does not speak, tried over HTTP."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.core.errors import CapacityError, InvalidInputError, UnavailableError
from app.core.sizes import MIB
from app.drafts import LEAST_MEMORY, MODULE, DraftTrials, memory_of_trial
from app.profiles.loader import shipped_file
from app.profiles.tools import draft
from tests.api.rig import Rig, running

HOMING = shipped_file("homing")
assert HOMING is not None
TOML = HOMING.read_text("utf-8")
SLOW = f"""{TOML}
[[method]]
name = "blink"
title = "Blink"
params = {{ type = "string", pattern = "^(a+)+$" }}
"""
FOREVER = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running() as one:
        yield one


async def tried(rig: Rig, **members: Any) -> dict[str, Any]:
    response = await rig.http.post("/v1/profiles/draft", json={"toml": TOML, **members})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_a_draft_says_what_it_publishes_and_how_it_reads(rig: Rig) -> None:
    params = {"level": 9007199254740993}
    said = '{"id": "{id}", "status": "ok"}'
    found = await tried(rig, device_id="lamp-1", method="on", params=params, payload=said)
    assert (found["name"], found["faults"], found["accepted"], found["answers"]) == ("homing", [], True, True)
    assert found["command"] == {"device_id": "lamp-1", "method": "on", "params": {"level": 9007199254740993}}
    assert found["publishes"][0].startswith("publishes to homing/lamp-1/command")
    assert '"level":9007199254740993' in found["publishes"][1]
    assert "succeeded, of this command" in found["readings"][0]
    assert found["reads"]


def test_what_is_said_on_another_topic_is_read_as_what_it_is() -> None:
    asked = {"toml": TOML, "device_id": None, "method": None, "params": None, "now": 1, "ulid": "0" * 26}
    found = draft.try_draft({**asked, "topic": "homing/lamp-1/presence", "payload": '{"online": true}'})
    assert (found["readings"], found["answers"]) == (["at homing/lamp-1/presence: lamp-1 is there"], False)


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("name = ", "profile.toml:1: is no TOML"),
        (TOML.replace("qos = 1", "qos = 3"), "request.qos"),
        (TOML + "\n[codec]\nprotobuf = 'X'\ndescriptor = '/etc/passwd'\n", "profile.toml:"),
        ("<script>alert(1)</script>", "is no TOML"),
        ("\u202e\u0000", "is no TOML"),
    ],
)
async def test_faults_are_told_with_their_line(rig: Rig, toml: str, said: str) -> None:
    found = await tried(rig, toml=toml)
    assert said in found["faults"][0]
    assert (found["name"], found["command"], found["publishes"], found["accepted"]) == (None, None, [], False)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "toml"),
        ({"toml": ""}, "toml"),
        ({"toml": "x" * 70_000}, "65536"),
        ({"toml": TOML, "topic": "a/b"}, "a topic alone"),
        ({"toml": TOML, "topic": "a/#", "payload": ""}, "is a wildcard"),
        ({"toml": TOML, "device_id": "x" * 200}, "device_id"),
        ({"toml": TOML, "method": "\u202e"}, "method"),
        ({"toml": TOML, "more": 1}, "more"),
    ],
)
async def test_what_cannot_be_tried_is_422(rig: Rig, body: dict[str, Any], said: str) -> None:
    response = await rig.http.post("/v1/profiles/draft", json=body)
    assert response.status_code == 422, response.text
    assert said in response.text


async def test_one_at_a_time_and_none_takes_long() -> None:
    trials = DraftTrials(lambda: 1, lambda: "0" * 26, FOREVER, 0.2)
    first = asyncio.create_task(trials.run({"toml": "x"}))
    await asyncio.sleep(0)
    with pytest.raises(CapacityError):
        await trials.run({"toml": "x"})
    with pytest.raises(InvalidInputError, match="takes longer"):
        await first
    with pytest.raises(InvalidInputError, match="takes longer"):  # there is room again
        await trials.run({"toml": "x"})


async def test_a_process_that_dies_or_cannot_begin_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMING_ADMIN_KEY", "secret")
    leaks = (sys.executable, "-c", "import os, sys; sys.exit('HOMING_ADMIN_KEY' not in os.environ and 3)")
    with pytest.raises(InvalidInputError, match="too much time or memory"):
        await DraftTrials(lambda: 1, lambda: "0" * 26, leaks, 60.0).run({})
    with pytest.raises(UnavailableError, match="No such file"):
        await DraftTrials(lambda: 1, lambda: "0" * 26, ("/no/such/program",), 60.0).run({})


@pytest.mark.parametrize(
    ("process", "trial"), [(0, 1024), (192, 96), (512, 128), (2048, 512), (1_000_000, 1024)], ids=str
)
def test_a_trial_may_take_a_quarter_of_what_the_node_may(process: int, trial: int) -> None:
    assert memory_of_trial(process * MIB) == trial * MIB


@pytest.mark.parametrize("name", ["homing", "dji"])
async def test_the_least_memory_is_enough_for_shipped_profiles_and_less_is_not(name: str) -> None:
    source = shipped_file(name)
    assert source is not None
    toml = source.read_text("utf-8")
    empty = dict.fromkeys(("device_id", "method", "params", "payload", "topic"))

    async def tried_with(memory: int, text: str) -> dict[str, Any]:
        command = (sys.executable, "-m", MODULE, str(memory))
        return await DraftTrials(lambda: 1, lambda: "0" * 26, command, 60.0).run({"toml": text, **empty})

    assert (await tried_with(LEAST_MEMORY, toml))["accepted"] is True
    large = toml + "".join(f"\n[[method]]\nname = 'm{number}'\ntitle = 't'" for number in range(5000))
    with pytest.raises(InvalidInputError, match="time or memory"):
        await tried_with(LEAST_MEMORY // 4, large)


async def test_an_expression_that_never_ends_is_killed(rig: Rig) -> None:
    body = {"toml": SLOW, "method": "blink", "params": "a" * 40 + "!"}
    response = await rig.http.post("/v1/profiles/draft", json=body)
    assert response.status_code == 422, response.text
    assert "time or memory" in response.text
