"""The promises of `sweep`, the end of every key, starting and closing, for every state store."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from app.core.commands.command import CommandState
from app.core.commands.routing import MatchResult, Recorded
from app.core.errors import (
    CommandNotFoundError,
    DeviceBusyError,
)
from app.core.identifiers import partition_of
from app.store.commands import Query
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
from tests.contract.store_reading import ALL_PARTITIONS, NO_GRACE, state_of, swept

SHORT = timedelta(seconds=4)
"""A retention that ends during the test, and not between two of its steps."""


class TestSweep:
    async def test_F13_what_is_overdue_is_timed_out_for_any_home_node(
        self, backend: Backend, store: StateStore
    ) -> None:
        overdue, open_one = registration("dock-1", timeout=MOMENT), registration("dock-2")
        await store.register(overdue)
        await store.register(open_one)
        await backend.advance(2 * MOMENT)
        (outcome,) = await swept(store)
        assert (outcome.command_id, outcome.state) == (overdue.command_id, CommandState.TIMED_OUT)
        assert json.loads(outcome.error or b"")["code"] == "timed_out"
        assert await store.outcomes([overdue.command_id]) == [outcome]
        assert await backend.woken() == [("node-a", outcome)]
        assert await state_of(store, open_one.command_id) is CommandState.PENDING
        assert await swept(store) == []

    async def test_nothing_happens_within_the_grace_or_in_other_partitions(
        self, backend: Backend, store: StateStore
    ) -> None:
        overdue = registration(timeout=MOMENT)
        await store.register(overdue)
        await backend.advance(2 * MOMENT)
        own = partition_of("dock-1")
        assert await store.sweep(ALL_PARTITIONS, "sweeper", MINUTE) == []
        assert await store.sweep([one for one in ALL_PARTITIONS if one != own], "sweeper", NO_GRACE) == []
        assert await store.sweep([], "sweeper", NO_GRACE) == []
        assert len(await store.sweep([own], "node-a", NO_GRACE)) == 1
        assert await backend.woken() == []

    async def test_F34_at_most_a_hundred_of_a_partition_at_a_time_the_soonest_first(
        self, backend: Backend, store: StateStore
    ) -> None:
        commands = [registration(timeout=MOMENT) for _ in range(130)]
        for one in commands:
            await store.register(one)
        await backend.advance(2 * MOMENT)
        first, second = await swept(store), await swept(store)
        assert (len(first), len(second)) == (100, 30)
        assert {one.command_id for one in (*first, *second)} == {one.command_id for one in commands}

    async def test_by_order_the_swept_command_is_in_quarantine(self, backend: Backend, store: StateStore) -> None:
        overdue = registration("dock-1", by_order(), timeout=MOMENT, quarantine=MINUTE)
        await store.register(overdue)
        await backend.advance(2 * MOMENT)
        await swept(store)
        with pytest.raises(DeviceBusyError):
            await store.register(registration("dock-1", by_order()))

    async def test_two_nodes_sweep_the_same_without_harm(
        self, backend: Backend, store: StateStore, other_node: StateStore
    ) -> None:
        commands = [registration(f"dock-{i}", timeout=MOMENT) for i in range(20)]
        for one in commands:
            await store.register(one)
        await backend.advance(2 * MOMENT)
        found = await asyncio.gather(swept(store), swept(other_node))
        ids = [outcome.command_id for outcomes in found for outcome in outcomes]
        assert sorted(ids) == sorted(one.command_id for one in commands)


class TestExpiry:
    async def test_a_command_whose_retention_has_ended_does_not_exist(
        self, backend: Backend, store: StateStore
    ) -> None:
        wanted = registration(retention=MOMENT, key="k")
        await store.register(wanted)
        await store.respond(answer(wanted), "node-a")
        await backend.advance(2 * MOMENT)
        identity = wanted.command_id
        assert await store.get([identity]) == [None]
        assert await store.respond(answer(wanted), "node-a") == Recorded(MatchResult.UNKNOWN)
        with pytest.raises(CommandNotFoundError):
            await store.finish(identity, CommandState.CANCELLED, "node-a")
        await store.mark(identity, CommandState.SENT)
        assert await store.get([identity]) == [None]
        for query in (Query(), Query(device_id="dock-1")):
            assert list((await store.list_commands(query)).commands) == []

    async def test_until_then_it_can_be_read(self, backend: Backend, store: StateStore) -> None:
        wanted = registration(timeout=MOMENT)
        await store.register(wanted)
        await backend.advance(2 * MOMENT)
        assert await state_of(store, wanted.command_id) is CommandState.PENDING
        assert (await store.respond(answer(wanted), "node-a")).verdict is MatchResult.WON

    async def test_the_retention_begins_anew_with_the_outcome(self, backend: Backend, store: StateStore) -> None:
        wanted = registration(timeout=MOMENT, retention=timedelta(seconds=8))
        await store.register(wanted)
        await backend.advance(timedelta(seconds=4))
        assert (await store.respond(answer(wanted), "node-a")).verdict is MatchResult.WON
        await backend.advance(timedelta(seconds=4))
        assert await state_of(store, wanted.command_id) is CommandState.SUCCEEDED

    async def test_F36_after_the_last_ttl_nothing_remains(self, backend: Backend, store: StateStore) -> None:
        assert await backend.size() == 0
        for i in range(12):
            places = ((), (by_value(f"v{i}"), by_order(name=f"t{i}")), (by_order(name=f"t{i}"),))[i % 3]
            one = registration(
                "dock-1",
                *places,
                key=f"k{i}" if i % 2 else None,
                timeout=MOMENT,
                retention=SHORT,
                quarantine=2 * MOMENT,
            )
            await store.register(one)
            if i < 4:
                await store.respond(answer(one), "node-a")
            elif i < 8:
                await store.finish(one.command_id, CommandState.CANCELLED, "node-a")
                await store.respond(answer(one), "node-a")
        assert await backend.size() > 0
        await backend.advance(2 * MOMENT)
        await swept(store)  # and nobody ever sweeps again
        await backend.advance(SHORT + 2 * MOMENT)
        assert await backend.size() == 0

    async def test_F36_without_any_sweep_nothing_remains_either(self, backend: Backend, store: StateStore) -> None:
        for i in range(5):
            await store.register(registration(f"dock-{i}", timeout=MOMENT, retention=MOMENT, key="k"))
        await backend.advance(4 * MOMENT)
        assert await backend.size() == 0

    async def test_F36_a_busy_partition_is_not_filled_by_what_has_expired(
        self, backend: Backend, store: StateStore
    ) -> None:
        await store.register(registration())  # it keeps topic, list and deadlines of the partition alive
        size = await backend.size()
        for _ in range(60):
            short = registration(retention=MOMENT, timeout=MOMENT)
            await store.register(short)
            await store.respond(answer(short), "node-a")
        lost = registration(retention=MOMENT, timeout=MOMENT)
        await store.register(lost)
        await backend.advance(4 * MOMENT)
        for _ in range(3):
            await swept(store)
        assert [one.id for one in (await store.list_commands(Query(limit=10))).commands] != []
        assert await backend.size() == size


class TestLifecycle:
    async def test_starting_and_closing_twice_is_harmless(self, backend: Backend) -> None:
        store = await backend.open()
        await store.start()
        await store.ping()
        await store.close()
        await store.close()
        await store.start()
        await store.ping()
        await store.close()

    async def test_cancelled_while_starting_or_closing_it_can_be_started_again(self, backend: Backend) -> None:
        store = await backend.open()
        await store.close()
        for step in (store.start, store.close):
            task = asyncio.create_task(step())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await store.close()
        await store.start()
        await store.ping()
        await store.close()
