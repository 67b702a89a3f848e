"""Measures what many profiles cost a plain command."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from app.profiles.loader import load_profiles
from homing_rig.bench.cluster import Steps
from homing_rig.bench.cost import measure_cost
from homing_rig.bench.options import BenchOptions
from homing_rig.figures.kit import Findings

SHIPPED = "HOMING_PROFILES_SHIPPED"


async def profiles(
    findings: Findings,
    *,
    rounds: Annotated[int, Option(min=1, help="The number of turns of each cluster.")] = 20,
    seconds: Annotated[float, Option(min=0.1, help="The length of a turn.")] = 2.0,
) -> None:
    """CPU of nodes that speak all profiles against that of nodes that speak one, in turns."""
    # Mosquitto gives shared subscriptions no message of topics that begin with `$`.
    found = [
        name
        for name, profile in load_profiles(shipped=["all"]).items()
        if not any(topic.text.startswith("$") for topic in profile.heard)
    ]
    options = BenchOptions(rounds=rounds, seconds=seconds, node_settings={SHIPPED: "dji"})
    steps = Steps(lambda _part, _text: None, 2 + 2 * rounds)
    cost = await measure_cost("all profiles", options, {SHIPPED: ",".join(found)}, steps)
    findings.figure("profiles, against 1", len(found))
    findings.spread("CPU of both nodes per command, against that with one", cost.cost, " ×", most=1.03)
    findings.figure("the same in all turns together", cost.total, " ×")
    findings.figure("CPU of fleet and load, which profiles cannot touch", cost.untouched, " ×")
    findings.figure("CPUs that other programs kept busy", cost.with_it.foreign)
