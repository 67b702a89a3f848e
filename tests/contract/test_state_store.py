"""What every state store must do, sentence by sentence of the port (app/store/base.py). Both are held to all of it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta

import pytest

from app.core.callback import Correlation, Expectation
from app.core.command import CommandState
from app.core.errors import (
    CommandNotFoundError,
    DeviceBusyError,
    IdempotencyMismatchError,
    IllegalTransitionError,
    InvalidInputError,
)
from app.core.identifiers import PARTITIONS, partition_of
from app.core.routing import Outcome, Recorded, Verdict
from app.store.base import Finished, Joined, Query, Registered, StateStore
from tests.contract.store_backends import (
    MINUTE,
    MOMENT,
    Backend,
    MemoryBackend,
    RedisBackend,
    answer,
    by_order,
    by_value,
    new_id,
    registration,
    topic_of,
)

ALL_PARTITIONS = range(PARTITIONS)
NO_GRACE = timedelta()
LATE_ENDS = [CommandState.TIMED_OUT, CommandState.CANCELLED, CommandState.UNSENT]
ENDS = [*LATE_ENDS, CommandState.SUCCEEDED]


@pytest.fixture(params=["memory", "redis"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    place: Backend
    if request.param == "redis":
        place = redis = RedisBackend(request.getfixturevalue("redis_server").url)
        await redis.begin()
    else:
        place = MemoryBackend()
    yield place
    await place.close()


@pytest.fixture
async def store(backend: Backend) -> StateStore:
    return await backend.open()


@pytest.fixture
async def other_node(backend: Backend) -> StateStore:
    return await backend.open()


async def the_only(store: StateStore, command_id: str) -> object:
    (command,) = await store.get([command_id])
    return command


async def state_of(store: StateStore, command_id: str) -> CommandState | None:
    (command,) = await store.get([command_id])
    return command.state if command is not None else None


async def swept(store: StateStore) -> list[Outcome]:
    return await store.sweep(ALL_PARTITIONS, "sweeper", NO_GRACE)


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
        one_way = type(wanted)(**{name: getattr(wanted, name) for name in wanted.__slots__} | {"expectations": ()})
        await store.register(one_way)
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
        await store.finish(first.command_id, end, "node-a")
        with pytest.raises(DeviceBusyError):
            await store.register(second)
        stale = await store.respond(answer(first), "node-b")
        assert (stale.verdict, stale.command_id) == (Verdict.LATE, first.command_id)
        await store.register(second)
        assert await state_of(store, second.command_id) is CommandState.PENDING
        assert (await store.respond(answer(second), "node-b")).command_id == second.command_id

    async def test_F11_progress_does_not_end_the_quarantine(self, store: StateStore) -> None:
        first = registration("dock-1", by_order(), quarantine=MINUTE)
        await store.register(first)
        await store.finish(first.command_id, CommandState.TIMED_OUT, "node-a")
        assert (await store.respond(answer(first, CommandState.RUNNING), "n")).verdict is Verdict.DUPLICATE
        with pytest.raises(DeviceBusyError):
            await store.register(registration("dock-1", by_order()))

    async def test_after_the_quarantine_the_topic_is_free_and_a_response_means_nobody(
        self, backend: Backend, store: StateStore
    ) -> None:
        first = registration("dock-1", by_order(), quarantine=MOMENT)
        await store.register(first)
        await store.finish(first.command_id, CommandState.TIMED_OUT, "node-a")
        await backend.advance(2 * MOMENT)
        assert await store.respond(answer(first), "node-b") == Recorded(Verdict.UNKNOWN)
        assert isinstance(await store.register(registration("dock-1", by_order())), Registered)

    async def test_the_record_lives_at_least_as_long_as_the_quarantine(
        self, backend: Backend, store: StateStore
    ) -> None:
        first = registration("dock-1", by_order(), quarantine=MINUTE, retention=MOMENT)
        await store.register(first)
        await store.finish(first.command_id, CommandState.TIMED_OUT, "node-a")
        await backend.advance(2 * MOMENT)
        assert (await store.respond(answer(first), "node-b")).verdict is Verdict.LATE

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


class TestRespond:
    @pytest.mark.parametrize("place", [None, by_value("flight-7"), by_order()], ids=["id", "value", "order"])
    async def test_the_response_is_the_outcome(
        self, store: StateStore, other_node: StateStore, place: Expectation | None
    ) -> None:
        wanted = registration("dock-1", *([place] if place else []))
        await store.register(wanted)
        recorded = await other_node.respond(answer(wanted), "node-b")
        assert recorded.verdict is Verdict.WON
        assert recorded.command_id == wanted.command_id
        assert recorded.waiting == ("node-a",)
        (command,) = await store.get([wanted.command_id])
        assert command is not None
        outcome = recorded.outcome
        assert outcome is not None
        assert outcome == Outcome(
            wanted.command_id, CommandState.SUCCEEDED, outcome.finished_at, "node-b", b'{"code":0}', None
        )
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
            assert first.verdict is Verdict.WON
            assert others == [Recorded(Verdict.DUPLICATE, wanted.command_id, first.outcome, ("node-a",))] * 4
            assert len(await backend.woken()) == 1

    async def test_a_second_response_by_order_means_nobody(self, store: StateStore) -> None:
        wanted = registration("dock-1", by_order())
        await store.register(wanted)
        await store.respond(answer(wanted), "node-b")
        assert await store.respond(answer(wanted), "node-b") == Recorded(Verdict.UNKNOWN)

    async def test_F7_of_different_responses_on_two_nodes_at_once_exactly_one_wins(
        self, store: StateStore, other_node: StateStore
    ) -> None:
        commands = [registration(f"dock-{i % 7}") for i in range(100)]
        await asyncio.gather(*(store.register(one) for one in commands))
        for wanted in commands:
            ok, no = answer(wanted), answer(wanted, CommandState.FAILED, None, b'{"code":1}')
            one, two = await asyncio.gather(store.respond(ok, "node-a"), other_node.respond(no, "node-b"))
            assert {one.verdict, two.verdict} == {Verdict.WON, Verdict.DUPLICATE}
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
            assert finished.won == (command.state is end) == (recorded.verdict is Verdict.LATE)
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
            assert recorded == Recorded(Verdict.PROGRESS, wanted.command_id, None, ("node-a",))
            (command,) = await store.get([wanted.command_id])
            assert command is not None
            assert (command.state, command.progress, command.result) == (CommandState.RUNNING, percent, None)
        assert await backend.woken() == []
        assert await store.outcomes([wanted.command_id]) == [None]
        assert len(await store.pending_of("node-a")) == 1
        assert (await store.respond(answer(wanted), "node-b")).verdict is Verdict.WON
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
        assert (await store.respond(answer(wanted), "n")).verdict is Verdict.WON

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
            assert recorded.verdict is Verdict.DUPLICATE
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
            Verdict.LATE, wanted.command_id, None, ("node-a",)
        )
        again = await store.respond(answer(wanted, CommandState.FAILED, None, b"1"), "node-b")
        assert again == Recorded(Verdict.DUPLICATE, wanted.command_id, finished.outcome, ("node-a",))
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
        assert (await store.respond(answer(wanted), "node-b")).verdict is Verdict.DUPLICATE

    async def test_nobody_waits_for_what_was_never_registered(self, store: StateStore) -> None:
        for stranger in (registration(), registration("dock-1", by_value("v")), registration("dock-1", by_order())):
            assert await store.respond(answer(stranger), "node-a") == Recorded(Verdict.UNKNOWN)

    @pytest.mark.parametrize("value", ["", "x", "042-", "999-01J00000000000000000000000", "042-01j", "{042}", "ß" * 30])
    async def test_a_value_that_is_no_command_id_is_unknown(self, store: StateStore, value: str) -> None:
        garbage = answer(registration())
        garbage.value = value
        assert await store.respond(garbage, "node-a") == Recorded(Verdict.UNKNOWN)

    async def test_a_command_with_an_id_is_never_matched_by_order(self, store: StateStore) -> None:
        wanted = registration()
        await store.register(wanted)
        anonymous = answer(registration("dock-1", by_order()))
        assert await store.respond(anonymous, "node-a") == Recorded(Verdict.UNKNOWN)
        assert await state_of(store, wanted.command_id) is CommandState.PENDING

    async def test_the_right_id_on_another_topic_or_from_another_device_is_a_mismatch(self, store: StateStore) -> None:
        wanted = registration()
        await store.register(wanted)
        for wrong in (
            answer(wanted, topic=topic_of("dock-1", "events")),
            answer(wanted, device="dock-2"),
            answer(wanted, topic=topic_of("dock-2"), device="dock-2"),
        ):
            assert await store.respond(wrong, "node-b") == Recorded(Verdict.MISMATCH, wanted.command_id)
        assert await state_of(store, wanted.command_id) is CommandState.PENDING

    async def test_any_expected_topic_will_do_and_the_others_are_freed(self, store: StateStore) -> None:
        places = (by_order(), by_value("v"), Expectation(topic_of("dock-1", "ack"), Correlation.ID))
        for which in range(3):
            wanted = registration("dock-1", *places)
            await store.register(wanted)
            assert (await store.respond(answer(wanted, expectation=which), "node-a")).verdict is Verdict.WON
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
            query = Query(query.device_id, query.state, query.limit, page.cursor)
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
        assert await store.respond(answer(wanted), "node-a") == Recorded(Verdict.UNKNOWN)
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
        assert (await store.respond(answer(wanted), "node-a")).verdict is Verdict.WON

    async def test_the_retention_begins_anew_with_the_outcome(self, backend: Backend, store: StateStore) -> None:
        wanted = registration(timeout=MOMENT, retention=10 * MOMENT)
        await store.register(wanted)
        await backend.advance(7 * MOMENT)
        assert (await store.respond(answer(wanted), "node-a")).verdict is Verdict.WON
        await backend.advance(7 * MOMENT)
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
                retention=3 * MOMENT,
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
        await backend.advance(5 * MOMENT)
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
