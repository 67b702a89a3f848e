"""The promises of `finish`, `mark`, `get`, `outcomes` and `list_commands`, for every state store."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome
from app.core.errors import (
    CommandNotFoundError,
    IllegalTransitionError,
    InvalidInputError,
)
from app.core.identifiers import partition_of
from app.store.commands import Finished, Query, Registered
from app.store.state import StateStore
from tests.contract.store_backends import (
    Backend,
    answer,
    new_id,
    registration,
)
from tests.contract.store_reading import ENDS, state_of


class TestFinish:
    @pytest.mark.parametrize("end", ENDS)
    async def test_it_ends_an_open_command(
        self, backend: Backend, store: StateStore, other_node: StateStore, end: CommandState
    ) -> None:
        wanted = registration(key="k")
        await store.register(wanted)
        await store.register(registration(key="k", home="node-b"))
        finished = await store.finish(wanted.command_id, end, "node-a", b'{"code":"x"}')
        outcome = Outcome(wanted.command_id, end, finished.outcome.finished_at, None, None, b'{"code":"x"}')
        assert finished == Finished(won=True, outcome=outcome)
        assert await other_node.outcomes([wanted.command_id]) == [outcome]
        assert await store.pending_of("node-a") == []
        assert await backend.woken() == [("node-b", outcome)]

    async def test_the_loser_gets_the_winners_outcome(self, backend: Backend, store: StateStore) -> None:
        wanted = registration()
        await store.register(wanted)
        first = await store.finish(wanted.command_id, CommandState.CANCELLED, "node-a")
        for end in ENDS:
            lost = await store.finish(wanted.command_id, end, "node-b", b"1")
            assert lost == Finished(won=False, outcome=first.outcome)
        assert await backend.woken() == []

    async def test_the_unknown_is_not_found(self, store: StateStore) -> None:
        for unknown in (new_id("dock-1"), "no command id"):
            with pytest.raises(CommandNotFoundError):
                await store.finish(unknown, CommandState.CANCELLED, "node-a")

    @pytest.mark.parametrize("state", [CommandState.FAILED, CommandState.RUNNING, CommandState.PENDING])
    async def test_other_states_are_no_end_that_a_node_decides(self, store: StateStore, state: CommandState) -> None:
        with pytest.raises(ValueError, match=f"not finished as {state}"):
            await store.finish(new_id("dock-1"), state, "node-a")

    @pytest.mark.parametrize("reached", [CommandState.ACKNOWLEDGED, CommandState.RUNNING])
    async def test_what_the_broker_or_device_has_cannot_be_unsent(
        self, store: StateStore, reached: CommandState
    ) -> None:
        wanted = registration()
        await store.register(wanted)
        if reached is CommandState.RUNNING:
            await store.respond(answer(wanted, CommandState.RUNNING), "node-a")
        else:
            await store.mark(wanted.command_id, reached)
        with pytest.raises(IllegalTransitionError):
            await store.finish(wanted.command_id, CommandState.UNSENT, "node-a")
        assert await state_of(store, wanted.command_id) is reached
        assert (await store.finish(wanted.command_id, CommandState.TIMED_OUT, "node-a")).won


class TestMark:
    async def test_states_go_forwards_only(self, store: StateStore) -> None:
        wanted = registration()
        await store.register(wanted)
        identity = wanted.command_id
        await store.mark(identity, CommandState.SENT)
        assert await state_of(store, identity) is CommandState.SENT
        await store.mark(identity, CommandState.ACKNOWLEDGED)
        assert await state_of(store, identity) is CommandState.ACKNOWLEDGED
        await store.mark(identity, CommandState.SENT)
        assert await state_of(store, identity) is CommandState.ACKNOWLEDGED
        await store.respond(answer(wanted, CommandState.RUNNING), "node-a")
        for state in (CommandState.SENT, CommandState.ACKNOWLEDGED):
            await store.mark(identity, state)
            assert await state_of(store, identity) is CommandState.RUNNING
        await store.respond(answer(wanted), "node-a")
        for state in (CommandState.SENT, CommandState.ACKNOWLEDGED):
            await store.mark(identity, state)
            assert await state_of(store, identity) is CommandState.SUCCEEDED

    async def test_a_step_may_be_left_out(self, store: StateStore) -> None:
        wanted = registration()
        await store.register(wanted)
        await store.mark(wanted.command_id, CommandState.ACKNOWLEDGED)
        assert await state_of(store, wanted.command_id) is CommandState.ACKNOWLEDGED

    async def test_of_several_nodes_one_takes_over_to_send(self, store: StateStore, other_node: StateStore) -> None:
        wanted = registration()
        await store.register(wanted)
        stores = (store, other_node)
        claims = await asyncio.gather(
            *(stores[i % 2].mark(wanted.command_id, CommandState.SENT, f"node-{i}") for i in range(6))
        )
        assert sorted(claims) == [False] * 5 + [True]
        winner = f"node-{claims.index(True)}"
        assert await store.mark(wanted.command_id, CommandState.SENT, winner)  # the first reply was lost
        assert not await store.mark(wanted.command_id, CommandState.SENT)
        with pytest.raises(IllegalTransitionError):  # its home was only slow, and finds that it never sent it
            await store.finish(wanted.command_id, CommandState.UNSENT, "node-a")
        assert (await store.finish(wanted.command_id, CommandState.UNSENT, winner)).won
        assert not await store.mark(wanted.command_id, CommandState.SENT, winner)

    async def test_what_was_sent_or_ended_is_taken_over_by_nobody(self, store: StateStore) -> None:
        for state in (CommandState.SENT, CommandState.ACKNOWLEDGED):
            wanted = registration()
            await store.register(wanted)
            assert await store.mark(wanted.command_id, state)
            assert not await store.mark(wanted.command_id, CommandState.SENT, "node-b")
        cancelled = registration()
        await store.register(cancelled)
        await store.finish(cancelled.command_id, CommandState.CANCELLED, "node-a")
        assert not await store.mark(cancelled.command_id, CommandState.SENT, "node-b")
        assert not await store.mark(new_id("dock-1"), CommandState.SENT, "node-b")

    async def test_the_unknown_is_ignored(self, backend: Backend, store: StateStore) -> None:
        for unknown in (new_id("dock-1"), "no command id"):
            await store.mark(unknown, CommandState.SENT)
        assert await backend.size() == 0

    async def test_other_states_are_not_for_marking(self, store: StateStore) -> None:
        with pytest.raises(ValueError, match="not marked as succeeded"):
            await store.mark(new_id("dock-1"), CommandState.SUCCEEDED)


class TestRead:
    async def test_commands_come_in_the_order_asked_for(self, store: StateStore) -> None:
        one, two = registration("dock-1"), registration("dock-2")
        await store.register(one)
        await store.register(two)
        found = await store.get([two.command_id, new_id("dock-1"), one.command_id, "no command id", two.command_id])
        ids = [command.id if command else None for command in found]
        assert ids == [two.command_id, None, one.command_id, None, two.command_id]
        assert await store.get([]) == []

    async def test_F40_the_outcome_of_what_is_not_on_record_is_gone(self, store: StateStore) -> None:
        open_one, done, unknown = registration(), registration(), new_id("dock-1")
        await store.register(open_one)
        await store.register(done)
        won = await store.respond(answer(done), "node-a")
        still_open, outcome, gone = await store.outcomes([open_one.command_id, done.command_id, unknown])
        assert still_open is None
        assert outcome == won.outcome
        assert gone is not None
        assert (gone.command_id, gone.state) == (unknown, CommandState.TIMED_OUT)
        assert gone.finished_at > 0
        assert json.loads(gone.error or b"")["code"] == "gone"

    async def test_an_id_that_no_key_can_have_is_gone_as_well(self, store: StateStore) -> None:
        """A caller would wait for it for ever, and so would those of commands that were asked for with it."""
        done = registration()
        await store.register(done)
        won = await store.respond(answer(done), "node-a")
        unknown = ["", "no command id", new_id("dock-1") + "x", "999" + new_id("dock-1")[3:], "a}b{c:*\0é"]
        *gone, outcome = await store.outcomes([*unknown, done.command_id])
        assert outcome == won.outcome
        assert [one and (one.command_id, one.state) for one in gone] == [
            (one, CommandState.TIMED_OUT) for one in unknown
        ]
        assert {json.loads(one.error or b"")["code"] for one in gone if one is not None} == {"gone"}

    async def test_pending_commands_of_a_node_come_soonest_deadline_first(self, store: StateStore) -> None:
        wanted = [registration(f"dock-{i}", timeout=timedelta(seconds=90 - i * 7 % 30)) for i in range(30)]
        others = [registration("dock-1", home="node-b"), registration("dock-2", home="node-aa")]
        done = registration("dock-3")
        for one in (*wanted, *others, done):
            await store.register(one)
        await store.respond(answer(done), "node-a")
        pending = await store.pending_of("node-a")
        assert [one.id for one in pending] == [
            one.command_id for one in sorted(wanted, key=lambda one: (one.timeout, one.command_id))
        ]
        assert [one.id for one in await store.pending_of("node-a", limit=3)] == [one.id for one in pending[:3]]
        assert await store.pending_of("node-c") == []

    async def test_a_joined_node_is_not_the_home(self, store: StateStore) -> None:
        await store.register(registration(key="k"))
        await store.register(registration(key="k", home="node-b"))
        assert await store.pending_of("node-b") == []


class TestList:
    async def pages(self, store: StateStore, query: Query) -> list[str]:
        """All ids, page after page; each page may be short."""
        ids: list[str] = []
        for _ in range(100):
            page = await store.list_commands(query)
            assert len(page.commands) <= query.limit
            ids += [command.id for command in page.commands]
            if page.cursor is None:
                return ids
            query = replace(query, cursor=page.cursor)
        pytest.fail("the pages have no end")

    async def test_all_commands_newest_first_in_pages(self, store: StateStore) -> None:
        created = []
        for i in range(25):
            one = registration(f"dock-{i % 5}")
            registered = await store.register(one)
            assert isinstance(registered, Registered)
            created.append((registered.created_at, one.command_id))
        newest_first = [command_id for _, command_id in sorted(created, reverse=True)]
        for limit in (1, 4, 5, 25, 50):
            assert await self.pages(store, Query(limit=limit)) == newest_first
            of_one = [one for one in newest_first if one.startswith(f"{partition_of('dock-3'):03d}-")]
            assert await self.pages(store, Query(device_id="dock-3", limit=limit)) == of_one

    async def test_devices_of_one_partition_are_told_apart(self, store: StateStore) -> None:
        first = "dock-0"
        second = next(name for i in range(1, 9999) if partition_of(name := f"dock-{i}") == partition_of(first))
        one, two = registration(first), registration(second)
        await store.register(one)
        await store.register(two)
        assert await self.pages(store, Query(device_id=first)) == [one.command_id]
        assert await self.pages(store, Query(device_id=second)) == [two.command_id]

    async def test_by_state(self, store: StateStore) -> None:
        done, still_open = [registration() for _ in range(5)], [registration("dock-2") for _ in range(5)]
        for one in (*done, *still_open):
            await store.register(one)
        for one in done:
            await store.respond(answer(one), "node-a")
        expected = sorted(one.command_id for one in done)
        for device in (None, "dock-1"):
            query = Query(device_id=device, state=CommandState.SUCCEEDED, limit=3)
            assert sorted(await self.pages(store, query)) == expected

    async def test_by_method_profile_and_time(self, store: StateStore) -> None:
        created = []
        for i in range(12):
            one = replace(registration(f"dock-{i % 3}"), method=("cover_open", "cover_close", "reboot")[i % 3])
            registered = await store.register(one)
            assert isinstance(registered, Registered)
            created.append((registered.created_at, one.command_id))
        newest_first = [command_id for _, command_id in sorted(created, reverse=True)]
        covers = [one for one in newest_first if not one.startswith(f"{partition_of('dock-2'):03d}-")]
        for limit in (1, 3, 50):
            assert await self.pages(store, Query(method="cover_*", limit=limit)) == covers
            assert await self.pages(store, Query(method="*boot", profile="*", limit=limit)) == [
                one for one in newest_first if one not in covers
            ]
            assert await self.pages(store, Query(profile="nobody*", limit=limit)) == []
            for first, last in ((0, 11), (3, 8), (5, 5)):
                since, until = created[first][0], created[last][0]
                within = [one for at, one in sorted(created, reverse=True) if since <= at <= until]
                span = Query(since_us=since, until_us=until, limit=limit)
                assert await self.pages(store, span) == within
                assert await self.pages(store, replace(span, method="cover_*")) == [
                    one for one in within if one in covers
                ]
                of_one = [one for one in within if one.startswith(f"{partition_of('dock-2'):03d}-")]
                assert await self.pages(store, replace(span, device_id="dock-2")) == of_one
        assert await self.pages(store, Query(since_us=created[-1][0] + 1)) == []
        assert await self.pages(store, Query(until_us=created[0][0] - 1)) == []

    async def test_the_page_after_is_not_disturbed_by_new_commands(self, store: StateStore) -> None:
        for _ in range(6):
            await store.register(registration())
        first = await store.list_commands(Query(limit=3))
        await store.register(registration())
        second = await store.list_commands(Query(limit=3, cursor=first.cursor))
        assert len({command.id for command in (*first.commands, *second.commands)}) == 6

    async def test_nothing_is_an_empty_last_page(self, store: StateStore) -> None:
        for query in (Query(), Query(device_id="dock-1")):
            page = await store.list_commands(query)
            assert (list(page.commands), page.cursor) == ([], None)

    @pytest.mark.parametrize("cursor", ["", "x", "1_", "1_ä", "-1_042-01J", "9" * 40 + "_042-01J"])
    async def test_a_cursor_that_no_page_gave_is_refused(self, store: StateStore, cursor: str) -> None:
        with pytest.raises(InvalidInputError, match="cursor"):
            await store.list_commands(Query(cursor=cursor))
