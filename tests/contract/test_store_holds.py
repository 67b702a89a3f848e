"""Held commands: registered to wait, claimed by one, given back on proof, ended by cancellation or time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from app.core.commands.callback import Registration
from app.core.commands.command import Command, CommandState, IfOffline, WaitReason
from app.core.commands.routing import MatchResult
from app.core.errors import DeviceBusyError, IllegalTransitionError, TooManyHeldError
from app.core.identifiers import partition_of
from app.store.commands import Joined, Query, Registered
from app.store.holds import Claimed, Waits
from app.store.rules import HOLD_EXPIRED, MOST_HELD
from app.store.state import StateStore
from tests.contract.store_backends import MINUTE, MOMENT, Backend, answer, by_order, by_value, new_id, registration

HOUR = timedelta(hours=1)
S = CommandState


async def hold(store: StateStore, wanted: Registration) -> Registration:
    assert isinstance(await store.register(wanted), Registered)
    return wanted


async def state_of(store: StateStore, command_id: str) -> Command:
    (found,) = await store.get([command_id])
    assert found is not None
    return found


class TestHold:
    async def test_it_waits_and_nobody_is_to_answer_it(self, backend: Backend, store: StateStore) -> None:
        wanted = await hold(store, registration(held=HOUR, if_offline=IfOffline.HOLD))
        command = await state_of(store, wanted.command_id)
        assert command.state is S.HELD
        assert command.if_offline is IfOffline.HOLD
        assert command.hold is not None
        assert command.hold.claims == 0
        assert command.hold.who == "somebody"
        assert command.hold.until == command.created_at + HOUR // timedelta(microseconds=1)
        assert command.deadline == command.hold.until + MINUTE // timedelta(microseconds=1)
        assert [(one.device_id, one.command_id) for one in await store.held()] == [("dock-1", wanted.command_id)]
        assert await store.pending_of("node-a") == []
        assert (await store.respond(answer(wanted), "node-a")).verdict is MatchResult.UNKNOWN
        assert not await store.mark(wanted.command_id, S.SENT, "node-b")
        assert (await store.list_commands(Query(state=S.HELD))).commands == [command]

    async def test_its_key_stands_for_it(self, store: StateStore) -> None:
        wanted = await hold(store, registration(held=HOUR, key="k"))
        joined = await store.register(registration(held=HOUR, key="k"))
        assert isinstance(joined, Joined)
        assert joined.command.id == wanted.command_id

    async def test_it_keeps_nobody_from_a_topic(self, store: StateStore) -> None:
        await hold(store, registration("dock-1", by_order(), by_value("v"), held=HOUR))
        assert isinstance(await store.register(registration("dock-1", by_order(), by_value("v"))), Registered)

    async def test_a_device_has_so_many_at_most(self, store: StateStore) -> None:
        for _ in range(MOST_HELD):
            await hold(store, registration(held=HOUR))
        with pytest.raises(TooManyHeldError, match=f"has {MOST_HELD} held commands"):
            await store.register(registration(held=HOUR))
        await hold(store, registration("dock-2", held=HOUR))

    async def test_a_part_of_the_store_has_so_many_at_most(
        self, store: StateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in ("memory.commands.room", "redis.commands.register"):
            monkeypatch.setattr(f"app.store.{module}.MOST_HELD_OF_PARTITION", 2)
        numbered = (f"dock-{number}" for number in range(2, 10_000))
        beside = [one for one in numbered if partition_of(one) == partition_of("dock-1")]
        await hold(store, registration(beside[0], held=HOUR))
        claimed = await hold(store, registration(beside[0], held=HOUR))
        with pytest.raises(TooManyHeldError, match="those that share its part of the store"):
            await store.register(registration("dock-1", held=HOUR))
        assert isinstance(await store.claim(claimed.command_id, "node-a", "t1"), Claimed)
        await hold(store, registration("dock-1", held=HOUR))

    async def test_whose_claim_was_undone_is_known_also_where_there_is_no_room(
        self, store: StateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else nobody would look for its device until others have gone."""
        for module in ("memory.commands.room", "redis.commands.register", "redis.commands.holds"):
            monkeypatch.setattr(f"app.store.{module}.MOST_HELD_OF_PARTITION", 1)
        first = await hold(store, registration(held=2 * HOUR))
        assert isinstance(await store.claim(first.command_id, "node-a", "t1"), Claimed)
        second = await hold(store, registration(held=HOUR))
        assert await store.give_back(first.command_id, "t1")
        assert {one.command_id for one in await store.held()} == {first.command_id, second.command_id}

    async def test_cancelled_it_is_claimed_by_nobody_and_leaves_nothing(
        self, backend: Backend, store: StateStore
    ) -> None:
        wanted = await hold(store, registration(held=HOUR, retention=MOMENT, quarantine=HOUR / 4))
        assert (await store.finish(wanted.command_id, S.CANCELLED, "node-b")).won
        assert await store.claim(wanted.command_id, "node-a", "t1") is None
        assert list(await store.held()) == []
        assert (await state_of(store, wanted.command_id)).state is S.CANCELLED

    async def test_who_ends_nothing_but_what_is_held_leaves_alone_what_was_claimed(self, store: StateStore) -> None:
        first, second = [await hold(store, registration(held=HOUR)) for _ in range(2)]
        assert (await store.finish(first.command_id, S.CANCELLED, "node-b", only_held=True)).won
        assert not (await store.finish(first.command_id, S.CANCELLED, "node-b", only_held=True)).won
        assert isinstance(await store.claim(second.command_id, "node-a", "t1"), Claimed)
        with pytest.raises(IllegalTransitionError, match="that is pending cannot be cancelled"):
            await store.finish(second.command_id, S.CANCELLED, "node-b", only_held=True)
        assert (await state_of(store, second.command_id)).state is S.PENDING
        assert (await store.finish(second.command_id, S.CANCELLED, "node-b")).won

    async def test_what_a_node_has_claimed_is_unsent_by_its_word_alone(self, store: StateStore) -> None:
        first, second = [await hold(store, registration(held=HOUR)) for _ in range(2)]
        for one in (first, second):
            assert isinstance(await store.claim(one.command_id, "node-b", "t1"), Claimed)
        with pytest.raises(IllegalTransitionError, match="that is pending cannot be unsent"):
            await store.finish(first.command_id, S.UNSENT, "node-a")  # it has registered it, and got no reply
        assert (await store.finish(first.command_id, S.UNSENT, "node-b")).won
        assert await store.give_back(second.command_id, "t1")
        assert (await store.finish(second.command_id, S.UNSENT, "node-a")).won  # nobody has it

    async def test_held_to_the_end_it_is_unsent_and_its_key_is_free(self, backend: Backend, store: StateStore) -> None:
        wanted = await hold(store, registration(held=MOMENT, key="k", retention=MINUTE))
        await backend.advance(MOMENT * 2)
        assert await store.claim(wanted.command_id, "node-b", "t1") is None
        outcomes = await store.sweep([partition_of("dock-1")], "node-b", timedelta())
        assert [(one.command_id, one.state, one.error) for one in outcomes] == [
            (wanted.command_id, S.UNSENT, HOLD_EXPIRED)
        ]
        assert [node for node, _ in await backend.woken()] == ["node-a"]
        assert list(await store.held()) == []
        assert isinstance(await store.register(registration(key="k")), Registered)
        assert await store.sweep([partition_of("dock-1")], "node-b", timedelta()) == []

    async def test_a_note_changes_with_each_that_is_held_and_with_nothing_else(
        self, store: StateStore, other_node: StateStore
    ) -> None:
        notes = [await other_node.last_held()]
        await store.register(registration())
        assert await other_node.last_held() == notes[0]
        wanted = await hold(store, registration(held=HOUR, key="k"))
        notes.append(await other_node.last_held())
        await store.register(registration(held=HOUR, key="k"))
        assert await store.claim(wanted.command_id, "node-b", "t1")
        assert await other_node.last_held() == notes[1]
        assert await store.give_back(wanted.command_id, "t1")
        notes.append(await other_node.last_held())
        await hold(store, registration(held=HOUR))
        notes.append(await other_node.last_held())
        assert len(set(notes)) == 4


