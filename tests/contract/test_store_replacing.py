"""Commands that name a key: of those that wait with it at a device the last one stays, and what was sent goes on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.commands.approval import ApprovalDecision
from app.core.commands.callback import Registration
from app.core.commands.command import CommandState
from app.core.errors import IdempotencyMismatchError, TooManyHeldError
from app.core.identifiers import partition_of
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.core.webhooks.deliveries import OutboxEntry, Tidings
from app.store.commands import Joined, Registered
from app.store.holds import Claimed, LaneOccupancy
from app.store.rules import MOST_HELD, MOST_HELD_OF_LANE, replaced
from app.store.state import StateStore
from tests.contract.store_backends import MINUTE, MOMENT, Backend, answer, registration

HOUR = timedelta(hours=1)
S = CommandState
FIFO = CommandLane("flight", LaneOrder.FIFO)
STOPS = CommandLane("steps", LaneOrder.FIFO, stops=True)
YES = ApprovalDecision(approves=True, who="", name="anna")


async def held(store: StateStore, **more: object) -> Registration:
    """Register a command that waits, with the key of all others here unless it says otherwise."""
    wanted = registration(**{"held": HOUR, "replaces": "cover", **more})  # type: ignore[arg-type]
    registered = await store.register(wanted)
    assert isinstance(registered, Registered)
    assert registered.held
    return wanted


async def claim(store: StateStore, wanted: Registration) -> None:
    assert isinstance(await store.claim(wanted.command_id, "node-b", "t"), Claimed)


async def states(store: StateStore, *wanted: Registration) -> list[CommandState]:
    return [(await store.read(one.command_id)).state for one in wanted]


async def test_a_later_one_takes_the_place_of_what_waits_with_its_key(backend: Backend, store: StateStore) -> None:
    first = await held(store, key="k", fingerprint="f", home="node-c")
    kept = (await store.read(first.command_id)).hold
    assert kept is not None
    assert kept.replaces == "cover"
    second = await held(store)
    gone = await store.read(first.command_id)
    assert (gone.state, gone.error) == (S.CANCELLED, replaced(second.command_id))
    assert [one.command_id for one in await store.held()] == [second.command_id]
    assert [(node, outcome and outcome.command_id) for node, outcome in await backend.woken()] == [
        ("node-c", first.command_id)
    ]
    assert await store.claim(first.command_id, "node-b", "t") is None
    again = await store.register(registration(held=HOUR, replaces="cover", key="k", fingerprint="f"))
    assert isinstance(again, Joined), "its idempotency key stays"
    assert await states(store, second) == [S.HELD], "and who repeats the call replaces nobody"
    with pytest.raises(IdempotencyMismatchError):
        await store.register(registration(held=HOUR, replaces="lamp", key="k", fingerprint="g"))


async def test_the_run_of_a_command_is_kept(store: StateStore) -> None:
    for wanted in (await held(store, run="run-7"), await held(store, run="run-7", replaces="", lane=FIFO)):
        kept = (await store.read(wanted.command_id)).hold
        assert kept is not None
        assert kept.run == "run-7"
        await claim(store, wanted)
        assert await store.give_back(wanted.command_id, "t")
        assert (await store.read(wanted.command_id)).hold == replace(
            kept, claims=1, given_back_at=(await given_back_at(store, wanted))
        )


async def given_back_at(store: StateStore, wanted: Registration) -> int | None:
    hold = (await store.read(wanted.command_id)).hold
    return None if hold is None else hold.given_back_at


async def test_other_keys_devices_and_commands_without_one_stay(store: StateStore) -> None:
    others = [
        await held(store, replaces="lamp"),
        await held(store, replaces=""),
        await held(store, replaces="Cover"),
        await held(store, device="dock-2"),
        await held(store, device="ock-1"),
    ]
    await held(store)
    assert await states(store, *others) == [S.HELD] * len(others)
    plain = registration()
    await store.register(plain)
    assert await states(store, *others, plain) == [S.HELD] * len(others) + [S.PENDING]


async def test_repeating_the_step_replaces_nothing_once_more(store: StateStore) -> None:
    first = await held(store)
    second = await held(store)
    assert isinstance(await store.register(first), Registered)  # its reply was lost
    assert await states(store, first, second) == [S.CANCELLED, S.HELD]


async def test_what_was_sent_goes_on(store: StateStore) -> None:
    first = await held(store)
    await claim(store, first)
    second = await held(store)
    assert await states(store, first, second) == [S.PENDING, S.HELD]
    await store.respond(answer(first), "node-a")
    assert await states(store, first, second) == [S.SUCCEEDED, S.HELD]


async def test_a_claim_that_is_undone_makes_way_for_a_later_one(backend: Backend, store: StateStore) -> None:
    first = await held(store, home="node-c")
    await claim(store, first)
    second = await held(store)
    await backend.woken()
    assert not await store.give_back(first.command_id, "t")
    gone = await store.read(first.command_id)
    assert (gone.state, gone.error) == (S.CANCELLED, replaced(second.command_id))
    assert sorted(node for node, _ in await backend.woken()) == ["node-b", "node-c"]
    assert [one.command_id for one in await store.held()] == [second.command_id]


async def test_of_two_claims_that_are_undone_the_later_command_stays(store: StateStore) -> None:
    first = await held(store)
    await claim(store, first)
    second = await held(store)
    await claim(store, second)
    assert await store.give_back(first.command_id, "t")
    assert await store.give_back(second.command_id, "t")
    assert await states(store, first, second) == [S.CANCELLED, S.HELD]
    assert (await store.read(first.command_id)).error == replaced(second.command_id)


async def test_one_that_needs_a_second_person_replaces_others_once_it_is_approved(store: StateStore) -> None:
    first = await held(store)
    second = await held(store, approval=MINUTE)
    assert await states(store, first, second) == [S.HELD, S.HELD]
    assert (await store.decide(second.command_id, YES, "node-b")).won
    assert await states(store, first, second) == [S.CANCELLED, S.HELD]


async def test_a_refused_one_replaces_nobody(store: StateStore) -> None:
    first = await held(store)
    second = await held(store, approval=MINUTE)
    assert (await store.decide(second.command_id, replace(YES, approves=False), "node-b")).won
    assert await states(store, first, second) == [S.HELD, S.CANCELLED]


async def test_one_that_nobody_has_approved_yet_is_replaced_as_well(store: StateStore) -> None:
    first = await held(store, approval=MINUTE)
    second = await held(store)
    assert await states(store, first, second) == [S.CANCELLED, S.HELD]
    assert not (await store.decide(first.command_id, YES, "node-b")).won


async def test_of_two_that_need_approval_the_later_one_replaces_the_other_whoever_is_approved_first(
    store: StateStore,
) -> None:
    first, second = await held(store, approval=MINUTE), await held(store, approval=MINUTE)
    await store.decide(first.command_id, YES, "node-b")
    assert await states(store, first, second) == [S.HELD, S.HELD]
    await store.decide(second.command_id, YES, "node-b")
    assert await states(store, first, second) == [S.CANCELLED, S.HELD]
    third, fourth = await held(store, approval=MINUTE), await held(store, approval=MINUTE)
    await store.decide(fourth.command_id, YES, "node-b")
    assert await states(store, second, third, fourth) == [S.CANCELLED, S.CANCELLED, S.HELD]


async def test_a_claim_undone_beside_one_that_nobody_has_approved_is_held_again(store: StateStore) -> None:
    first = await held(store)
    await claim(store, first)
    second = await held(store, approval=MINUTE)
    assert await store.give_back(first.command_id, "t")
    assert await states(store, first, second) == [S.HELD, S.HELD]


async def test_it_leaves_the_line_of_its_lane_and_stops_none(store: StateStore) -> None:
    first, other = await held(store, lane=STOPS), await held(store, lane=STOPS, replaces="")
    last = await held(store, lane=STOPS)
    occupancy = LaneOccupancy(0, (other.command_id, last.command_id))
    assert await store.lane_now("dock-1", STOPS) == occupancy
    assert await states(store, first) == [S.CANCELLED]


async def test_its_lane_may_be_another_one(store: StateStore) -> None:
    first = await held(store, lane=FIFO)
    await held(store)
    assert await states(store, first) == [S.CANCELLED]
    assert await store.lane_now("dock-1", FIFO) == LaneOccupancy(0, ())


async def test_who_is_to_be_told_is_told_of_the_end(store: StateStore) -> None:
    first = await held(store, notify=("hook",))
    await held(store)
    told = [OutboxEntry(first.command_id, Tidings.OUTCOME)]
    assert await store.webhooks.outbox([partition_of("dock-1")], 10) == told


async def test_a_device_and_a_lane_that_are_full_have_room_for_what_replaces(store: StateStore) -> None:
    waiting = [await held(store, replaces=f"n{n}", lane=FIFO) for n in range(MOST_HELD_OF_LANE)]
    with pytest.raises(TooManyHeldError):
        await store.register(registration(held=HOUR, lane=FIFO, replaces="another"))
    last = await held(store, replaces="n7", lane=FIFO)
    assert await states(store, waiting[7], last) == [S.CANCELLED, S.HELD]
    for n in range(MOST_HELD - MOST_HELD_OF_LANE):
        await held(store, replaces=f"m{n}")
    with pytest.raises(TooManyHeldError):
        await store.register(registration(held=HOUR, replaces="another"))
    await held(store, replaces="m7")
    assert len([*await store.held()]) == MOST_HELD


async def test_a_full_lane_refuses_what_replaces_one_that_is_not_in_it(store: StateStore) -> None:
    for n in range(MOST_HELD_OF_LANE):
        await held(store, replaces=f"n{n}", lane=FIFO)
    outside = await held(store, replaces="outside")
    with pytest.raises(TooManyHeldError):
        await store.register(registration(held=HOUR, lane=FIFO, replaces="outside"))
    assert await states(store, outside) == [S.HELD], "what was refused replaces nobody"


async def test_what_has_lapsed_is_swept_and_not_replaced(backend: Backend, store: StateStore) -> None:
    first = await held(store, held=MOMENT)
    await backend.advance(MOMENT * 2)
    await store.sweep([partition_of("dock-1")], "node-b", timedelta())
    await held(store)
    assert await states(store, first) == [S.UNSENT]


async def test_an_answer_to_a_replaced_one_is_late(store: StateStore) -> None:
    first = await held(store)
    await claim(store, first)
    await store.give_back(first.command_id, "t")
    await held(store)
    await store.respond(answer(first), "node-a")  # a bridge had it after all
    found = await store.read(first.command_id)
    assert (found.state, found.late is None) == (S.CANCELLED, False)
