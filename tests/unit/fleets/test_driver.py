"""The driver of a run, killed at every step: each target gets one command, and the run ends with the right counts."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from app.core.commands.command import CommandState
from app.core.errors import StoreUnavailableError
from app.core.fleets.marks import TargetMark
from app.core.fleets.run import RunState
from app.fleets.driver import BUSY_SECONDS
from app.fleets.turns import LOOKS
from app.store.fleets import KEPT, RunChange
from tests.contract.store_backends import ManualClock
from tests.unit.fleets.driver_world import (
    HOUR,
    RETENTION,
    Killed,
    World,
    cancelled,
    kill,
    rounds,
    window_of,
    world_of,
)


async def test_a_driver_that_dies_between_mark_and_registration_leaves_it_to_the_next() -> None:
    world = await world_of(5)
    world.children.before = kill
    with pytest.raises(Killed):
        await (await world.driver()).round()
    assert await world.counts() == {"handed": 5}
    assert not world.children.sent
    world.children.before = lambda: None
    await rounds(await world.driver(), world)
    assert world.children.sent == Counter({f"dock-{index}": 1 for index in range(5)})


async def test_a_driver_that_was_replaced_hands_nothing_out() -> None:
    world = await world_of(5, in_flight=2)
    first = await world.driver()
    await rounds(first, world)
    second = await world.driver()
    await world.answer(cancelled)
    assert await first.round() is None, "its write was refused"
    assert await world.counts() == {"handed": 2, "waiting": 3}
    world.clock.now += 1
    assert await first.round() is None, "it has lost its lease"
    await rounds(second, world)
    assert await world.counts() == {"cancelled": 2, "handed": 2, "waiting": 1}
    assert sum(world.children.sent.values()) == 4


async def test_what_is_held_already_is_registered_again_once_by_the_next_driver() -> None:
    """The node that registered it may have died before it told others that it waits."""
    world = await world_of(4)
    await rounds(await world.driver(), world)
    await rounds(await world.driver(), world, 3)
    assert world.children.asked == Counter({f"dock-{index}": 2 for index in range(4)})
    assert world.children.sent == Counter({f"dock-{index}": 1 for index in range(4)})


async def test_a_store_that_says_nothing_is_asked_again_and_nobody_gets_two() -> None:
    world = await world_of(8)
    random = Random(1)
    driver = await world.driver()
    world.children.fails = lambda: random.random() < 0.7
    await rounds(driver, world, 20)
    assert world.children.sent == Counter({f"dock-{index}": 1 for index in range(8)})
    assert world.counters["fleet.again"] > 0


async def test_when_nobody_drove_for_long_a_missing_command_is_unknown_and_never_sent_again() -> None:
    world = await world_of(3)
    await rounds(await world.driver(), world)
    await world.answer(cancelled)
    world.clock.now += 2 * RETENTION.total_seconds()
    await rounds(await world.driver(), world, 2)
    assert await world.counts() == {"unknown": 3}
    assert sum(world.children.sent.values()) == 3
    assert (await world.known()).run.state is RunState.FAILED


async def test_those_that_are_away_take_no_place_and_are_given_up_after_their_hold() -> None:
    world = await world_of(6, in_flight=2, hold=timedelta(seconds=30))
    world.away = {f"dock-{index}" for index in range(4)}
    driver = await world.driver()
    await rounds(driver, world)
    assert set(world.children.sent) == {"dock-4", "dock-5"}
    world.away = {"dock-0"}
    await world.answer(cancelled)
    await rounds(driver, world, 4, step=1)
    assert set(world.children.sent) == {"dock-4", "dock-5", "dock-1", "dock-2"}
    await world.answer(cancelled)
    await rounds(driver, world, 32, step=1)
    assert await world.counts() == {"cancelled": 4, "handed": 1, "unreachable": 1}


async def test_what_is_handed_out_is_held_no_longer_than_its_window_is_open() -> None:
    windows = [window_of(ManualClock(), 0, 5), window_of(ManualClock(), 60, 65)]
    world = await world_of(4, in_flight=2, further={"windows": windows})
    driver = await world.driver()
    await rounds(driver, world)
    held = (await world.store.held()).entries
    assert len(held) == 2
    closes = world.clock.wall() - world.clock.wall() % 60 + 300
    assert all(one.until <= closes * 1_000_000 for one in held)
    world.clock.now = world.clock.now + closes - world.clock.wall() + 0.5
    await world.answer(cancelled)
    await rounds(await world.driver(), world, 3)
    assert await world.counts() == {"cancelled": 2, "waiting": 2}
    assert (await world.known()).run.state is RunState.WAITING
    world.clock.now += 55 * 60
    await rounds(await world.driver(), world, 2)
    assert await world.counts() == {"cancelled": 2, "handed": 2}


async def test_of_one_value_of_a_label_so_many_are_in_flight_at_most() -> None:
    per = {"per": [{"label": "site", "most": 2}]}
    world = await world_of(20, further=per, labels=lambda index: ["north" if index < 10 else "south"])
    driver = await world.driver()
    seen = 0
    while await rounds(driver, world) is not None:
        flying = [int(one.device_id.partition("-")[2]) for one in await world.store.held()]
        assert sum(one < 10 for one in flying) <= 2
        assert sum(one >= 10 for one in flying) <= 2
        seen = max(seen, len(flying))
        await world.answer(cancelled)
    assert seen == 4
    assert await world.counts() == {"cancelled": 20}


@pytest.mark.parametrize("seed", range(8))
async def test_killed_again_and_again_it_ends_with_one_command_for_each(seed: int) -> None:
    """S20 in small: a driver dies at a random call, and whoever comes next goes on."""
    random = Random(seed)
    total = 60
    world = await world_of(total, waves=[5, "20%"], in_flight=random.randint(3, 20))
    dies = 0.03 + random.random() * 0.15

    def maybe_die() -> None:
        if random.random() < dies:
            raise Killed

    world.children.before = world.children.after = maybe_die
    world.children.fails = lambda: random.random() < 0.1
    ends = {f"dock-{index}": random.choice([CommandState.CANCELLED, CommandState.UNSENT]) for index in range(total)}
    driver, deaths = await world.driver(), 0
    for _ in range(3_000):
        try:
            if await rounds(driver, world) is None:
                break
        except Killed:
            deaths += 1
            driver = await world.driver()
        except StoreUnavailableError:
            continue
        await world.answer(lambda device: ends[device] if random.random() < 0.5 else None)
        most = world.spec.in_flight
        assert (await world.counts()).get("handed", 0) <= most
    assert deaths > 0
    assert world.children.sent == Counter({f"dock-{index}": 1 for index in range(total)})
    told = Counter(TargetMark[one.name].word for one in ends.values())
    assert await world.counts() == dict(told)
    assert (await world.known()).run.state is RunState.FAILED


async def test_a_driver_goes_on_at_once_while_more_have_their_turn_and_rests_when_no_more_fit() -> None:
    world = World(3 * LOOKS, in_flight=2 * LOOKS)
    await world.create()
    driver = await world.driver()
    assert [await driver.round() for _ in range(3)] == [0, BUSY_SECONDS, BUSY_SECONDS]
    assert world.children.sent.total() == 2 * LOOKS


async def test_a_driver_does_not_hurry_from_one_that_is_away_to_the_next() -> None:
    world = World(3 * LOOKS, in_flight=2 * LOOKS)
    world.away = {f"dock-{index}" for index in range(10, 3 * LOOKS)}
    await world.create()
    assert await (await world.driver()).round() == BUSY_SECONDS
    assert world.children.sent.total() == 10


async def test_who_stays_away_is_given_up_once_whatever_a_person_changes_in_that_moment() -> None:
    """A round that somebody has overtaken is done again, and its hold does not begin again."""
    world = await world_of(1, hold=timedelta(seconds=5))
    world.away = {"dock-0"}
    driver = await world.driver()
    await rounds(driver, world, 6, step=1)
    known = await world.known()
    world.meanwhile = RunChange(version=known.record.version, status=known.run.kept(), marks=bytes(known.run.marks))
    await rounds(driver, world, 3, step=1)
    assert world.meanwhile is None
    assert await world.counts() == {"unreachable": 1}


async def test_a_driver_of_a_run_that_is_gone_takes_it_off_the_list() -> None:
    world = await world_of(1)
    driver = await world.driver()
    world.clock.now += (KEPT + 30 * HOUR).total_seconds()
    assert await driver.round() is None
    assert list(await world.store.fleets.open_runs()) == []


async def test_thousands_that_are_away_keep_nobody_from_their_turn_and_get_theirs_when_they_are_back() -> None:
    world = await world_of(10 * LOOKS)
    world.away = {f"dock-{index}" for index in range(8 * LOOKS)}
    driver = await world.driver()
    for _ in range(30):
        await rounds(driver, world, step=1)
        await world.answer(cancelled)
    assert await world.counts() == {"cancelled": 2 * LOOKS, "waiting": 8 * LOOKS}
    world.away = set()
    for _ in range(30):
        await rounds(driver, world, step=1)
        await world.answer(cancelled)
    assert world.children.sent == Counter({f"dock-{index}": 1 for index in range(10 * LOOKS)})


async def test_those_that_are_back_have_their_turn_although_many_have_not_had_theirs() -> None:
    world = await world_of(10 * LOOKS, in_flight=10)
    world.away = {f"dock-{index}" for index in range(20)}
    driver = await world.driver()
    await rounds(driver, world)
    world.away = set()
    for _ in range(12):
        await world.answer(cancelled)
        await rounds(driver, world)
    assert {f"dock-{index}" for index in range(20)} <= set(world.children.sent)
    assert len(world.children.sent) < 10 * LOOKS


async def test_those_that_are_away_take_no_room_of_others_with_their_label() -> None:
    per = {"per": [{"label": "site", "most": 2}]}
    world = await world_of(30, further=per, labels=lambda _: ["north"])
    world.away = {f"dock-{index}" for index in range(20)}
    driver = await world.driver()
    for _ in range(40):
        await rounds(driver, world, step=1)
        assert len((await world.store.held()).entries) <= 2
        await world.answer(cancelled)
    assert await world.counts() == {"cancelled": 10, "waiting": 20}


@pytest.mark.parametrize("seconds", [-3600, 3600])
async def test_who_is_away_is_waited_for_as_long_whatever_the_clock_is_set_to(seconds: int) -> None:
    world = await world_of(2, hold=timedelta(seconds=30))
    world.away = {"dock-0"}
    driver = await world.driver()
    await rounds(driver, world, 10, step=1)
    world.clock.ahead += seconds
    await rounds(driver, world, 18, step=1)
    assert await world.counts() == {"handed": 1, "waiting": 1}
    await rounds(driver, world, 4, step=1)
    assert await world.counts() == {"handed": 1, "unreachable": 1}


async def test_nothing_is_sent_again_after_long_by_who_believes_a_clock_that_was_set_back_before() -> None:
    world = await world_of(3)
    world.clock.ahead = RETENTION.total_seconds()
    driver = await world.driver()
    await rounds(driver, world, 4)
    world.clock.ahead = 0.0
    await rounds(driver, world, 4)
    await world.answer(cancelled)
    world.clock.now += 1.2 * RETENTION.total_seconds()
    await rounds(await world.driver(), world, 2)
    assert sum(world.children.sent.values()) == 3
    assert await world.counts() == {"unknown": 3}


async def test_a_run_that_stops_by_itself_is_counted_once_and_one_that_a_person_stops_is_not() -> None:
    world = await world_of(4, in_flight=1, stop=[{"of": ["cancelled"], "count": 2, "then": "pause"}])
    driver = await world.driver()
    for _ in range(6):
        await rounds(driver, world)
        await world.answer(cancelled)
    known = await world.known()
    assert known.run.state is RunState.PAUSED
    known.run.abort(1, "ben", cancel=True)
    change = RunChange(version=known.record.version, status=known.run.kept(), marks=bytes(known.run.marks))
    await world.store.fleets.write(known.record.run_id, change)
    await rounds(driver, world, 4)
    counted = {name: count for name, count in world.counters.items() if name.startswith("fleet.stopped")}
    assert counted == {"fleet.stopped.rule": 1}
