"""The driver of a run that was aborted: what is open is cancelled, as far as it is to be."""

from __future__ import annotations

import pytest

from app.core.commands.command import CommandState
from app.core.fleets.run import RunState
from app.core.profiles.lanes import CommandLane
from app.store.fleets import RunChange
from tests.unit.fleets.driver_world import (
    RUN,
    Killed,
    World,
    kill,
    rounds,
    world_of,
)


async def test_what_was_never_registered_of_an_aborted_run_is_cancelled_after_a_while() -> None:
    world = await world_of(3)
    world.children.before = kill
    with pytest.raises(Killed):
        await (await world.driver()).round()
    world.children.before = lambda: None
    driver = await world.driver()
    known = await world.known()
    known.run.abort(await world.store.now(), "anna", cancel=False)
    change = RunChange(version=known.record.version, status=known.run.kept(), marks=bytes(known.run.marks))
    await world.store.fleets.write(RUN, change)
    await rounds(driver, world, 2)
    assert await world.counts() == {"handed": 3}, "another driver may register them at this moment"
    await rounds(driver, world, 12, step=1)
    assert await world.counts() == {"cancelled": 3}
    assert not world.children.sent


async def aborted(world: World, *, spares: bool = False, cancel: bool = True) -> None:
    """Have somebody abort the run, and cancel what is open."""
    known = await world.known()
    known.run.abort(await world.store.now(), "anna", cancel=cancel, spares=spares)
    change = RunChange(version=known.record.version, status=known.run.kept(), marks=bytes(known.run.marks))
    await world.store.fleets.write(RUN, change)


async def test_what_nobody_has_sent_of_an_aborted_run_is_cancelled_and_what_was_sent_is_left() -> None:
    world = await world_of(3)
    driver = await world.driver()
    await rounds(driver, world)
    sent, *_ = await world.store.held()
    await world.store.claim(sent.command_id, "node-a", "t")
    await aborted(world, cancel=False)
    await rounds(driver, world, 3)
    assert await world.counts() == {"cancelled": 2, "handed": 1}
    await aborted(world, cancel=True)
    await rounds(driver, world, 2)
    assert await world.counts() == {"cancelled": 3}, "whoever asks for it has the last word"


async def test_what_nobody_got_of_an_aborted_run_is_cancelled_when_it_is_held_again() -> None:
    world = await world_of(1)
    driver = await world.driver()
    await rounds(driver, world)
    (sent,) = await world.store.held()
    await world.store.claim(sent.command_id, "node-a", "t")
    await aborted(world, cancel=False)
    await rounds(driver, world, 3)
    await world.store.give_back(sent.command_id, "t")
    await rounds(driver, world, 12, step=1)
    assert await world.counts() == {"cancelled": 1}
    assert (await world.known()).run.state is RunState.ABORTED


async def test_what_cannot_be_read_keeps_nothing_else_from_being_cancelled() -> None:
    world = await world_of(3)
    driver = await world.driver()
    await rounds(driver, world)
    unreadable = (await world.store.held()).entries[1]
    world.unreadable = unreadable.command_id
    await aborted(world, spares=False)
    await rounds(driver, world, 3)
    assert await world.counts() == {"cancelled": 2, "handed": 1}
    await world.store.finish(unreadable.command_id, CommandState.SUCCEEDED, "node-b")
    await rounds(driver, world)
    assert (await world.known()).run.state is RunState.ABORTED


async def test_of_a_run_that_is_replaced_what_was_sent_does_not_stop_its_lane() -> None:
    world = await world_of(2)
    world.children.lane = CommandLane("mission", stops=True)
    driver = await world.driver()
    await rounds(driver, world)
    sent = (await world.store.held()).entries[0]
    await world.store.claim(sent.command_id, "node-a", "t")
    await aborted(world, spares=True)
    await rounds(driver, world, 3)
    assert await world.counts() == {"cancelled": 1, "handed": 1}
    assert (await world.store.lane_now(sent.device_id, world.children.lane)).stop is None
    await world.store.finish(sent.command_id, CommandState.SUCCEEDED, "node-a")
    await rounds(driver, world)
    assert (await world.known()).run.state is RunState.ABORTED


async def test_a_person_who_has_all_cancelled_has_the_last_word_about_what_was_spared() -> None:
    world = await world_of(1)
    world.children.lane = CommandLane("mission", stops=True)
    driver = await world.driver()
    await rounds(driver, world)
    (sent,) = await world.store.held()
    await world.store.claim(sent.command_id, "node-a", "t")
    await aborted(world, spares=True)
    await rounds(driver, world, 2)
    assert await world.counts() == {"handed": 1}
    await aborted(world, spares=False)
    await aborted(world, spares=True)
    await rounds(driver, world, 2)
    assert await world.counts() == {"cancelled": 1}