class TestClaim:
    async def test_of_many_one_wins_and_is_its_home(self, store: StateStore, other_node: StateStore) -> None:
        wanted = await hold(store, registration(held=HOUR))
        stores = (store, other_node)
        claims = await asyncio.gather(*(stores[i % 2].claim(wanted.command_id, f"node-{i}", f"t{i}") for i in range(6)))
        (winner,) = [i for i, one in enumerate(claims) if one is not None]
        command = await state_of(store, wanted.command_id)
        won = claims[winner]
        assert isinstance(won, Claimed)
        assert won.command == command
        assert (command.state, command.home_node) == (S.PENDING, f"node-{winner}")
        assert command.hold is not None
        assert command.hold.claims == 1
        assert command.deadline < command.hold.until
        assert [one.id for one in await store.pending_of(f"node-{winner}")] == [wanted.command_id]
        again = await store.claim(wanted.command_id, f"node-{winner}", f"t{winner}")  # the first reply was lost
        assert isinstance(again, Claimed)
        assert again.command == command
        assert list(await store.held()) == []

    @pytest.mark.parametrize("place", [0, 1, 2])
    async def test_from_then_on_it_is_answered_and_wakes_who_asked(
        self, backend: Backend, store: StateStore, place: int
    ) -> None:
        places = (registration().expectations[0], by_value("v1"), by_order("dock-1", "ack"))
        wanted = await hold(store, registration("dock-1", *places, held=HOUR, home="node-a"))
        assert await store.claim(wanted.command_id, "node-b", "t1")
        recorded = await store.respond(answer(wanted, expectation=place), "node-c")
        assert recorded.verdict is MatchResult.WON
        assert [node for node, _ in await backend.woken()] == ["node-b", "node-a"]

    async def test_its_timeout_begins_with_it(self, backend: Backend, store: StateStore) -> None:
        wanted = await hold(store, registration(held=HOUR, timeout=MOMENT))
        assert await store.claim(wanted.command_id, "node-b", "t1")
        await backend.advance(MOMENT * 2)
        (outcome,) = await store.sweep([partition_of("dock-1")], "node-c", timedelta())
        assert outcome.state is S.TIMED_OUT
        assert not await store.give_back(wanted.command_id, "t1")

    async def test_it_waits_for_its_topic(self, store: StateStore) -> None:
        for place in (by_order(), by_value("v")):
            other = registration("dock-1", place)
            await store.register(other)
            wanted = await hold(store, registration("dock-1", place, held=HOUR))
            with pytest.raises(DeviceBusyError):
                await store.claim(wanted.command_id, "node-b", "t1")
            assert (await state_of(store, wanted.command_id)).state is S.HELD
            await store.respond(answer(other), "node-a")
            assert await store.claim(wanted.command_id, "node-b", "t1")
            await store.respond(answer(wanted), "node-a")

    async def test_it_waits_for_its_instant(self, backend: Backend, store: StateStore) -> None:
        opens = await store.now() + 2 * MOMENT // timedelta(microseconds=1)
        wanted = await hold(store, registration(held=HOUR, not_before=opens))
        assert await store.claim(wanted.command_id, "node-b", "t1") == Waits(WaitReason.TIME, opens)
        command = await state_of(store, wanted.command_id)
        assert command.state is S.HELD
        assert command.hold is not None
        assert (command.hold.not_before, command.waits_for) == (opens, (WaitReason.TIME,))
        await backend.advance(MOMENT * 3)
        assert isinstance(await store.claim(wanted.command_id, "node-b", "t1"), Claimed)

    async def test_what_is_not_held_is_not_claimed(self, store: StateStore) -> None:
        plain = registration()
        await store.register(plain)
        for unknown in (plain.command_id, new_id("dock-1"), "no command id"):
            assert await store.claim(unknown, "node-b", "t1") is None
            assert not await store.give_back(unknown, "t1")


