"""The findings of seeds in the product, each in the plainest world that shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.core import keys
from homing_rig.simulation.event_talk import Saying
from homing_rig.simulation.guards import guarded
from homing_rig.simulation.loop import SimLoop, bury
from homing_rig.simulation.network import PLACES
from homing_rig.simulation.plan import BEGIN, BROKER, Plan, Trouble, TroubleKind, plan_of
from homing_rig.simulation.recording import Recording
from homing_rig.simulation.replica import Excused
from homing_rig.simulation.run import Breach, run
from homing_rig.simulation.world import World


@pytest.mark.parametrize("lease", [1.0, 1.5, 5.0])
def test_the_shortest_lease_is_renewed_in_time(lease: float) -> None:
    """Heartbeats came once a second whatever the lease, so one of a second ran out each time, and nodes adopted the
    sessions of others that lived, and their own, for ever (seed 100481).
    """
    plan = plan_of(0, 1)
    plan = replace(plan, nodes=2, troubles=(), lease=lease, laws=dict.fromkeys(plan.laws, "far"))
    loop = SimLoop(plan.stream("loop"))
    world = World(loop, plan, Recording())
    lowest = lease

    async def look() -> None:
        nonlocal lowest
        for node in world.nodes.values():
            node.start()
        await asyncio.sleep(BEGIN)
        while loop.time() < BEGIN + 5:
            left = [world.store.keys.call("PTTL", keys.lease(one)) for one in world.nodes]
            lowest = min(lowest, *(one / 1000 for one in left))
            await asyncio.sleep(0.01)

    with guarded(loop.time, plan.seed):
        try:
            loop.run_until_complete(loop.create_task(look(), context=loop.world.context.copy()))
        finally:
            bury(world.lanes)
            loop.close()
    assert lowest > lease / 4


def test_a_node_that_was_frozen_while_its_id_was_taken_asks_once_more() -> None:
    """It gave up on what it had been told before the pause, when the lease of its dead predecessor was long over
    (seed 400144).
    """
    plan = plan_of(0, 1)
    plan = replace(plan, nodes=2, lease=5.0, laws=dict.fromkeys(plan.laws, "far"))
    for at in (2.5, 2.54, 2.58, 2.62, 2.66, 2.7):  # one of them meets a question under way
        troubles = (Trouble(0.5, TroubleKind.UNPLUG, "n2", 1.0), Trouble(at, TroubleKind.FREEZE, "n2", 8.0))
        assert run(replace(plan, troubles=troubles)).breaches == ()


def test_a_fail_over_forgets_and_excuses_only_what_it_touched() -> None:
    """The rest of the history is judged, and there is more of it than of what was forgotten."""
    trouble = Trouble(1.0, TroubleKind.FAIL_OVER, "store", 0.4)
    plan = replace(plan_of(0, 100), troubles=(trouble,))
    loop = SimLoop(plan.stream("loop"))
    world = World(loop, plan, Recording())
    with guarded(loop.time, plan.seed):
        try:
            loop.run_until_complete(loop.create_task(world.run(), context=loop.world.context.copy()))
            events = world.recording.events
            assert 0 < len(world.excused) < 50
            assert len(events) / 2 < len(world.excused.others(events)) < len(events)
            assert world.unrest == []
        finally:
            bury(world.lanes)
            loop.close()
    assert run(plan).breaches == ()
    assert {one.rule for one in _judged_whole(plan)} & {"I4 answer_lost", "I2 left_outcome", "I1 command_lost"}


def _judged_whole(plan: Plan) -> Sequence[Breach]:
    """The breaches of a run in which nothing is excused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Excused, "others", lambda _self, events: events)
        return run(plan).breaches


SHARED = replace(
    plan_of(0, 0),
    nodes=4,
    intake="shared",
    sayings=(Saying(6.3, 0, "device-1"), Saying(6.4, 1, "device-1"), Saying(6.5, 2, "device-1")),
    laws=dict.fromkeys(PLACES, "near"),
)


def test_one_node_alone_looks_for_what_an_ordered_intake_has_left() -> None:
    """All nodes looked into that session, which has one client id, and ended each other's connections for ever: so
    what was in it stayed there, and each node connected once a second (seen in the trace of seed 7486).
    """
    waits: list[float] = []

    def told(at: float, _who: str, line: str) -> None:
        if "former_intake_waits" in line:
            waits.append(at)

    assert run(SHARED, told).breaches == ()
    assert waits == []


def test_a_session_of_events_that_was_not_handed_over_is_adopted() -> None:
    """A node that stopped did not tell that it left its session of events at the broker, where it had handed over that
    of its commands: nobody took in what came for it (seed 7486).
    """
    troubles = (
        Trouble(0.7, TroubleKind.RESTART, BROKER, 0.4),  # so one of both connections is a moment earlier there
        Trouble(1.4, TroubleKind.HALF_OPEN_BROKER, "n1"),
        Trouble(5.3, TroubleKind.RESTART, "n1", 1.4),
    )
    for seed in (0, 3, 22):
        assert run(replace(SHARED, seed=seed, troubles=troubles)).breaches == ()


def test_a_node_that_was_full_sends_what_it_holds_when_it_has_room() -> None:
    """Each look at a device while the node had no room for its command counted as one at a device that is away, so the
    next came after minutes (seed 3585).
    """
    assert run(plan_of(3585, 60)).breaches == ()


@pytest.mark.long
def test_a_session_takes_as_many_messages_as_with_the_configuration_that_we_ship() -> None:
    """The model dropped what came beyond a thousand, and the judge said that the cluster had lost it."""
    assert run(plan_of(10, 2000)).breaches == ()


@pytest.mark.parametrize("seed", [2339, 3089])
def test_who_was_cut_off_hears_of_a_death_when_it_is_back(seed: int) -> None:
    """Redis had forgotten the session of a node that died while no other was connected, so nobody adopted it."""
    assert run(plan_of(seed, 60)).breaches == ()
