"""Whole runs: the same seed is the same run, nobody finds anything in a sound product, and the dead are dead."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import pytest

from app.commands.send.invoker import Invocation, Invoker
from app.commands.send.registrar import CommandRequest
from app.core.errors import BrokerUnavailableError
from app.observers.measures import CommandMeasures
from homing_rig.chaos.history import Executed, FinalRead, Ok
from homing_rig.simulation import suite
from homing_rig.simulation.coverage import Stage, possible
from homing_rig.simulation.guards import guarded
from homing_rig.simulation.loop import SimLoop, bury
from homing_rig.simulation.plan import BEGIN, OF_NODES, OF_STORE, Trouble, TroubleKind, plan_of
from homing_rig.simulation.recording import Recording
from homing_rig.simulation.run import run
from homing_rig.simulation.store import StoreHost
from homing_rig.simulation.world import World
from tests.unit.cli.conftest import Homing

SEEDS = 75
"""As many as an ordinary run has time for."""


def test_a_calm_run_has_an_outcome_for_every_command() -> None:
    plan = plan_of(0, 100)
    found = run(plan)
    assert found.breaches == ()
    events = found.recording.events
    assert len({one.command_id for one in events if isinstance(one, FinalRead)}) == 100 + plan.nodes
    assert {one.state for one in events if isinstance(one, FinalRead)} == {"succeeded", "failed", "timed_out"}
    assert {one.status for one in events if isinstance(one, Ok)} >= {200}
    assert sum(isinstance(one, Executed) for one in events) >= 100


def test_nothing_of_a_run_is_left_for_the_next_one() -> None:
    first = run(plan_of(3, 40)).digest
    for seed in range(4, 8):
        run(plan_of(seed, 40))
    assert run(plan_of(3, 40)).digest == first
    assert run(plan_of(4, 40)).digest != first


def worlds() -> set[int]:
    """Parts of runs that are in memory."""
    return {id(one) for one in gc.get_objects() if isinstance(one, (World, SimLoop, StoreHost))}


def test_a_run_leaves_nothing_in_memory() -> None:
    """Each left a world behind, a megabyte: ten thousand seeds in one process took nine gigabytes."""
    gc.collect()
    before = worlds()
    found = run(plan_of(3, 20))
    assert worlds() <= before
    assert found.recording.events


def test_two_processes_with_other_hashes_see_the_same() -> None:
    both = list(suite.twice(range(1, 6), 30))
    assert sorted(one.seed for one, _ in both) == list(range(1, 6))
    assert [(one.seed, one.digest) for one, _ in both] == [(other.seed, other.digest) for _, other in both]


def test_nothing_comes_from_a_node_after_its_death() -> None:
    """Every connection of it is over, and what it counts stands still."""
    plan = replace(plan_of(11, 60), troubles=(), nodes=2)
    loop = SimLoop(plan.stream("loop"))
    world = World(loop, plan, Recording())

    async def kill() -> None:
        running = loop.create_task(world.run(), context=loop.world.context.copy())
        await asyncio.sleep(BEGIN + 0.5)
        node = world.nodes["n1"]
        lane = node.life.lane
        node.kill()
        counted = dict(node.counters)
        await asyncio.sleep(20)
        assert dict(node.counters) == counted
        assert lane.dead
        assert [link for link in node.around.links if link.connections] == []
        running.cancel()

    with guarded(loop.time, plan.seed):
        try:
            loop.run_until_complete(loop.create_task(kill(), context=loop.world.context.copy()))
        finally:
            bury(world.lanes)
            loop.close()


@pytest.mark.parametrize("kind", list(TroubleKind))
def test_every_kind_of_trouble_is_survived(kind: TroubleKind) -> None:
    target = "store" if kind in OF_STORE else "n2"
    trouble = Trouble(at=0.5, kind=kind, target=target, seconds=1.5)
    plan = replace(plan_of(0, 60), troubles=(trouble,))
    assert run(plan).breaches == ()


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(500, marks=pytest.mark.long)])
def test_seeds_find_nothing_in_the_product_and_meet_what_they_must(seeds: int) -> None:
    """A simulation that never meets a state proves nothing about it. Five hundred seeds meet all that is possible."""
    found = list(suite.outcomes(range(seeds), 40, 1))
    assert [one for one in found if one.breaches or one.failed] == []
    met = {name for one in found for name in one.marks}
    assert {f"{kind} node ready" for kind in OF_NODES} - met == set()
    hit = [name.split(" command ") for name in met if " command " in name]
    assert {kind for kind, _ in hit} == {*TroubleKind}
    assert {stage for _, stage in hit} == {*Stage}
    assert {"counter adoption.responses", "counter lease.lost", "counter repeat.sent", "counter sweep.timed_out"} <= met
    assert {"counter events.appended", "counter events.redelivered", "counter events.retried"} <= met
    assert len(met & set(possible())) > len(possible()) / 2


def test_a_node_that_serves_no_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing open and says that it is ready: only who asks it finds out."""
    invoke = Invoker.invoke

    async def only_while_busy(self: Invoker, request: CommandRequest, *, park: bool) -> Invocation:
        if asyncio.get_running_loop().time() > 10:
            raise BrokerUnavailableError("not today")
        return await invoke(self, request, park=park)

    monkeypatch.setattr(Invoker, "invoke", only_while_busy)
    plan = replace(plan_of(0, 5), nodes=2, troubles=(Trouble(10.0, TroubleKind.CLOCK, "n1", 0.0),))
    assert [str(one) for one in run(plan).breaches] == [
        f"L2 not_served: {node} says 503 broker-unavailable to a command that was sent when everything was well"
        for node in ("n1", "n2")
    ]


def test_coverage_is_told(homing: Homing) -> None:
    code, out, _ = homing("simulate-cluster", "--from", "1", "--seeds", "2", "--ops", "10", "--coverage")
    assert code == 0
    lines = out.splitlines()
    assert any(line.endswith(" node ready") for line in lines)
    assert lines[-1].startswith("met ")
    assert f" of {len(possible())} states; never: " in lines[-1]


def test_a_mistake_of_who_listens_to_commands_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_facts: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(CommandMeasures, "closed", fails)
    assert {one.rule for one in run(plan_of(0, 5)).breaches} == {"S3 observer.failed"}
