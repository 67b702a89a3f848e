"""Targets whose command finds no room: they are tried again, less and less often, and not after the run's time."""

from __future__ import annotations

from app.core.errors import TooManyHeldError
from app.core.fleets.run import RunState
from tests.unit.fleets.driver_world import cancelled, rounds, world_of


def full() -> None:
    raise TooManyHeldError("device dock-0 has 100 held commands")


def with_room() -> None:
    """There is room again."""


async def test_a_device_without_room_is_tried_again_less_and_less_often() -> None:
    world = await world_of(1)
    world.children.before = full
    driver = await world.driver()
    await rounds(driver, world, 4 * 60)
    assert 3 <= world.children.asked["dock-0"] <= 6, "in a minute, at first after two seconds"
    assert world.counters["fleet.again"] == world.children.asked["dock-0"]
    world.children.before = with_room
    await rounds(driver, world, 4 * 61)
    assert world.children.sent["dock-0"] == 1


async def test_a_command_without_room_is_not_sent_after_the_time_of_its_run() -> None:
    world = await world_of(3, lasts=5, in_flight=2)
    world.children.before = full
    driver = await world.driver()
    await rounds(driver, world, 6, step=1)
    assert await world.counts() == {"handed": 2, "skipped": 1}
    world.children.before = with_room
    assert await rounds(driver, world, 13, step=1) is None
    assert not world.children.sent
    assert await world.counts() == {"skipped": 3}
    assert (await world.known()).run.state is RunState.LAPSED


async def test_what_was_registered_in_time_ends_as_it_does() -> None:
    world = await world_of(1, lasts=5)
    driver = await world.driver()
    await rounds(driver, world, 30, step=1)
    assert await world.counts() == {"handed": 1}
    await world.answer(cancelled)
    await rounds(driver, world)
    assert await world.counts() == {"cancelled": 1}


async def test_a_driver_that_comes_after_the_time_of_the_run_sends_nothing() -> None:
    """The one before it had marked a target and died, so nothing is on record for it."""
    world = await world_of(1, lasts=5)
    world.children.before = full
    await rounds(await world.driver(), world)
    world.children.before = with_room
    world.clock.now += 60
    assert await rounds(await world.driver(), world, 12, step=1) is None
    assert not world.children.sent
    assert await world.counts() == {"skipped": 1}
