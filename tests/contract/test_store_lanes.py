"""Lanes: what goes at once, what waits, who comes next, and that no place is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.commands.callback import Registration
from app.core.commands.command import CommandState, WaitReason
from app.core.commands.routing import Follower, MatchResult, Recorded
from app.core.errors import DeviceBusyError, TooManyHeldError
from app.core.identifiers import partition_of
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.store.commands import Finished, Registered
from app.store.holds import Claimed, LaneOccupancy, Waits
from app.store.rules import MOST_HELD_OF_LANE, superseded
from app.store.state import StateStore
from tests.contract.store_backends import MINUTE, MOMENT, Backend, answer, by_order, registration

HOUR = timedelta(hours=1)
S = CommandState
FIFO = CommandLane("flight", LaneOrder.FIFO)
LATEST = CommandLane("aim", LaneOrder.LATEST)
FIFO_ACK = CommandLane("moves", LaneOrder.FIFO_ACK)
LIFO = CommandLane("looks", LaneOrder.LIFO)
TWO = CommandLane("lamps", LaneOrder.PARALLEL, 2)


async def put(store: StateStore, wanted: Registration) -> tuple[Registration, bool]:
    """Return what was registered, and whether it waits."""
    registered = await store.register(wanted)
    assert isinstance(registered, Registered)
    (found,) = await store.get([wanted.command_id])
    assert found is not None
    assert found.lane == wanted.lane
    assert (found.state is S.HELD) == registered.held
    return wanted, registered.held


async def sent_and_waiting(store: StateStore, lane: CommandLane, count: int) -> list[Registration]:
    """Return so many commands of a lane, of which the first ones are in flight and the others wait."""
    made = [await put(store, registration(lane=lane, waits=HOUR)) for _ in range(count)]
    assert [held for _, held in made] == [i >= lane.width for i in range(count)]
    return [one for one, _ in made]


async def claimed(store: StateStore, wanted: Registration, attempt: str = "t") -> bool:
    return isinstance(await store.claim(wanted.command_id, "node-b", attempt), Claimed)


async def state_of(store: StateStore, wanted: Registration) -> CommandState:
    (found,) = await store.get([wanted.command_id])
    assert found is not None
    return found.state


async def test_a_free_lane_lets_a_command_go_at_once_and_a_taken_one_has_it_wait(store: StateStore) -> None:
    first, second = await sent_and_waiting(store, FIFO, 2)
    again = await store.register(second)  # the reply was lost
    assert isinstance(again, Registered)
    assert again.held
    (found,) = await store.get([second.command_id])
    assert found is not None
    assert found.hold is not None
    assert found.waits_for == (WaitReason.LANE,)
    assert found.hold.until == found.created_at + HOUR // timedelta(microseconds=1)
    assert [one.command_id for one in await store.held()] == [second.command_id]
    assert [one.id for one in await store.pending_of("node-a")] == [first.command_id]


async def test_lanes_devices_and_methods_without_a_lane_are_in_nobodys_way(store: StateStore) -> None:
    await sent_and_waiting(store, FIFO, 2)
    for other in (registration("dock-2", lane=FIFO, waits=HOUR), registration(lane=TWO), registration()):
        assert await put(store, other) == (other, False)


async def test_without_a_hold_a_taken_lane_refuses(store: StateStore) -> None:
    await put(store, registration(lane=FIFO))
    with pytest.raises(DeviceBusyError, match="lane flight of device dock-1 is taken"):
        await store.register(registration(lane=FIFO))
    assert list(await store.held()) == []


@pytest.mark.parametrize(
    "end",
    [
        lambda store, one: store.respond(answer(one), "node-b"),
        lambda store, one: store.respond(answer(one, S.FAILED), "node-b"),
        lambda store, one: store.finish(one.command_id, S.CANCELLED, "node-b"),
        lambda store, one: store.finish(one.command_id, S.UNSENT, "node-a"),
    ],
)
async def test_each_end_names_who_comes_next_and_frees_the_place(
    store: StateStore, end: Callable[[StateStore, Registration], Awaitable[Recorded | Finished]]
) -> None:
    first, second, third = await sent_and_waiting(store, FIFO, 3)
    waits = await store.claim(second.command_id, "node-b", "t")
    assert isinstance(waits, Waits)
    assert waits.reason is WaitReason.LANE
    ended = await end(store, first)
    assert ended.outcome is not None
    assert ended.outcome.follower == Follower(second.command_id, "dock-1")
    assert isinstance(await store.claim(third.command_id, "node-b", "t"), Waits)
    assert await claimed(store, second)
    done = await store.respond(answer(second), "node-a")
    assert done.verdict is MatchResult.WON
    assert done.outcome is not None
    assert done.outcome.follower == Follower(third.command_id, "dock-1")
    assert await claimed(store, third)
    last = await store.respond(answer(third), "node-a")
    assert last.outcome is not None
    assert last.outcome.follower is None


async def test_a_mute_head_frees_its_lane_at_its_timeout(backend: Backend, store: StateStore) -> None:
    await put(store, registration(lane=FIFO, timeout=MOMENT))
    second, _ = await put(store, registration(lane=FIFO, waits=HOUR))
    waits = await store.claim(second.command_id, "node-b", "t")
    assert isinstance(waits, Waits)
    assert waits.until < await store.now() + MINUTE // timedelta(microseconds=1)
    await backend.advance(MOMENT * 2)
    (outcome,) = await store.sweep([partition_of("dock-1")], "node-b", timedelta())
    assert (outcome.state, outcome.follower) == (S.TIMED_OUT, Follower(second.command_id, "dock-1"))
    assert await claimed(store, second)


async def test_what_ends_while_it_waits_leaves_the_line(backend: Backend, store: StateStore) -> None:
    first, second, third = await sent_and_waiting(store, FIFO, 3)
    lapses, _ = await put(store, registration(lane=FIFO, waits=MOMENT))
    last, _ = await put(store, registration(lane=FIFO, waits=HOUR))
    await store.finish(second.command_id, S.CANCELLED, "node-b")
    await backend.advance(MOMENT * 2)
    await store.sweep([partition_of("dock-1")], "node-b", timedelta())
    assert await state_of(store, lapses) is S.UNSENT
    await store.respond(answer(first), "node-b")
    for one in (third, last):
        assert await claimed(store, one)
        await store.respond(answer(one), "node-b")


async def test_a_claim_that_is_given_back_keeps_its_rank(store: StateStore) -> None:
    first, second, third = await sent_and_waiting(store, FIFO, 3)
    await store.respond(answer(first), "node-b")
    assert await claimed(store, second, "t1")
    assert await store.give_back(second.command_id, "t1")
    assert not await claimed(store, third)
    assert await claimed(store, second, "t2")


async def test_who_comes_to_a_line_stands_behind_it(store: StateStore) -> None:
    """Also while nothing is in flight, as the first one waits for its device."""
    first = registration(lane=FIFO, held=HOUR)
    assert await put(store, first) == (first, True)
    second = registration(lane=FIFO, waits=HOUR)
    assert await put(store, second) == (second, True)
    assert isinstance(await store.claim(second.command_id, "node-b", "t"), Waits)
    assert await claimed(store, first)


async def test_a_lane_is_as_wide_as_it_is_said_to_be(store: StateStore) -> None:
    first, _, third, fourth = await sent_and_waiting(store, TWO, 4)
    assert not await claimed(store, fourth)
    await store.respond(answer(first), "node-b")
    claims = await asyncio.gather(*(claimed(store, one, f"t{i}") for i, one in enumerate((fourth, third))))
    assert sorted(claims) == [False, True]


async def test_of_those_that_wait_only_the_last_one_is_sent(backend: Backend, store: StateStore) -> None:
    first, second = await sent_and_waiting(store, LATEST, 2)
    third, held = await put(store, registration(lane=LATEST, waits=HOUR, home="node-c"))
    assert held
    (replaced,) = await store.get([second.command_id])
    assert replaced is not None
    assert replaced.state is S.CANCELLED
    assert replaced.error is not None
    assert b'"superseded"' in replaced.error
    assert third.command_id.encode() in replaced.error
    assert [(node, one and one.command_id) for node, one in await backend.woken()] == [("node-a", second.command_id)]
    assert await state_of(store, first) is S.PENDING
    assert [one.command_id for one in await store.held()] == [third.command_id]
    await store.respond(answer(first), "node-b")
    assert await claimed(store, third)


async def test_a_claim_that_is_given_back_takes_no_place_of_one_that_came_later(
    backend: Backend, store: StateStore
) -> None:
    """Nobody had got it, so what was in flight waits again, where only the last one does."""
    first, _ = await put(store, registration(lane=LATEST, held=HOUR))
    assert await claimed(store, first, "t1")
    second, held = await put(store, registration(lane=LATEST, waits=HOUR))
    assert held
    assert not await store.give_back(first.command_id, "t1")
    (replaced,) = await store.get([first.command_id])
    assert replaced is not None
    assert (replaced.state, replaced.error) == (S.CANCELLED, superseded(second.command_id))
    assert first.command_id in [outcome and outcome.command_id for _, outcome in await backend.woken()]
    assert not await store.give_back(first.command_id, "t1")  # the first reply was lost
    assert [one.command_id for one in await store.held()] == [second.command_id]
    assert await store.lane_now("dock-1", LATEST) == LaneOccupancy(0, (second.command_id,))
    assert await claimed(store, second, "t2")
    assert await store.give_back(second.command_id, "t2"), "it is the last one"


async def test_who_is_refused_takes_nobodys_place(store: StateStore) -> None:
    waiting, _ = await put(store, registration(lane=LATEST, held=HOUR))
    await put(store, registration("dock-1", by_order()))
    with pytest.raises(DeviceBusyError):
        await store.register(registration("dock-1", by_order(), lane=LATEST, waits=HOUR))
    assert await state_of(store, waiting) is S.HELD


async def test_a_lane_has_so_many_that_wait_at_most(store: StateStore) -> None:
    await sent_and_waiting(store, FIFO, MOST_HELD_OF_LANE + 1)
    with pytest.raises(TooManyHeldError, match=f"or lane flight of it has {MOST_HELD_OF_LANE}"):
        await store.register(registration(lane=FIFO, waits=HOUR))
    assert (await put(store, registration(lane=TWO)))[1] is False


async def test_one_way_commands_go_through_a_lane(store: StateStore) -> None:
    wanted = registration(lane=FIFO)
    one_way = replace(wanted, expectations=())
    await store.register(one_way)
    (found,) = await store.get([one_way.command_id])
    assert found is not None
    assert found.one_way
    assert found.lane == FIFO
    second, held = await put(store, registration(lane=FIFO, waits=HOUR))
    assert held
    finished = await store.finish(one_way.command_id, S.SUCCEEDED, "node-a")
    assert finished.outcome.follower == Follower(second.command_id, "dock-1")


@pytest.mark.parametrize("end", [S.FAILED, S.TIMED_OUT])
async def test_after_an_outcome_that_is_no_success_a_lane_rests(
    backend: Backend, store: StateStore, end: CommandState
) -> None:
    lane = replace(FIFO, rest=MOMENT * 3)
    first, _ = await put(store, registration(lane=lane, retention=MOMENT))
    second, _ = await put(store, registration(lane=lane, waits=HOUR))
    if end is S.FAILED:
        await store.respond(answer(first, S.FAILED), "node-a")
    else:
        await store.finish(first.command_id, end, "node-a")
    waits = await store.claim(second.command_id, "node-b", "t")
    assert isinstance(waits, Waits)
    assert waits.until <= await store.now() + lane.rest // timedelta(microseconds=1)
    third = registration(lane=lane, waits=HOUR)
    assert await put(store, third) == (third, True)
    await backend.advance(lane.rest)
    assert await claimed(store, second)
    await store.respond(answer(second), "node-a")
    assert await claimed(store, third), "success needs no rest"


async def test_what_was_never_sent_needs_no_rest(store: StateStore) -> None:
    lane = replace(FIFO, rest=HOUR)
    waiting, _ = await put(store, registration(lane=lane, held=HOUR))
    await store.finish(waiting.command_id, S.CANCELLED, "node-a")
    assert (await put(store, registration(lane=lane)))[1] is False


async def test_nothing_is_left_of_a_lane(backend: Backend, store: StateStore) -> None:
    first = registration(lane=FIFO, retention=MOMENT)
    second = registration(lane=FIFO, retention=MOMENT, timeout=MOMENT, waits=MOMENT * 2)
    for one in (first, second):
        await store.register(one)
    await store.respond(answer(first), "node-a")
    assert await claimed(store, second, "t1")
    assert await store.give_back(second.command_id, "t1")
    await backend.advance(MOMENT * 4)
    await store.sweep([partition_of("dock-1")], "node-c", timedelta())
    await backend.advance(MOMENT * 4)
    assert await backend.size() == 0


@pytest.mark.parametrize("lane", [FIFO, FIFO_ACK, LIFO, LATEST, TWO])
async def test_who_is_in_a_lane_is_told_and_whether_it_has_room(store: StateStore, lane: CommandLane) -> None:
    assert await store.lane_now("dock-1", lane) == LaneOccupancy(0, ())
    made = await sent_and_waiting(store, lane, lane.width + 1)
    *flying, last = [one.command_id for one in made]
    assert await store.lane_now("dock-1", lane) == LaneOccupancy(lane.width, (last,))
    another, held = await put(store, registration(lane=lane, waits=HOUR))
    assert held
    waiting = (another.command_id,) if lane is LATEST else (last, another.command_id)
    assert await store.lane_now("dock-1", lane) == LaneOccupancy(lane.width, waiting)
    assert not (await store.lane_now("dock-1", lane)).has_room(lane)
    assert await store.lane_now("dock-2", lane) == LaneOccupancy(0, ())
    for one in flying:
        await store.finish(one, S.CANCELLED, "node-a")
    assert (await store.lane_now("dock-1", lane)).has_room(lane) == (not lane.order.queues), (
        "the first in line comes first"
    )
    for one in waiting:
        await store.finish(one, S.CANCELLED, "node-a")
    assert await store.lane_now("dock-1", lane) == LaneOccupancy(0, ())


async def test_a_place_at_rest_is_told_until_its_rest_is_over(backend: Backend, store: StateStore) -> None:
    lane = replace(FIFO, rest=MOMENT)
    first, _ = await put(store, registration(lane=lane))
    await store.respond(answer(first, S.FAILED), "node-a")
    assert not (await store.lane_now("dock-1", lane)).has_room(lane)
    await backend.advance(lane.rest)
    assert (await store.lane_now("dock-1", lane)).has_room(lane)


async def test_the_last_one_that_came_is_the_next_one_of_a_lifo_lane(store: StateStore) -> None:
    first, second, third = await sent_and_waiting(store, LIFO, 3)
    ended = await store.respond(answer(first), "node-b")
    assert ended.outcome is not None
    assert ended.outcome.follower == Follower(third.command_id, "dock-1")
    assert not await claimed(store, second)
    fourth, held = await put(store, registration(lane=LIFO, waits=HOUR))  # the lane has room, whoever waits
    assert not held
    await store.respond(answer(fourth), "node-b")
    assert not await claimed(store, second)
    assert await claimed(store, third)
    last = await store.respond(answer(third), "node-b")
    assert last.outcome is not None
    assert last.outcome.follower == Follower(second.command_id, "dock-1")
    assert await claimed(store, second)


async def test_several_are_in_flight_in_a_wide_lifo_lane_newest_first(store: StateStore) -> None:
    made = await sent_and_waiting(store, replace(LIFO, width=2), 5)
    for one in made[:2]:
        await store.respond(answer(one), "node-b")
    assert [await claimed(store, one, str(i)) for i, one in enumerate(made[2:])] == [False, False, True]
    assert [await claimed(store, one, f"again-{i}") for i, one in enumerate(made[2:4])] == [False, True]
    assert not await claimed(store, made[2], "full")


async def test_the_next_one_of_a_fifo_ack_lane_goes_as_soon_as_the_broker_has_the_one_before_it(
    store: StateStore,
) -> None:
    first, second, third = await sent_and_waiting(store, FIFO_ACK, 3)
    assert not await claimed(store, second, "early")
    next_one = Follower(second.command_id, "dock-1")
    assert [await store.pass_on(first.command_id) for _ in range(2)] == [next_one, next_one]
    assert await state_of(store, first) is S.ACKNOWLEDGED
    assert not await claimed(store, third)
    assert await claimed(store, second)
    assert not await claimed(store, third, "early")
    ended = await store.respond(answer(second), "node-b")  # the answer was quicker than the PUBACK
    assert ended.outcome is not None
    assert ended.outcome.follower == Follower(third.command_id, "dock-1")
    assert await claimed(store, third)
    await store.respond(answer(third, S.RUNNING), "node-b")
    assert await store.pass_on(third.command_id) is None
    assert await state_of(store, third) is S.RUNNING
    _, held = await put(store, registration(lane=FIFO_ACK))
    assert not held
    assert (await store.respond(answer(first), "node-b")).verdict is MatchResult.WON


async def test_only_a_fifo_ack_lane_is_passed_on(store: StateStore) -> None:
    for lane in (FIFO, LIFO, LATEST):
        first, second = await sent_and_waiting(store, lane, 2)
        assert await store.pass_on(first.command_id) is None
        assert not await claimed(store, second)
    head, held = await sent_and_waiting(store, FIFO_ACK, 2)
    assert await store.pass_on(held.command_id) is None
    assert await state_of(store, held) is S.HELD
    assert await state_of(store, head) is S.PENDING
    plain, _ = await put(store, registration())
    assert await store.pass_on(plain.command_id) is None
    assert await store.pass_on("239-01JD0000000000000000000000") is None
