"""Lanes that keep a pace, exclude others, or stand after a failure: what they let go, and when."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from app.core import keys
from app.core.commands.callback import Registration
from app.core.commands.command import CommandState, WaitReason
from app.core.commands.routing import Follower
from app.core.errors import DeviceBusyError
from app.core.identifiers import partition_of
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.store.commands import Registered
from app.store.holds import Claimed, LaneOccupancy, LaneStop, Waits
from app.store.redis.commands import records
from app.store.rules import WITHOUT_END, micros
from app.store.state import StateStore
from tests.contract.store_backends import MINUTE, MOMENT, Backend, RedisBackend, answer, registration

HOUR = timedelta(hours=1)
S = CommandState
PACE = MOMENT * 3
PACED = CommandLane("lamps", LaneOrder.PARALLEL, 5, pace=PACE)
FLIGHT = CommandLane("flight", LaneOrder.FIFO, excludes=("maintenance",), excluded_by=("maintenance",))
MAINTENANCE = CommandLane("maintenance", LaneOrder.FIFO, excludes=("flight",), excluded_by=("flight",))
STRICT = CommandLane("mission", LaneOrder.FIFO, stops=True)


async def put(
    store: StateStore,
    lane: CommandLane,
    *,
    waits: timedelta = HOUR,
    held: timedelta | None = None,
    approval: timedelta | None = None,
) -> tuple[Registration, bool]:
    """Return what was registered, and whether it waits."""
    wanted = registration(lane=lane, waits=waits, held=held, approval=approval)
    registered = await store.register(wanted)
    assert isinstance(registered, Registered)
    (found,) = await store.get([wanted.command_id])
    assert found is not None
    assert found.lane == lane, "a command on record has its lane, with all that it says"
    return wanted, registered.held


def mark_of(lane: CommandLane) -> str:
    """Return the key in Redis that says when something left through a lane."""
    return f"{keys.held(partition_of('dock-1'))}:{records.topic_digest(lane.topic('dock-1'))}:sent"


async def let_go(store: StateStore, wanted: Registration, attempt: str = "t") -> bool:
    return isinstance(await store.claim(wanted.command_id, "node-b", attempt), Claimed)


async def until(store: StateStore, wanted: Registration) -> int:
    """Return until when a command waits for its lane."""
    waits = await store.claim(wanted.command_id, "node-b", "t")
    assert isinstance(waits, Waits)
    assert waits.reason is WaitReason.LANE
    return waits.until


async def test_between_two_that_are_sent_lies_the_pace_whatever_becomes_of_them(
    backend: Backend, store: StateStore
) -> None:
    first, held = await put(store, PACED)
    assert not held
    second, held = await put(store, PACED)
    assert held
    assert await until(store, second) <= await store.now() + micros(PACE)
    await store.respond(answer(first), "node-b")
    assert not await let_go(store, second), "an outcome is no reason to be quicker"
    await backend.advance(PACE)
    assert await let_go(store, second)
    third, held = await put(store, PACED)
    assert held
    await backend.advance(PACE)
    assert await let_go(store, third)


async def test_of_several_claims_at_once_a_pace_lets_one_through(backend: Backend, store: StateStore) -> None:
    lane = replace(PACED, pace=MINUTE)
    await put(store, lane)
    paces = (timedelta(milliseconds=1), MINUTE, MINUTE, MINUTE)
    waiting = [(await put(store, replace(lane, pace=one), held=HOUR))[0] for one in paces]
    await backend.advance(MOMENT)
    claims = await asyncio.gather(*(let_go(store, one, f"t{i}") for i, one in enumerate(waiting)))
    assert claims == [True, False, False, False], "each goes by the pace that it was registered with"


async def test_a_pace_without_a_hold_refuses(store: StateStore) -> None:
    await put(store, replace(PACED, pace=MINUTE))
    with pytest.raises(DeviceBusyError, match="lane lamps of device dock-1 is taken"):
        await store.register(registration(lane=replace(PACED, pace=MINUTE)))
    assert (await put(store, CommandLane("others")))[1] is False


async def test_a_claim_that_is_given_back_counts_for_the_pace(store: StateStore) -> None:
    held, _ = await put(store, replace(PACED, pace=MINUTE), held=HOUR)
    assert await let_go(store, held, "t1")
    assert await store.give_back(held.command_id, "t1")
    assert not await let_go(store, held, "t2")


async def test_a_clock_that_is_set_back_delays_nobody_longer_than_the_pace(backend: Backend, store: StateStore) -> None:
    if not isinstance(backend, RedisBackend):
        pytest.skip("the clock of the others does not jump")
    await put(store, PACED)
    second, _ = await put(store, PACED)
    mark = mark_of(PACED)
    async with Redis.from_url(backend.node_url) as client:
        await client.set(mark, await store.now() + micros(HOUR))
    assert await until(store, second) <= await store.now() + micros(PACE)
    await backend.advance(PACE)
    assert await let_go(store, second)


async def test_nothing_is_sent_while_an_excluded_lane_has_something_in_flight(store: StateStore) -> None:
    flying, held = await put(store, FLIGHT)
    assert not held
    service, held = await put(store, MAINTENANCE)
    assert held
    assert await until(store, service) < await store.now() + micros(MINUTE * 2)
    assert await store.lane_now("dock-1", MAINTENANCE) == LaneOccupancy(
        0, (service.command_id,), until=await until(store, service)
    )
    ended = await store.respond(answer(flying), "node-b")
    assert ended.outcome is not None
    assert ended.outcome.follower == Follower(service.command_id, "dock-1"), "who waits for this lane is told"
    assert await let_go(store, service)
    assert (await put(store, FLIGHT))[1] is True


async def test_two_lanes_that_exclude_each_other_take_turns(store: StateStore) -> None:
    """Only what is in flight keeps others back, and not who waits: so nobody waits for ever."""
    current, held = await put(store, FLIGHT)
    assert not held
    lines = [[await put(store, lane) for _ in range(3)] for lane in (FLIGHT, MAINTENANCE)]
    assert all(held for line in lines for _, held in line)
    left = {one.command_id: one for line in lines for one, _ in line}
    for _ in range(6):
        await store.respond(answer(current), "node-b")
        tried = [one for one in left.values() if await let_go(store, one, one.command_id)]
        assert len(tried) == 1
        current = left.pop(tried[0].command_id)
    assert not left


async def test_a_lane_that_excludes_one_side_alone_keeps_that_one_back_alone(store: StateStore) -> None:
    calm = CommandLane("calm", excludes=("loud",))
    loud = CommandLane("loud", excluded_by=("calm",))
    await put(store, calm)
    noise, held = await put(store, loud)
    assert not held
    quiet, held = await put(store, replace(calm, width=2))
    assert held
    await store.respond(answer(noise), "node-b")
    assert await let_go(store, quiet)


async def test_a_rest_of_an_excluded_lane_counts_as_in_flight(backend: Backend, store: StateStore) -> None:
    flying, _ = await put(store, replace(FLIGHT, rest=PACE))
    service, _ = await put(store, MAINTENANCE)
    await store.respond(answer(flying, S.FAILED), "node-b")
    assert not await let_go(store, service)
    await backend.advance(PACE)
    assert await let_go(store, service)


@pytest.mark.parametrize("end", [S.FAILED, S.TIMED_OUT, S.CANCELLED])
async def test_after_a_failure_the_rest_waits_for_a_person(store: StateStore, end: CommandState) -> None:
    first, _ = await put(store, STRICT)
    second, third = [(await put(store, STRICT))[0] for _ in range(2)]
    if end is S.FAILED:
        ended = (await store.respond(answer(first, S.FAILED), "node-b")).outcome
    else:
        ended = (await store.finish(first.command_id, end, "node-b")).outcome
    assert ended is not None
    assert ended.follower is None, "nobody is to look at it"
    assert await until(store, second) == WITHOUT_END
    _, held = await put(store, STRICT)
    assert held, "who comes later waits as well"
    seen = await store.lane_now("dock-1", STRICT)
    assert (seen.in_flight, seen.has_room(STRICT)) == (0, False)
    assert seen.stop == LaneStop(ended.finished_at, first.command_id)
    unknown = await store.resume("dock-1", "mission", second.command_id)
    assert (unknown.stop, unknown.follower) == (None, None), "another command stops it than the one that was judged"
    assert (await store.lane_now("dock-1", STRICT)).stop == seen.stop
    resumed = await store.resume("dock-1", "mission", first.command_id)
    assert (resumed.stop, resumed.follower) == (seen.stop, Follower(second.command_id, "dock-1"))
    assert await let_go(store, second)
    assert not await let_go(store, third), "order is kept"
    again = await store.resume("dock-1", "mission", first.command_id)
    assert (again.stop, again.follower) == (None, None)


async def test_a_lane_is_stopped_once_and_by_the_first_failure(store: StateStore) -> None:
    wide = replace(STRICT, order=LaneOrder.PARALLEL, width=3)
    first, second, third = [(await put(store, wide))[0] for _ in range(3)]
    await store.respond(answer(second, S.FAILED), "node-b")
    await store.respond(answer(first, S.FAILED), "node-b")
    await store.respond(answer(third), "node-b")
    stop = (await store.lane_now("dock-1", wide)).stop
    assert stop is not None
    assert stop.command_id == second.command_id


async def test_a_lane_that_stands_while_its_head_is_in_flight_takes_the_answer(store: StateStore) -> None:
    wide = replace(STRICT, order=LaneOrder.PARALLEL, width=2)
    failing, flying = [(await put(store, wide))[0] for _ in range(2)]
    await store.respond(answer(failing, S.FAILED), "node-b")
    won = await store.respond(answer(flying), "node-b")
    assert won.outcome is not None
    assert won.outcome.state is S.SUCCEEDED
    assert (await store.lane_now("dock-1", wide)).stop is not None


async def test_what_a_person_cancels_in_line_stops_nothing_and_what_lapses_there_does(
    backend: Backend, store: StateStore
) -> None:
    first, _ = await put(store, STRICT)
    unwanted, _ = await put(store, STRICT)
    await store.finish(unwanted.command_id, S.CANCELLED, "node-a")
    assert (await store.lane_now("dock-1", STRICT)).stop is None
    lapses, _ = await put(store, STRICT, waits=MOMENT)
    await backend.advance(MOMENT * 2)
    await store.sweep([partition_of("dock-1")], "node-a", timedelta())
    stop = (await store.lane_now("dock-1", STRICT)).stop
    assert stop is not None
    assert stop.command_id == lapses.command_id, "a step is missing"
    await store.respond(answer(first), "node-b")


async def test_what_was_refused_at_once_stops_nothing(store: StateStore) -> None:
    """Its caller was told, and nothing was in between."""
    refused, _ = await put(store, STRICT)
    await store.finish(refused.command_id, S.UNSENT, "node-a")
    assert (await put(store, STRICT))[1] is False


async def test_what_a_second_person_left_undecided_stops_nothing(backend: Backend, store: StateStore) -> None:
    await put(store, STRICT, held=HOUR, approval=MOMENT)
    await backend.advance(MOMENT * 2)
    await store.sweep([partition_of("dock-1")], "node-a", timedelta())
    assert (await store.lane_now("dock-1", STRICT)).stop is None


async def test_a_profile_that_stops_no_more_lets_what_comes_later_go(store: StateStore) -> None:
    first, _ = await put(store, replace(STRICT, order=LaneOrder.PARALLEL))
    await store.respond(answer(first, S.FAILED), "node-b")
    assert (await put(store, replace(STRICT, order=LaneOrder.PARALLEL, stops=False)))[1] is False
    resumed = await store.resume("dock-1", "mission", first.command_id)
    assert resumed.stop is not None
    assert resumed.follower is None


async def test_nothing_is_left_of_their_marks(backend: Backend, store: StateStore) -> None:
    first = registration(lane=replace(STRICT, pace=MOMENT), retention=MOMENT)
    await store.register(first)
    await store.respond(answer(first, S.FAILED), "node-a")
    await store.resume("dock-1", "mission", first.command_id)
    if isinstance(backend, RedisBackend):
        async with Redis.from_url(backend.node_url) as client:
            mark = mark_of(first.lane or STRICT)
            assert 0 < await client.pttl(mark) <= micros(MINUTE) // 1000
            await client.delete(mark)
        await backend.advance(MOMENT * 4)
    else:
        await backend.advance(MINUTE + MOMENT * 4)
    await store.sweep([partition_of("dock-1")], "node-c", timedelta())
    assert await backend.size() == 0
