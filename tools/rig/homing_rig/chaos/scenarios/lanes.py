"""Commands that go through a lane of their device one after the other, while nodes die: LANES."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from app.core.commands.command import CommandState
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.held_race import HOLD, all_final
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE, kills_of_any
from homing_rig.chaos.shared_figures import ANSWERED, NOBODY_WAITS, SOUND, measure, quantile
from homing_simulator.families import Request

LANE: Final = """
[[lane]]
name = "flight"
methods = ["take_off"]
order = "fifo"
hold = "1h"
"""
SILENT_SHARE: Final = 0.02
"""The share of commands that their device never answers, so that others have to wait for their time."""


async def _line_up(rig: Rig) -> None:
    low, high = rig.form.delay

    def plan(_request: Request, rng: random.Random) -> Sequence[float]:
        return () if rng.random() < SILENT_SHARE else (rng.uniform(low, high),)

    await rig.start_fleet(plan)
    commands = rig.form.commands or round((rig.form.seconds or 1.0) * (rig.form.rate or 1.0))
    in_turn = rig.job(rate=None, turns=True, in_flight=len(rig.devices), commands=commands, seconds=None)
    await rig.load_with_faults(replace(in_turn, lane="flight", hold=HOLD))
    rig.phase = "waiting for what stands in line"
    forgotten = await all_final(rig, rig.load.calls)
    await rig.settle()
    measure(rig)
    got = [one for fleet in rig.fleets for one in fleet.got.values()]
    instants = [at for one in got for at, _ in one]
    rig.measures |= {
        "lane_forgotten": forgotten,
        "lane_not_sent": sum(said.get("state") == CommandState.UNSENT for said in rig.finals.commands.values()),
        "lanes_a_second": round(len(instants) / max(1e-3, max(instants) - min(instants)), 1),
        "freed_s": round(quantile(_freed(rig, got), 0.5), 3),
    }


def _freed(rig: Rig, got: Sequence[Sequence[tuple[float, str]]]) -> list[float]:
    """Return how long after the time of a mute command the next one of its lane came, where there was one."""
    timed_out = {one for one, said in rig.finals.commands.items() if said.get("state") == CommandState.TIMED_OUT}
    return [
        later - earlier - rig.form.timeout
        for one in got
        for (earlier, mute), (later, _) in pairwise(one)
        if mute in timed_out
    ]


LANES = Scenario(
    name="LANES",
    title="commands stand in line while nodes die",
    provoke="each device is sent commands one after the other, which go through a lane of order fifo; one in fifty is "
    "never answered; a random node is killed every 5 s; callers retry with their key",
    figures=(
        *SOUND,
        ANSWERED,
        Figure("lane_forgotten", "=", 0, "commands that stood in line and have no outcome when all is well again"),
        Figure("lane_not_sent", "=", 0, "commands that were not sent although their device was there"),
        Figure("lanes_a_second", ">=", 1000, "commands that devices got in a second", timing=True),
        Figure(
            "freed_s", "<=", 0.2, "seconds from the end of a mute command's time to the next one, median", timing=True
        ),
    ),
    full=Form(
        commands=20_000,
        seconds=60,
        rate=200,
        devices=500,
        share_async=1.0,
        timeout=3.0,
        patience=120.0,
        delay=(0, 0.02),
    ),
    short=Form(
        commands=160,
        seconds=6,
        rate=30,
        devices=20,
        share_async=1.0,
        timeout=3.0,
        every=3.0,
        down=1.0,
        settings=QUICK_LEASE,
    ),
    act=_line_up,
    expects=(*NOBODY_WAITS, "I9"),
    plan=kills_of_any,
    lane=LANE,
)
