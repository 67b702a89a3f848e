"""The promises of `respond`, for every state store: the sentences of the port (app/store/commands.py)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable

import pytest

from app.core.commands.callback import Expectation
from app.core.commands.command import CommandState
from app.core.commands.reception import Reception
from app.core.commands.routing import MatchResult, Outcome, Recorded
from app.core.errors import (
    DeviceBusyError,
)
from app.core.profiles.correlation import Correlation
from app.store.commands import Finished, Registered
from app.store.state import StateStore
from tests.contract.store_backends import (
    MINUTE,
    Backend,
    answer,
    by_order,
    by_value,
    registration,
    topic_of,
)
from tests.contract.store_reading import LATE_ENDS, state_of, the_only


class TestRespond:
    @pytest.mark.parametrize("place", [None, by_value("flight-7"), by_order()], ids=["id", "value", "order"])
    async def test_the_response_is_the_outcome(
        self, store: StateStore, other_node: StateStore, place: Expectation | None
    ) -> None:
        wanted = registration("dock-1", *([place] if place else []))
        await store.register(wanted)
        recorded = await other_node.respond(answer(wanted), "node-b")
        assert recorded.verdict is MatchResult.WON
        assert recorded.command_id == wanted.command_id
        assert recorded.waiting == ("node-a",)
        (command,) = await store.get([wanted.command_id])
        assert command is not None
        outcome = recorded.outcome
        assert outcome is not None
        assert outcome == Outcome(
            wanted.command_id,
            CommandState.SUCCEEDED,
            outcome.finished_at,
            "node-b",
            b'{"code":0}',
            reception=Reception(None, wanted.expectations[0].correlation, 0),
        )
        assert command.matched_by is wanted.expectations[0].correlation
        assert command.finished_at == outcome.finished_at >= command.created_at
        assert (command.state, command.received_by, command.result) == (
            CommandState.SUCCEEDED,
            "node-b",
            b'{"code":0}',
        )
        assert command.forwarded
        assert await store.pending_of("node-a") == []

    async def test_a_refusal_of_the_device_is_an_outcome_too(self, store: StateStore) -> None:
        wanted = registration()
        await store.register(wanted)
        refusal = answer(wanted, CommandState.FAILED, None, b'{"code":"314004"}')
        recorded = await store.respond(refusal, "node-a")
        assert recorded.outcome is not None
        assert (recorded.outcome.state, recorded.outcome.error) == (CommandState.FAILED, b'{"code":"314004"}')
        assert await store.outcomes([wanted.command_id]) == [recorded.outcome]

    @pytest.mark.parametrize("place", [None, by_value("flight-7"), by_order()], ids=["id", "value", "order"])
    async def test_how_the_response_came_in_travels_with_the_outcome(
        self, backend: Backend, store: StateStore, place: Expectation | None
    ) -> None:
        wanted = registration("dock-1", *([place] if place else []))
        await store.register(wanted)
        response = answer(wanted)
        response.received_at, response.size = 1_763_689_751_123_456, 312
        recorded = await store.respond(response, "node-b")
        assert recorded.outcome is not None
        assert recorded.outcome.received_by == "node-b"
        assert recorded.outcome.reception == Reception(1_763_689_751_123_456, response.correlation, 312)
        assert await backend.woken() == [("node-a", recorded.outcome)]
        assert await store.outcomes([wanted.command_id]) == [recorded.outcome]
        (command,) = await store.get([wanted.command_id])
        assert command is not None
        assert command.received_by == "node-b"
        again = answer(wanted)
        again.received_at = 1_763_689_751_999_999
        if place is None:
            assert (await store.respond(again, "node-a")).outcome == recorded.outcome

    async def test_waiting_nodes_but_the_receiver_are_woken_with_the_outcome(
        self, backend: Backend, store: StateStore
    ) -> None:
        wanted = registration(key="k")
        await store.register(wanted)
        await store.register(registration(key="k", home="node-b"))
        recorded = await store.respond(answer(wanted), "node-a")
        assert await backend.woken() == [("node-b", recorded.outcome)]

    async def test_F6_F17_of_five_equal_responses_one_wins_and_four_see_its_outcome(
        self, backend: Backend, store: StateStore
    ) -> None:
        for wanted in (registration(), registration("dock-1", by_value("v"))):
            await store.register(wanted)
            first, *others = [await store.respond(answer(wanted), "node-b") for _ in range(5)]
            assert first.verdict is MatchResult.WON
            assert others == [Recorded(MatchResult.DUPLICATE, wanted.command_id, first.outcome, ("node-a",))] * 4
            assert len(await backend.woken()) == 1

    async def test_a_second_response_by_order_means_nobody(self, store: StateStore) -> None:
        wanted = registration("dock-1", by_order())
        await store.register(wanted)
        await store.respond(answer(wanted), "node-b")
        assert await store.respond(answer(wanted), "node-b") == Recorded(MatchResult.UNKNOWN)

    async def test_F7_of_different_responses_on_two_nodes_at_once_exactly_one_wins(
        self, store: StateStore, other_node: StateStore
    ) -> None:
        commands = [registration(f"dock-{i % 7}") for i in range(100)]
        await asyncio.gather(*(store.register(one) for one in commands))
        for wanted in commands:
            ok, no = answer(wanted), answer(wanted, CommandState.FAILED, None, b'{"code":1}')
            one, two = await asyncio.gather(store.respond(ok, "node-a"), other_node.respond(no, "node-b"))
            assert {one.verdict, two.verdict} == {MatchResult.WON, MatchResult.DUPLICATE}
            assert one.outcome == two.outcome == (await store.outcomes([wanted.command_id]))[0]

    @pytest.mark.parametrize("end", LATE_ENDS)
    async def test_F8_F9_response_and_end_at_once_agree_on_one_outcome(
        self, store: StateStore, other_node: StateStore, end: CommandState
    ) -> None:
        for turn in range(40):
            wanted = registration()
            await store.register(wanted)
            calls: list[Awaitable[Recorded | Finished]] = [
                store.respond(answer(wanted), "node-a"),
                other_node.finish(wanted.command_id, end, "node-b"),
            ]
            results = await asyncio.gather(*(calls[::-1] if turn % 2 else calls))
            recorded = next(one for one in results if isinstance(one, Recorded))
            finished = next(one for one in results if isinstance(one, Finished))
            (command,) = await store.get([wanted.command_id])
            assert command is not None
            assert command.state is finished.outcome.state
            assert finished.won == (command.state is end) == (recorded.verdict is MatchResult.LATE)
            assert (command.late is not None) == finished.won

    async def test_F10_a_hundred_in_flight_on_one_topic_get_their_own_answers(
        self, store: StateStore, other_node: StateStore
    ) -> None:
        commands = [registration() for _ in range(100)]
        await asyncio.gather(*(store.register(one) for one in commands))
        random.Random(1).shuffle(commands)
        await asyncio.gather(
            *(
                (store, other_node)[i % 2].respond(answer(one, result=f'"{one.command_id}"'.encode()), "node-a")
                for i, one in enumerate(commands)
            )
        )
        for command in await store.get([one.command_id for one in commands]):
            assert command is not None
            assert command.result == f'"{command.id}"'.encode()

    async def test_F12_progress_runs_and_wakes_nobody_until_the_final_response(
        self, backend: Backend, store: StateStore
    ) -> None:
        wanted = registration()
        await store.register(wanted)
        for percent in (b"10", b"20"):
            recorded = await store.respond(answer(wanted, CommandState.RUNNING, percent), "node-b")
            assert recorded == Recorded(MatchResult.PROGRESS, wanted.command_id, None, ("node-a",))
            (command,) = await store.get([wanted.command_id])
            assert command is not None
            assert (command.state, command.progress, command.result) == (CommandState.RUNNING, percent, None)
        assert await backend.woken() == []
        assert await store.outcomes([wanted.command_id]) == [None]
        assert len(await store.pending_of("node-a")) == 1
        assert (await store.respond(answer(wanted), "node-b")).verdict is MatchResult.WON
        (command,) = await store.get([wanted.command_id])
        assert command is not None
        assert (command.state, command.progress, command.result) == (CommandState.SUCCEEDED, b"20", b'{"code":0}')

    async def test_progress_by_order_leaves_the_topic_occupied(self, store: StateStore) -> None:
        wanted = registration("dock-1", by_order())
        await store.register(wanted)
        for _ in range(2):
            assert (await store.respond(answer(wanted, CommandState.RUNNING), "n")).command_id == wanted.command_id
        with pytest.raises(DeviceBusyError):
            await store.register(registration("dock-1", by_order()))
        assert (await store.respond(answer(wanted), "n")).verdict is MatchResult.WON

    async def test_F12_progress_after_the_outcome_changes_nothing(self, store: StateStore) -> None:
        for end in (None, CommandState.TIMED_OUT):
            wanted = registration()
            await store.register(wanted)
            if end is None:
                await store.respond(answer(wanted), "node-a")
            else:
                await store.finish(wanted.command_id, end, "node-a")
            before = await the_only(store, wanted.command_id)
            recorded = await store.respond(answer(wanted, CommandState.RUNNING, b"99"), "node-b")
            assert recorded.verdict is MatchResult.DUPLICATE
            assert await the_only(store, wanted.command_id) == before

    @pytest.mark.parametrize("place", [None, by_value("flight-7")], ids=["id", "value"])
    @pytest.mark.parametrize("end", LATE_ENDS)
    async def test_the_first_late_response_is_annexed_and_the_outcome_stays(
        self, backend: Backend, store: StateStore, end: CommandState, place: Expectation | None
    ) -> None:
        wanted = registration("dock-1", *([place] if place else []))
        await store.register(wanted)
        finished = await store.finish(wanted.command_id, end, "node-a", b'{"code":"x"}')
        await backend.woken()
        assert await store.respond(answer(wanted), "node-b") == Recorded(
            MatchResult.LATE, wanted.command_id, finished.outcome, ("node-a",)
        )
        again = await store.respond(answer(wanted, CommandState.FAILED, None, b"1"), "node-b")
        assert again == Recorded(MatchResult.DUPLICATE, wanted.command_id, finished.outcome, ("node-a",))
        (command,) = await store.get([wanted.command_id])
        assert command is not None
        assert (command.state, command.result, command.error) == (end, None, b'{"code":"x"}')
        assert command.received_by is None
        assert command.late is not None
        annex = json.loads(command.late)
        assert annex.pop("received_at") >= command.finished_at
        assert annex == {"state": "succeeded", "result": {"code": 0}, "error": None}
        assert await store.outcomes([wanted.command_id]) == [finished.outcome]
        assert await backend.woken() == []

    @pytest.mark.parametrize("place", [None, by_value("flight-7"), by_order()], ids=["id", "value", "order"])
    @pytest.mark.parametrize("state", [CommandState.RUNNING, CommandState.SUCCEEDED])
    async def test_an_open_command_takes_what_is_for_open_ones_only(
        self, store: StateStore, place: Expectation | None, state: CommandState
    ) -> None:
        wanted = registration("dock-1", *([place] if place else []))
        await store.register(wanted)
        recorded = await store.respond(answer(wanted, state), "node-b", open_only=True)
        assert recorded.verdict is (MatchResult.PROGRESS if state is CommandState.RUNNING else MatchResult.WON)
        assert await state_of(store, wanted.command_id) is state

    @pytest.mark.parametrize("place", [None, by_value("flight-7"), by_order()], ids=["id", "value", "order"])
    async def test_what_is_for_open_commands_only_leaves_one_with_an_outcome_as_it_is(
        self, backend: Backend, store: StateStore, place: Expectation | None
    ) -> None:
        wanted = registration("dock-1", *([place] if place else []), quarantine=MINUTE)
        await store.register(wanted)
        finished = await store.finish(wanted.command_id, CommandState.TIMED_OUT, "node-a")
        await backend.woken()
        before = await the_only(store, wanted.command_id)
        expected = Recorded(MatchResult.FINISHED, wanted.command_id, finished.outcome, ("node-a",))
        for state in (CommandState.RUNNING, CommandState.SUCCEEDED):
            assert await store.respond(answer(wanted, state), "node-b", open_only=True) == expected
        assert await the_only(store, wanted.command_id) == before
        assert await backend.woken() == []
        assert (await store.respond(answer(wanted), "node-b")).verdict is MatchResult.LATE

    async def test_a_late_refusal_is_annexed_with_its_error(self, store: StateStore) -> None:
        wanted = registration()
        await store.register(wanted)
        await store.finish(wanted.command_id, CommandState.TIMED_OUT, "node-a")
        await store.respond(answer(wanted, CommandState.FAILED, None, b'{"code":"%d"}'), "node-b")
        (command,) = await store.get([wanted.command_id])
        assert command is not None
        assert json.loads(command.late or b"")["error"] == {"code": "%d"}

    async def test_what_succeeded_one_way_is_not_annexed(self, store: StateStore) -> None:
        wanted = registration()
        await store.register(wanted)
        await store.finish(wanted.command_id, CommandState.SUCCEEDED, "node-a")
        assert (await store.respond(answer(wanted), "node-b")).verdict is MatchResult.DUPLICATE

    async def test_nobody_waits_for_what_was_never_registered(self, store: StateStore) -> None:
        for stranger in (registration(), registration("dock-1", by_value("v")), registration("dock-1", by_order())):
            assert await store.respond(answer(stranger), "node-a") == Recorded(MatchResult.UNKNOWN)

    @pytest.mark.parametrize("value", ["", "x", "042-", "999-01J00000000000000000000000", "042-01j", "{042}", "ß" * 30])
    async def test_a_value_that_is_no_command_id_is_unknown(self, store: StateStore, value: str) -> None:
        garbage = answer(registration())
        garbage.value = value
        assert await store.respond(garbage, "node-a") == Recorded(MatchResult.UNKNOWN)

    @pytest.mark.parametrize(
        ("place", "verdict"),
        [(None, MatchResult.MISMATCH), (by_value("flight-7"), MatchResult.UNKNOWN), (by_order(), MatchResult.UNKNOWN)],
        ids=["id", "value", "order"],
    )
    async def test_only_the_commands_own_profile_may_read_its_answer(
        self, store: StateStore, place: Expectation | None, verdict: MatchResult
    ) -> None:
        wanted = registration("dock-1", *([place] if place else []))
        await store.register(wanted)
        foreign = await store.respond(answer(wanted, CommandState.FAILED, profile="another"), "node-b")
        assert foreign.verdict is verdict
        assert await state_of(store, wanted.command_id) is CommandState.PENDING
        assert (await store.respond(answer(wanted, profile="dji"), "node-b")).verdict is MatchResult.WON

    async def test_a_command_with_an_id_is_never_matched_by_order(self, store: StateStore) -> None:
        wanted = registration()
        await store.register(wanted)
        anonymous = answer(registration("dock-1", by_order()))
        assert await store.respond(anonymous, "node-a") == Recorded(MatchResult.UNKNOWN)
        assert await state_of(store, wanted.command_id) is CommandState.PENDING

    async def test_the_right_id_on_another_topic_or_from_another_device_is_a_mismatch(self, store: StateStore) -> None:
        wanted = registration()
        await store.register(wanted)
        for wrong in (
            answer(wanted, topic=topic_of("dock-1", "events")),
            answer(wanted, device="dock-2"),
            answer(wanted, topic=topic_of("dock-2"), device="dock-2"),
        ):
            assert await store.respond(wrong, "node-b") == Recorded(MatchResult.MISMATCH, wanted.command_id)
        assert await state_of(store, wanted.command_id) is CommandState.PENDING

    async def test_any_expected_topic_will_do_and_the_others_are_freed(self, store: StateStore) -> None:
        places = (by_order(), by_value("v"), Expectation(topic_of("dock-1", "ack"), Correlation.ID))
        for which in range(3):
            wanted = registration("dock-1", *places)
            await store.register(wanted)
            assert (await store.respond(answer(wanted, expectation=which), "node-a")).verdict is MatchResult.WON
        assert isinstance(await store.register(registration("dock-1", *places)), Registered)

    async def test_a_large_outcome_reaches_the_waiting_nodes_as_a_hint_at_least(
        self, backend: Backend, store: StateStore
    ) -> None:
        wanted = registration()
        await store.register(wanted)
        result = b'"' + b"x" * 100_000 + b'"'
        await store.respond(answer(wanted, result=result), "node-b")
        assert [node for node, _ in await backend.woken()] == ["node-a"]
        (outcome,) = await store.outcomes([wanted.command_id])
        assert outcome is not None
        assert outcome.result == result
