"""Schedules come from the seed alone, fit their rig, and survive being printed and read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from app.core.errors import ConfigurationError
from homing_rig.chaos.options import ChaosOptions
from homing_rig.chaos.scenario import Figure
from homing_rig.chaos.scenarios import SCENARIOS
from homing_rig.chaos.schedule import DRIVER, REDIS, THIRDS, Fault, Kind, check, read_schedule
from tests.rig.chaos.mutants import MUTANTS

DOCS = Path(__file__).parents[4] / "docs"


def planned(name: str, seed: int) -> list[Fault]:
    scenario = SCENARIOS[name]
    return scenario.plan(random.Random(f"{seed} {name}"), scenario.full)


@pytest.mark.parametrize("name", SCENARIOS)
def test_one_seed_gives_one_schedule_that_fits_its_rig(name: str) -> None:
    faults = planned(name, 7)
    assert faults == planned(name, 7)
    nodes = [f"n{number + 1}" for number in range(SCENARIOS[name].full.nodes)]
    one = SCENARIOS[name]
    has = {name: getattr(one, name) for name in ("proxies", "steps", "replica", "drives", "cluster")}
    check(faults, nodes, **has)


def test_a_driver_is_a_target_where_there_is_a_run() -> None:
    cut = [Fault(1.0, Kind.BLACKHOLE, DRIVER, 15.0)]
    check(cut, ["n1"], proxies=True, drives=True)
    with pytest.raises(ConfigurationError, match="blackhole of 'driver'; allowed: n1"):
        check(cut, ["n1"], proxies=True)


def test_a_third_is_a_target_where_redis_is_a_cluster() -> None:
    switch = [Fault(1.0, Kind.SWITCH, THIRDS[0])]
    check(switch, ["n1"], proxies=False, cluster=True)
    with pytest.raises(ConfigurationError, match="switch of 'third1'; allowed: no target here"):
        check(switch, ["n1"], proxies=True, replica=True)
    with pytest.raises(ConfigurationError, match="kill of 'redis'; allowed: n1, broker, intake"):
        check([Fault(1.0, Kind.KILL, REDIS)], ["n1"], proxies=False, cluster=True)


def test_another_seed_gives_another_schedule() -> None:
    assert planned("R3", 7) != planned("R3", 8)


def test_a_printed_schedule_reads_back(tmp_path: Path) -> None:
    faults = [
        Fault(0.5, Kind.KILL, "n1"),
        Fault(12.25, Kind.FREEZE, "n2", 20.0),
        Fault(3, Kind.CLOCK_FORWARD, "redis", 9),
    ]
    file = tmp_path / "faults"
    file.write_text("# of a run\n\n" + "\n".join(map(str, faults)))
    assert read_schedule(file) == faults


@pytest.mark.parametrize(
    ("compare", "value", "reached"),
    [("=", 0, True), ("=", 1, False), ("<=", 2, True), ("<=", 2.1, False), (">=", 2, True), (">=", 1.9, False)],
)
def test_a_figure_is_reached_at_its_limit(compare: str, value: float, *, reached: bool) -> None:
    limit = 0 if compare == "=" else 2
    assert Figure("x", compare, limit, "x").reached(value) is reached


def test_a_replay_names_everything_that_was_asked_for() -> None:
    options = ChaosOptions(scenario="R3", seed=9, seconds=12.5, rate=50, short=True)
    assert options.command == "homing chaos --scenario R3 --seed 9 --seconds 12.5 --rate 50 --short"


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_page_of_guarantees_has_every_scenario(name: str) -> None:
    assert f"\n- **{name}** " in (DOCS / "guarantees.md").read_text("utf-8")


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_listed(name: str) -> None:
    assert f"\n- `{name}`: " in (DOCS / "testing.md").read_text("utf-8")
