"""The promises of `register`, for every state store: the sentences of the port (app/store/commands.py)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.commands.callback import Registration
from app.core.commands.command import CommandState, IfOffline
from app.core.commands.routing import MatchResult, Recorded
from app.core.errors import (
    DeviceBusyError,
    IdempotencyMismatchError,
)
from app.store.commands import Joined, Registered
from app.store.state import StateStore
from tests.contract.store_backends import (
    MINUTE,
    MOMENT,
    Backend,
    answer,
    by_order,
    by_value,
    registration,
)
from tests.contract.store_reading import state_of


class TestRegister:
    async def test_the_command_is_on_record_and_pending(self, store: StateStore) -> None:
        wanted = registration(timeout=timedelta(seconds=7))
        registered = await store.register(wanted)
        assert isinstance(registered, Registered)
        assert registered.deadline - registered.created_at == 7_000_000
        (command,) = await store.get([wanted.command_id])
        assert command is not None
        assert (command.id, command.device_id, command.method) == (wanted.command_id, "dock-1", "takeoff")
        assert (command.params, command.profile, command.home_node) == (b'{"height":30}', "dji", "node-a")
        assert command.state is CommandState.PENDING
        assert (command.created_at, command.deadline) == (registered.created_at, registered.deadline)
        assert (command.finished_at, command.received_by, command.result, command.error) == (None,) * 4
        assert (command.progress, command.late) == (None, None)

    @pytest.mark.parametrize("if_offline", IfOffline)
    async def test_what_to_do_for_an_absent_device_is_kept_and_joined(
        self, store: StateStore, if_offline: IfOffline
    ) -> None:
        wanted = registration(key="k", fingerprint="f", if_offline=if_offline)
        await store.register(wanted)
        joined = await store.register(registration(key="k", fingerprint="f"))
        assert isinstance(joined, Joined)
        assert (joined.command.id, joined.command.if_offline) == (wanted.command_id, if_offline)
        assert (await store.read(wanted.command_id)).if_offline is if_offline

    async def test_params_are_kept_to_the_byte(self, store: StateStore) -> None:
        params = json.dumps({"text": "äöü \u0000 \U0001f681", "list": [1, None]}, ensure_ascii=False).encode()
        wanted = registration(params=params)
        await store.register(wanted)
        (command,) = await store.get([wanted.command_id])
        assert command is not None
        assert command.params == params

    async def test_F3_repeating_answers_with_the_first_deadline(self, backend: Backend, store: StateStore) -> None:
        wanted = registration(key="k")
        first = await store.register(wanted)
        size = await backend.size()
        await backend.advance(MOMENT)
        assert await store.register(wanted) == first
        assert len(await store.pending_of("node-a")) == 1
        assert await backend.size() == size

    async def test_repeating_after_the_outcome_changes_nothing(self, store: StateStore) -> None:
        wanted = registration()
        first = await store.register(wanted)
        await store.respond(answer(wanted), "node-a")
        assert await store.register(wanted) == first
        assert await state_of(store, wanted.command_id) is CommandState.SUCCEEDED
        assert await store.pending_of("node-a") == []

    async def test_a_repeated_registration_by_order_is_not_busy_with_itself(self, store: StateStore) -> None:
        wanted = registration("dock-1", by_order())
        assert await store.register(wanted) == await store.register(wanted)

    async def test_without_expectations_it_is_kept_as_well(self, backend: Backend, store: StateStore) -> None:
        wanted = registration()
        await store.register(replace(wanted, expectations=()))
        assert (await store.finish(wanted.command_id, CommandState.SUCCEEDED, "node-a")).won


class TestIdempotencyKey:
    async def test_a_known_key_joins_and_registers_nothing(self, store: StateStore, other_node: StateStore) -> None:
        first = registration(key="k", fingerprint="f")
        await store.register(first)
        second = registration(key="k", fingerprint="f", home="node-b")
        joined = await other_node.register(second)
        assert joined == Joined((await store.get([first.command_id]))[0])  # type: ignore[arg-type]  # it is there
        assert await store.get([second.command_id]) == [None]
        assert await store.pending_of("node-b") == []

    async def test_a_joined_command_with_an_outcome_is_replayed(self, store: StateStore) -> None:
        first = registration(key="k")
        await store.register(first)
        await store.respond(answer(first), "node-a")
        joined = await store.register(registration(key="k"))
        assert isinstance(joined, Joined)
        assert (joined.command.id, joined.command.state) == (first.command_id, CommandState.SUCCEEDED)
        assert joined.command.result == b'{"code":0}'

    async def test_another_fingerprint_is_a_mismatch(self, store: StateStore) -> None:
        first = registration(key="k", fingerprint="f")
        await store.register(first)
        with pytest.raises(IdempotencyMismatchError) as caught:
            await store.register(registration(key="k", fingerprint="g"))
        assert caught.value.command_id == first.command_id

    async def test_keys_of_different_devices_are_different(self, store: StateStore) -> None:
        await store.register(registration("dock-1", key="k", fingerprint="f"))
        assert isinstance(await store.register(registration("dock-2", key="k", fingerprint="g")), Registered)

    async def test_joining_nodes_are_woken_but_no_more_than_four(self, backend: Backend, store: StateStore) -> None:
        first = registration(key="k")
        await store.register(first)
        for node in ("node-b", "node-c", "node-b", "node-d", "node-e", "node-f", "node-a"):
            await store.register(registration(key="k", home=node))
        recorded = await store.respond(answer(first), "node-z")
        nodes = ["node-a", "node-b", "node-c", "node-d", "node-e"]
        assert list(recorded.waiting) == nodes
        assert [node for node, _ in await backend.woken()] == nodes

    async def test_a_node_that_joins_after_the_outcome_does_not_wait(self, store: StateStore) -> None:
        first = registration(key="k")
        await store.register(first)
        await store.respond(answer(first), "node-a")
        await store.register(registration(key="k", home="node-b"))
        assert (await store.respond(answer(first), "node-a")).waiting == ("node-a",)

    async def test_F14_of_five_at_once_one_registers_and_four_join(
        self, store: StateStore, other_node: StateStore
    ) -> None:
        calls = [(store, other_node)[i % 2].register(registration(key="k", home=f"node-{i}")) for i in range(5)]
        kinds = [type(one) for one in await asyncio.gather(*calls)]
        assert sorted(kinds, key=lambda kind: kind.__name__) == [Joined] * 4 + [Registered]

    async def test_the_key_is_free_when_the_retention_of_its_command_has_ended(
        self, backend: Backend, store: StateStore
    ) -> None:
        first = registration(key="k", fingerprint="f", retention=MOMENT)
        await store.register(first)
        await store.respond(answer(first), "node-a")
        await backend.advance(2 * MOMENT)
        assert isinstance(await store.register(registration(key="k", fingerprint="g")), Registered)


class TestKeyOfAnUnsentCommand:
    async def unsent(self, store: StateStore) -> Registration:
        first = registration(key="k", fingerprint="f")
        await store.register(first)
        await store.finish(first.command_id, CommandState.UNSENT, "node-a")
        return first

    async def test_it_is_free_and_then_stands_for_the_next(self, store: StateStore, other_node: StateStore) -> None:
        first = await self.unsent(store)
        second = registration(key="k", fingerprint="f", home="node-b")
        assert isinstance(await other_node.register(second), Registered)
        third = await store.register(registration(key="k", fingerprint="f"))
        assert isinstance(third, Joined)
        assert third.command.id == second.command_id
        assert await state_of(store, first.command_id) is CommandState.UNSENT

    async def test_a_different_command_may_have_it(self, store: StateStore) -> None:
        await self.unsent(store)
        assert isinstance(await store.register(registration(key="k", fingerprint="g")), Registered)

    async def test_of_five_tries_at_once_one_registers_and_four_join(
        self, store: StateStore, other_node: StateStore
    ) -> None:
        await self.unsent(store)
        tries = [registration(key="k", fingerprint="f", home=f"node-{i}") for i in range(5)]
        replies = await asyncio.gather(*((store, other_node)[i % 2].register(one) for i, one in enumerate(tries)))
        assert sorted(type(one).__name__ for one in replies) == ["Joined"] * 4 + ["Registered"]

    async def test_the_end_of_its_first_command_leaves_it_to_the_next(
        self, backend: Backend, store: StateStore
    ) -> None:
        first = registration(key="k", retention=MOMENT)
        await store.register(first)
        await store.finish(first.command_id, CommandState.UNSENT, "node-a")
        second = registration(key="k")
        await store.register(second)
        await backend.advance(2 * MOMENT)
        assert await store.get([first.command_id]) == [None]
        joined = await store.register(registration(key="k"))
        assert isinstance(joined, Joined)
        assert joined.command.id == second.command_id

    async def test_a_late_answer_stays_with_the_command_that_it_names(self, store: StateStore) -> None:
        first = await self.unsent(store)
        second = registration(key="k", fingerprint="f")
        await store.register(second)
        late = await store.respond(answer(first), "node-a")
        assert (late.verdict, late.command_id) == (MatchResult.LATE, first.command_id)
        assert await state_of(store, second.command_id) is CommandState.PENDING
        assert (await store.respond(answer(second), "node-a")).verdict is MatchResult.WON

    @pytest.mark.parametrize("end", [CommandState.TIMED_OUT, CommandState.CANCELLED, CommandState.SUCCEEDED])
    async def test_every_other_end_is_replayed(self, store: StateStore, end: CommandState) -> None:
        first = registration(key="k")
        await store.register(first)
        await store.finish(first.command_id, end, "node-a")
        assert isinstance(await store.register(registration(key="k")), Joined)


class TestBusyDevice:
    async def test_F10_by_order_one_command_at_a_time(self, store: StateStore) -> None:
        first, second = registration("dock-1", by_order()), registration("dock-1", by_order())
        await store.register(first)
        with pytest.raises(DeviceBusyError):
            await store.register(second)
        assert await store.get([second.command_id]) == [None]
        await store.respond(answer(first), "node-a")
        assert isinstance(await store.register(second), Registered)

    async def test_one_occupied_topic_of_several_is_enough(self, store: StateStore) -> None:
        await store.register(registration("dock-1", by_order(name="ack")))
        with pytest.raises(DeviceBusyError):
            await store.register(registration("dock-1", by_order(name="other"), by_order(name="ack")))

    async def test_a_command_with_an_id_occupies_the_topic_for_one_by_order_but_not_the_reverse(
        self, store: StateStore
    ) -> None:
        with_id = registration("dock-1")
        await store.register(with_id)
        with pytest.raises(DeviceBusyError):
            await store.register(registration("dock-1", by_order()))
        await store.respond(answer(with_id), "node-a")
        await store.register(registration("dock-1", by_order()))
        assert isinstance(await store.register(registration("dock-1")), Registered)

    async def test_another_topic_or_device_is_free(self, store: StateStore) -> None:
        await store.register(registration("dock-1", by_order()))
        assert isinstance(await store.register(registration("dock-1", by_order(name="other"))), Registered)
        assert isinstance(await store.register(registration("dock-2", by_order("dock-2"))), Registered)

    @pytest.mark.parametrize("end", [CommandState.TIMED_OUT, CommandState.CANCELLED])
    async def test_F11_in_quarantine_the_topic_stays_occupied_and_a_stale_response_frees_it(
        self, store: StateStore, end: CommandState
    ) -> None:
        first = registration("dock-1", by_order(), quarantine=MINUTE)
        second = registration("dock-1", by_order(), quarantine=MINUTE)
        await store.register(first)
        with pytest.raises(DeviceBusyError, match="has a command in flight"):
            await store.register(second)
        await store.finish(first.command_id, end, "node-a")
        with pytest.raises(DeviceBusyError, match=r"has ended without one; .* takes none for another (60\.0|59\.\d) s"):
            await store.register(second)
        stale = await store.respond(answer(first), "node-b")
        assert (stale.verdict, stale.command_id) == (MatchResult.LATE, first.command_id)
        await store.register(second)
        assert await state_of(store, second.command_id) is CommandState.PENDING
        assert (await store.respond(answer(second), "node-b")).command_id == second.command_id

    async def test_F11_progress_does_not_end_the_quarantine(self, store: StateStore) -> None:
        first = registration("dock-1", by_order(), quarantine=MINUTE)
        await store.register(first)
        await store.finish(first.command_id, CommandState.TIMED_OUT, "node-a")
        assert (await store.respond(answer(first, CommandState.RUNNING), "n")).verdict is MatchResult.DUPLICATE
        with pytest.raises(DeviceBusyError):
            await store.register(registration("dock-1", by_order()))

    async def test_after_the_quarantine_the_topic_is_free_and_a_response_means_nobody(
        self, backend: Backend, store: StateStore
    ) -> None:
        first = registration("dock-1", by_order(), quarantine=MOMENT)
        await store.register(first)
        await store.finish(first.command_id, CommandState.TIMED_OUT, "node-a")
        await backend.advance(2 * MOMENT)
        assert await store.respond(answer(first), "node-b") == Recorded(MatchResult.UNKNOWN)
        assert isinstance(await store.register(registration("dock-1", by_order())), Registered)

    async def test_the_record_lives_at_least_as_long_as_the_quarantine(
        self, backend: Backend, store: StateStore
    ) -> None:
        first = registration("dock-1", by_order(), quarantine=MINUTE, retention=MOMENT)
        await store.register(first)
        await store.finish(first.command_id, CommandState.TIMED_OUT, "node-a")
        await backend.advance(2 * MOMENT)
        assert (await store.respond(answer(first), "node-b")).verdict is MatchResult.LATE

    @pytest.mark.parametrize("end", [CommandState.UNSENT, CommandState.SUCCEEDED])
    async def test_what_was_not_sent_or_is_done_needs_no_quarantine(self, store: StateStore, end: CommandState) -> None:
        first = registration("dock-1", by_order(), quarantine=MINUTE)
        await store.register(first)
        await store.finish(first.command_id, end, "node-a")
        assert isinstance(await store.register(registration("dock-1", by_order())), Registered)

    async def test_a_value_that_names_an_open_command_is_occupied(self, store: StateStore) -> None:
        first = registration("dock-1", by_value("flight-7"))
        await store.register(first)
        with pytest.raises(DeviceBusyError):
            await store.register(registration("dock-1", by_value("flight-7")))
        assert isinstance(await store.register(registration("dock-1", by_value("flight-8"))), Registered)
        await store.respond(answer(first), "node-a")
        second = registration("dock-1", by_value("flight-7"))
        assert isinstance(await store.register(second), Registered)
        assert (await store.respond(answer(second), "node-a")).command_id == second.command_id

    async def test_a_busy_device_can_still_be_joined(self, store: StateStore) -> None:
        await store.register(registration("dock-1", by_order(), key="k"))
        assert isinstance(await store.register(registration("dock-1", by_order(), key="k")), Joined)


async def test_now_is_the_clock_of_its_instants(store: StateStore) -> None:
    before = await store.now()
    registered = await store.register(registration())
    assert isinstance(registered, Registered)
    assert before <= registered.created_at <= await store.now()
