"""Commands that a second person has to approve: claimed by nobody before that, and decided about once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.commands.approval import Approval, ApprovalDecision
from app.core.commands.command import Command, CommandState, WaitReason
from app.core.commands.routing import MatchResult
from app.core.identifiers import partition_of
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.core.webhooks.deliveries import OutboxEntry, Tidings
from app.store.commands import Joined, Registered
from app.store.holds import Claimed, Waits
from app.store.rules import HOLD_EXPIRED, NOT_APPROVED, refused_by_second, superseded
from app.store.state import StateStore
from tests.contract.store_backends import MINUTE, MOMENT, Backend, answer, new_id, registration

HOUR = timedelta(hours=1)
S = CommandState
YES = ApprovalDecision(approves=True, who='["key"]', name="anna", note='seen on site, "gate 4" ü')
NO = ApprovalDecision(approves=False, who='["key"]', name="ben", note="not today")


async def proposed(store: StateStore, approval: timedelta = MINUTE, **more: object) -> str:
    wanted = registration(held=HOUR, approval=approval, **more)  # type: ignore[arg-type]
    registered = await store.register(wanted)
    assert isinstance(registered, Registered)
    assert registered.held
    return wanted.command_id


async def read(store: StateStore, command_id: str) -> Command:
    return await store.read(command_id)


def approval_of(command: Command) -> Approval:
    assert command.hold is not None
    assert command.hold.approval is not None
    return command.hold.approval


class TestProposal:
    async def test_nobody_claims_or_answers_it(self, store: StateStore) -> None:
        identity = await proposed(store)
        command = await read(store, identity)
        until = command.created_at + MINUTE // timedelta(microseconds=1)
        assert (command.state, approval_of(command), command.waits_for) == (
            S.HELD,
            Approval(until),
            (WaitReason.APPROVAL,),
        )
        assert await store.claim(identity, "node-a", "t1") == Waits(WaitReason.APPROVAL, until)
        assert not await store.give_back(identity, "t2") or (await read(store, identity)).state is S.HELD
        wanted = registration(identity=identity)
        assert (await store.respond(answer(wanted), "node-a")).verdict is MatchResult.UNKNOWN
        assert [(one.command_id, one.until) for one in await store.held()] == [(identity, until)]

    async def test_its_key_stands_for_it_until_its_time_is_over(self, backend: Backend, store: StateStore) -> None:
        identity = await proposed(store, MOMENT, key="k", retention=MINUTE)
        assert isinstance(await store.register(registration(held=HOUR, approval=MOMENT, key="k")), Joined)
        await backend.advance(MOMENT * 2)
        assert not (await store.decide(identity, YES, "node-b")).won
        (outcome,) = await store.sweep([partition_of("dock-1")], "node-b", timedelta())
        assert (outcome.command_id, outcome.state, outcome.error) == (identity, S.UNSENT, NOT_APPROVED)
        assert [node for node, _ in await backend.woken()] == ["node-a"]
        assert list(await store.held()) == []
        assert isinstance(await store.register(registration(key="k")), Registered)

    async def test_it_can_be_cancelled_and_not_approved_after_that(self, store: StateStore) -> None:
        identity = await proposed(store)
        assert (await store.finish(identity, S.CANCELLED, "node-a")).won
        assert not (await store.decide(identity, YES, "node-b")).won
        assert await store.claim(identity, "node-a", "t1") is None

    async def test_what_needs_nobody_is_not_decided_about(self, store: StateStore) -> None:
        plain, held = registration(), registration(held=HOUR)
        for one in (plain, held):
            await store.register(one)
        for identity in (plain.command_id, held.command_id, new_id("dock-1"), "no command id"):
            assert not (await store.decide(identity, YES, "node-b")).won
        assert isinstance(await store.claim(held.command_id, "node-a", "t1"), Claimed)


class TestApproved:
    async def test_it_is_claimed_as_any_other_and_says_by_whom(self, store: StateStore, other_node: StateStore) -> None:
        identity = await proposed(store)
        note = await other_node.last_held()
        assert (await other_node.decide(identity, YES, "node-b")).won
        assert await other_node.last_held() != note
        command = await read(store, identity)
        approval = approval_of(command)
        assert (approval.decision, command.state, command.waits_for) == (YES, S.HELD, ())
        assert approval.decided_at is not None
        assert command.created_at <= approval.decided_at <= approval.until
        (entry,) = await store.held()
        assert command.hold is not None
        assert entry.until == command.hold.until
        claimed = await store.claim(identity, "node-a", "t1")
        assert isinstance(claimed, Claimed)
        assert approval_of(claimed.command) == approval
        assert await store.give_back(identity, "t1")
        assert approval_of(await read(store, identity)) == approval
        assert isinstance(await store.claim(identity, "node-b", "t2"), Claimed)

    async def test_afterwards_its_hold_is_the_bound(self, backend: Backend, store: StateStore) -> None:
        wanted = registration(held=MOMENT * 4, approval=MOMENT * 2, retention=MINUTE)
        await store.register(wanted)
        assert (await store.decide(wanted.command_id, YES, "node-b")).won
        await backend.advance(MOMENT * 5)
        (outcome,) = await store.sweep([partition_of("dock-1")], "node-b", timedelta())
        assert (outcome.state, outcome.error) == (S.UNSENT, HOLD_EXPIRED)


class TestRefused:
    async def test_it_is_cancelled_with_who_and_why(self, backend: Backend, store: StateStore) -> None:
        identity = await proposed(store, key="k")
        decided = await store.decide(identity, NO, "node-b")
        assert decided.outcome is not None
        assert (decided.won, decided.outcome.state) == (True, S.CANCELLED)
        assert [node for node, _ in await backend.woken()] == ["node-a"]
        command = await read(store, identity)
        assert (command.state, command.error) == (S.CANCELLED, refused_by_second(NO))
        assert approval_of(command).decision == NO
        assert list(await store.held()) == []
        assert await store.claim(identity, "node-a", "t1") is None
        assert isinstance(await store.register(registration(held=HOUR, key="k")), Joined)


class TestTwoAtOnce:
    @pytest.mark.parametrize("pair", [(YES, NO), (YES, replace(YES, name="carl")), (NO, replace(NO, name="carl"))])
    async def test_one_counts(
        self, store: StateStore, other_node: StateStore, pair: tuple[ApprovalDecision, ApprovalDecision]
    ) -> None:
        identity = await proposed(store)
        results = await asyncio.gather(store.decide(identity, pair[0], "a"), other_node.decide(identity, pair[1], "b"))
        (winner,) = [one for one, result in zip(pair, results, strict=True) if result.won]
        command = await read(store, identity)
        assert approval_of(command).decision == winner
        assert command.state is (S.HELD if winner.approves else S.CANCELLED)

    @pytest.mark.parametrize("decision", [YES, NO])
    async def test_a_decision_whose_reply_was_lost_is_repeated(
        self, store: StateStore, decision: ApprovalDecision
    ) -> None:
        identity = await proposed(store)
        first = await store.decide(identity, decision, "node-b")
        again = await store.decide(identity, decision, "node-b")
        assert (again.won, again.outcome is None) == (True, decision.approves)
        assert first.outcome is None or again.outcome == replace(first.outcome, home_heard=again.outcome.home_heard)  # type: ignore[union-attr]

    async def test_a_claim_that_comes_with_an_approval_is_after_it_or_waits(
        self, store: StateStore, other_node: StateStore
    ) -> None:
        identity = await proposed(store)
        decided, claimed = await asyncio.gather(
            store.decide(identity, YES, "node-a"), other_node.claim(identity, "node-b", "t1")
        )
        assert decided.won
        if isinstance(claimed, Claimed):
            assert approval_of(claimed.command).decision == YES
        else:
            assert isinstance(claimed, Waits)


async def test_endpoints_are_told_once_that_a_second_person_is_asked(store: StateStore) -> None:
    asked = registration(held=HOUR, approval=MINUTE, notify=("wh_1", "wh_2"))
    for one in (asked, asked, registration(held=HOUR, approval=MINUTE), registration(held=HOUR, notify=("wh_1",))):
        await store.register(one)
    notices = [OutboxEntry(asked.command_id, Tidings.ASKED)]
    assert await store.webhooks.outbox([partition_of("dock-1")], 10) == notices
    assert (await store.decide(asked.command_id, NO, "node-b")).won
    notices.append(OutboxEntry(asked.command_id))
    assert await store.webhooks.outbox([partition_of("dock-1")], 10) == notices


class TestLanes:
    async def test_it_stands_in_line_from_its_approval_on(self, backend: Backend, store: StateStore) -> None:
        lane = CommandLane("flight", LaneOrder.FIFO)
        first = await proposed(store, lane=lane)
        await backend.advance(MOMENT)
        second = registration(held=HOUR, lane=lane)
        await store.register(second)
        assert (await store.lane_now("dock-1", lane)).waiting == (second.command_id,)
        await backend.advance(MOMENT)
        assert (await store.decide(first, YES, "node-b")).won
        assert (await store.lane_now("dock-1", lane)).waiting == (second.command_id, first)
        assert isinstance(await store.claim(first, "node-a", "t1"), Waits)
        assert isinstance(await store.claim(second.command_id, "node-a", "t2"), Claimed)
        await store.respond(answer(second), "node-a")
        assert isinstance(await store.claim(first, "node-a", "t3"), Claimed)
        assert await store.give_back(first, "t3")
        await backend.advance(MOMENT)
        third = registration(held=HOUR, lane=lane)
        await store.register(third)
        assert (await store.lane_now("dock-1", lane)).waiting == (first, third.command_id)

    async def test_in_a_lane_of_the_latest_it_takes_a_place_only_then(self, store: StateStore) -> None:
        lane = CommandLane("camera", LaneOrder.LATEST)
        waiting = registration(held=HOUR, lane=lane)
        await store.register(waiting)
        identity = await proposed(store, lane=lane)
        assert (await read(store, waiting.command_id)).state is S.HELD
        assert (await store.decide(identity, YES, "node-b")).won
        command = await read(store, waiting.command_id)
        assert (command.state, command.error) == (S.CANCELLED, superseded(identity))
        assert (await store.lane_now("dock-1", lane)).waiting == (identity,)

    async def test_a_later_one_does_not_take_the_place_of_what_stands_in_no_line(self, store: StateStore) -> None:
        lane = CommandLane("camera", LaneOrder.LATEST)
        identity = await proposed(store, lane=lane)
        await store.register(registration(held=HOUR, lane=lane))
        assert (await read(store, identity)).state is S.HELD


@pytest.mark.parametrize("decision", [YES, NO, None])
async def test_nothing_is_left_of_it(backend: Backend, store: StateStore, decision: ApprovalDecision | None) -> None:
    wanted = registration(held=MOMENT * 3, approval=MOMENT * 2, timeout=MOMENT, retention=MOMENT)
    await store.register(wanted)
    if decision is not None:
        await store.decide(wanted.command_id, decision, "node-b")
    await backend.advance(MOMENT * 4)
    await store.sweep([partition_of("dock-1")], "node-c", timedelta())
    await backend.advance(MOMENT * 3)
    assert await backend.size() == 0
