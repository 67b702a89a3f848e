"""Measurements of held commands and fleet runs in their short form: they come to their end, and count right."""

from __future__ import annotations

import pytest

from homing_rig.figures.fleets_together import together
from homing_rig.figures.held import cost, signs, stored
from homing_rig.figures.held_peers import peers
from homing_rig.figures.kit import Figure, Findings
from tests.services import require_programs

pytestmark = pytest.mark.long


@pytest.fixture
def findings() -> Findings:
    require_programs()
    return Findings("figures", lambda _line: None)


def values(findings: Findings) -> dict[str, float]:
    return {one.name: one.value for one in findings.entries if isinstance(one, Figure)}


async def test_a_sign_of_life_is_followed_by_the_command(findings: Findings) -> None:
    await signs(findings, times=2, kills=1)
    assert 0 < values(findings)["the longest of them"] < 90


async def test_a_held_command_and_a_plain_one_cost_something(findings: Findings) -> None:
    await cost(findings, commands=50, rounds=1)
    assert values(findings)["the second to the first"] > 0


async def test_nothing_is_left_of_what_was_held(findings: Findings) -> None:
    await stored(findings, commands=100, seconds=1, hold=45)
    assert values(findings)["keys in Redis above those before, when they have ended"] <= 0


async def test_what_was_cancelled_or_has_lapsed_is_not_executed_if_homing_held_it(findings: Findings) -> None:
    await peers(findings, devices=20, away=8)
    ours = {name: value for name, value in values(findings).items() if name.startswith("held by Homing")}
    assert [*ours.values()] == [0, 0, 0, 0]
    theirs = "the queue of a session, published with MQTT 3.1.1"
    assert values(findings)[f"{theirs}: that had lapsed and were executed"] == 2


async def test_runs_at_once_and_one_that_is_stopped(findings: Findings) -> None:
    await together(findings, runs=3, targets=10)
    assert values(findings)["from the answer to a pause to the last command that a device got"] >= 0