class TestGiveBack:
    async def test_held_again_no_response_finds_it_by_topic_or_value(self, store: StateStore) -> None:
        places = (by_value("v1"), by_order("dock-1", "ack"))
        wanted = await hold(store, registration("dock-1", *places, held=HOUR))
        before = await state_of(store, wanted.command_id)
        assert await store.claim(wanted.command_id, "node-b", "t1")
        assert await store.give_back(wanted.command_id, "t1")
        assert await store.give_back(wanted.command_id, "t1")  # the first reply was lost
        command = await state_of(store, wanted.command_id)
        assert (command.state, command.deadline) == (S.HELD, before.deadline)
        assert [one.command_id for one in await store.held()] == [wanted.command_id]
        for place in range(2):
            recorded = await store.respond(answer(wanted, expectation=place), "node-a")
            assert recorded.verdict is MatchResult.UNKNOWN
        assert isinstance(await store.register(registration("dock-1", *places)), Registered)

    async def test_a_claim_that_was_given_back_claims_nothing(self, store: StateStore) -> None:
        wanted = await hold(store, registration(held=HOUR))
        assert await store.claim(wanted.command_id, "node-b", "t1")
        assert await store.give_back(wanted.command_id, "t1")
        assert await store.claim(wanted.command_id, "node-b", "t1") is None
        assert await store.give_back(wanted.command_id, "t2")  # before its claim arrives
        assert await store.claim(wanted.command_id, "node-b", "t2") is None
        again = await store.claim(wanted.command_id, "node-c", "t3")
        assert isinstance(again, Claimed)
        assert again.command.hold is not None
        assert again.command.hold.claims == 2

    async def test_only_the_claimant_gives_back(self, store: StateStore) -> None:
        wanted = await hold(store, registration(held=HOUR))
        assert await store.claim(wanted.command_id, "node-b", "t1")
        assert not await store.give_back(wanted.command_id, "t0")
        await store.respond(answer(wanted), "node-a")
        assert not await store.give_back(wanted.command_id, "t1")
        assert (await state_of(store, wanted.command_id)).state is S.SUCCEEDED

    async def test_whoever_answers_after_all_has_it(self, store: StateStore) -> None:
        for said, then in ((S.SUCCEEDED, S.SUCCEEDED), (S.RUNNING, S.RUNNING)):
            wanted = await hold(store, registration(held=HOUR))
            assert await store.claim(wanted.command_id, "node-b", "t1")
            assert await store.give_back(wanted.command_id, "t1")
            recorded = await store.respond(answer(wanted, said), "node-a")
            assert recorded.verdict in (MatchResult.WON, MatchResult.PROGRESS)
            assert (await state_of(store, wanted.command_id)).state is then
            assert await store.claim(wanted.command_id, "node-c", "t2") is None
            assert list(await store.held()) == []

    async def test_a_command_that_ran_on_is_ended_by_its_timeout(self, backend: Backend, store: StateStore) -> None:
        wanted = await hold(store, registration(held=HOUR, timeout=MOMENT))
        assert await store.claim(wanted.command_id, "node-b", "t1")
        assert await store.give_back(wanted.command_id, "t1")
        await store.respond(answer(wanted, S.RUNNING), "node-a")
        await backend.advance(MOMENT * 2)
        (outcome,) = await store.sweep([partition_of("dock-1")], "node-c", timedelta())
        assert outcome.state is S.TIMED_OUT


async def test_nothing_is_left_of_what_was_held(backend: Backend, store: StateStore) -> None:
    wanted = await hold(store, registration("dock-1", by_value("v"), held=MOMENT, timeout=MOMENT, retention=MOMENT))
    assert await store.claim(wanted.command_id, "node-b", "t1")
    assert await store.give_back(wanted.command_id, "t1")
    await backend.advance(MOMENT * 2)
    await store.sweep([partition_of("dock-1")], "node-c", timedelta())
    await backend.advance(MOMENT * 3)
    assert await backend.size() == 0
