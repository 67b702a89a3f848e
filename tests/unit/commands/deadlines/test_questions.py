"""Devices that are asked for their state: once for all who wait, and believed only as far as an answer proves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.commands.deadlines.questions import DeviceQuestion
from app.core.commands.command import CommandState
from app.core.errors import EventsOffError, StoreUnavailableError
from app.core.payload import JsonValue
from app.core.profiles.correlation import Correlation
from app.core.profiles.probes import ProbeQuestion
from app.store.memory.commands.store import MemoryStateStore
from app.store.rules import GOAL_NOT_REACHED
from tests.unit.assembly import Lamp, Member, request
from tests.unit.commands.deadlines.test_prober import RULES, Stage, outcome, staged, turns

S = CommandState
ASKING = RULES + 'ask = { method = "state_get", params = { all = true } }\n'
TELLING = (
    ASKING
    + 'not_done = [{ path = "on", is_in = [false] }]\nafter = "1s"\n'
    + '[[lane]]\nname = "light"\nmethods = ["blink"]\n'
)


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path, rules=ASKING) as made:
        yield made


@pytest.fixture
async def telling(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path, rules=TELLING) as made:
        yield made


def answers(stage: Stage, *, on: bool | None, status: str | None = "ok") -> None:
    """Let the lamp be one that tells its state, and answers, when it is asked."""

    def react(lamp: Lamp, command: dict[str, Any]) -> None:
        if command["method"] == "state_get":
            if on is not None:
                stage.tell(on=on)
            if status is not None:
                lamp.say(command, status)

    stage.lamp.reaction = react


def questions(stage: Stage) -> list[dict[str, Any]]:
    return [one for one in stage.lamp.received if one["method"] == "state_get"]


async def test_a_device_that_tells_its_state_when_it_is_asked_is_asked(asking: Stage) -> None:
    answers(asking, on=True)
    invocation = await asking.sent()
    await asking.after(5.75)
    assert questions(asking) == []  # its answer is still welcome
    await asking.after(1)
    command = await outcome(invocation)
    assert (command.state, command.matched_by) == (S.SUCCEEDED, Correlation.PROBE)
    (question,) = questions(asking)
    assert question["params"] == {"all": True}
    asked = await asking.assembly.store.read(question["id"])
    assert (asked.by_homing, asked.state, asked.notify) == (True, S.SUCCEEDED, ())
    assert not command.by_homing
    assert asking.counters == {"probe.question.answered": 1, "probe.goal": 1}


async def test_a_command_that_is_answered_or_cancelled_in_time_has_nobody_asked(asking: Stage) -> None:
    answered, cancelled = await asking.sent(), await asking.sent()
    await asking.after(5)
    asking.lamp.say(asking.lamp.received[0])
    await asking.member.invoker.cancel(cancelled.command.id)
    await asking.after(6)
    assert ((await outcome(answered)).state, (await outcome(cancelled)).state) == (S.SUCCEEDED, S.CANCELLED)
    assert (questions(asking), asking.counters) == ([], {})


async def test_a_cancellation_while_the_device_is_asked_is_the_end(asking: Stage) -> None:
    invocation = await asking.sent()
    await asking.after(6.5)
    assert len(questions(asking)) == 1
    await asking.member.invoker.cancel(invocation.command.id)
    asking.lamp.say(questions(asking)[0])
    asking.tell(on=True)
    await asking.after(5)
    assert (await outcome(invocation)).state is S.CANCELLED
    assert len(questions(asking)) == 1


async def test_a_device_is_asked_once_a_second_for_all_who_wait(asking: Stage) -> None:
    answers(asking, on=None)
    some = [await asking.sent() for _ in range(20)]
    await asking.after(7)
    assert 1 <= len(questions(asking)) <= 2
    await asking.after(4)
    assert {(await outcome(one)).state for one in some} == {S.TIMED_OUT}
    assert len(questions(asking)) <= 4
    answers(asking, on=True)


async def test_each_device_is_asked_for_itself(asking: Stage) -> None:
    for device in ("lamp-1", "lamp-2"):
        await asking.sent(device_id=device)
    await asking.after(6.5)
    assert sorted(one["device_id"] for one in questions(asking)) == ["lamp-1", "lamp-2"]


async def test_another_question_waits_its_turn(asking: Stage) -> None:
    ask = asking.member.parts.probes.prober._questions.ask
    first = ask("homing", "lamp-1", ProbeQuestion("state_get", None), timedelta(seconds=5))
    assert first is not None
    assert ask("homing", "lamp-1", ProbeQuestion("state_get", None), timedelta(seconds=5)) is first
    assert ask("homing", "lamp-1", ProbeQuestion("state_get", {"a": 1}), timedelta(seconds=5)) is None
    await turns()
    asking.assembly.clock.advance(1)
    assert ask("homing", "lamp-1", ProbeQuestion("state_get", {"a": 1}), timedelta(seconds=5)) not in (None, first)


async def test_a_node_asks_only_so_many(asking: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.commands.deadlines.questions.MOST", 3)
    ask = asking.member.parts.probes.prober._questions.ask
    asked = [ask("homing", f"lamp-{one}", ProbeQuestion("state_get", None), timedelta(seconds=5)) for one in range(5)]
    assert [one is None for one in asked] == [False, False, False, True, True]
    assert asking.counters == {"probe.question.full": 2}


async def test_what_has_not_reached_the_broker_or_a_log_that_is_off_has_nobody_asked(asking: Stage) -> None:
    first = await asking.sent()
    pending = asking.member.open_commands.get(first.command.id)
    assert pending is not None
    pending.puback = None
    await asking.after(11)
    asking.log.error = EventsOffError("off")
    await asking.sent()
    await asking.after(11)
    assert questions(asking) == []
    assert asking.counters == {"probe.no_puback": 1, "probe.blind": 1}


async def test_a_device_that_is_gone_costs_one_refusal_and_settles_nothing(asking: Stage) -> None:
    invocation = await asking.sent()
    await asking.after(5)
    await asking.lamp.client.stop()
    await asking.after(6)
    assert (await outcome(invocation)).state is S.TIMED_OUT
    assert asking.counters["probe.untold"] == 1
    assert "probe.question.answered" not in asking.counters


@pytest.mark.parametrize("status", ["ok", "error"])
async def test_a_goal_that_is_not_reached_long_after_an_answer_has_failed(telling: Stage, status: str) -> None:
    answers(telling, on=False, status=status)
    invocation = await telling.sent()
    await telling.after(10)
    command = await outcome(invocation)
    assert (command.state, command.error) == (S.FAILED, GOAL_NOT_REACHED)
    assert json.loads(command.confirmed_by or b"")["kind"] == "not_done"
    assert telling.counters["probe.not_done"] == 1
    assert len(questions(telling)) <= 4


async def test_a_state_without_an_answer_is_no_failure(telling: Stage) -> None:
    """A device that tells its state all the time may not have heard of the command yet."""
    answers(telling, on=False, status=None)
    invocation = await telling.sent()
    await telling.after(11)
    assert (await outcome(invocation)).state is S.TIMED_OUT
    assert telling.counters["probe.not_so"] == 1


async def test_an_answer_that_comes_after_the_deadline_is_no_failure(telling: Stage) -> None:
    answers(telling, on=False, status=None)
    invocation = await telling.sent()
    await telling.after(9.75)
    telling.lamp.say(questions(telling)[0])
    await telling.after(3)
    assert (await outcome(invocation)).state is S.TIMED_OUT


async def test_an_answer_to_what_was_asked_before_the_command_proves_nothing(telling: Stage) -> None:
    """It shares the second with the command, and was sent before it: the device may have lacked the command."""
    answers(telling, on=False)
    ask = telling.member.parts.probes.prober._questions.ask
    assert ask("homing", "lamp-1", ProbeQuestion("state_get", {"all": True}), timedelta(seconds=9)) is not None
    await turns()
    telling.assembly.clock.advance(0.1)
    answers(telling, on=False, status=None)
    invocation = await telling.sent(timeout=timedelta(seconds=4))
    await telling.after(5)
    assert (await outcome(invocation)).state is S.TIMED_OUT


async def test_it_may_be_done_while_the_device_is_asked(telling: Stage) -> None:
    answers(telling, on=False)
    invocation = await telling.sent()
    await telling.after(7)
    answers(telling, on=True)
    await telling.after(2)
    command = await outcome(invocation)
    assert (command.state, command.matched_by) == (S.SUCCEEDED, Correlation.PROBE)


def _asks(stage: Stage, member: Member) -> DeviceQuestion | None:
    ask = member.parts.probes.prober._questions.ask
    return ask("homing", "lamp-1", ProbeQuestion("state_get", {"all": True}), timedelta(seconds=5))


class Turnless(MemoryStateStore):
    """A store that does not answer who has the turn."""

    async def turn_to_ask(self, device_id: str, command_id: str) -> str:
        raise StoreUnavailableError("away")


class Taken(MemoryStateStore):
    """A store in which another question has every turn, once its id is known."""

    holder: str | None = None

    async def turn_to_ask(self, device_id: str, command_id: str) -> str:
        return self.holder or await super().turn_to_ask(device_id, command_id)


async def test_two_nodes_that_wait_for_a_device_ask_it_once_a_second(tmp_path: Path) -> None:
    async with staged(tmp_path, rules=ASKING, size=2) as stage:
        answers(stage, on=None)
        some = [await one.invoker.invoke(request(), park=True) for one in stage.assembly.members for _ in range(3)]
        await turns()
        await stage.after(7)
        assert 1 <= len(questions(stage)) <= 2
        await stage.after(4)
        assert {(await outcome(one)).state for one in some} == {S.TIMED_OUT}
        assert 3 <= len(questions(stage)) <= 4
        assert sum(one.counters["probe.question.shared"] for one in stage.assembly.members) >= 3


@pytest.mark.parametrize(
    ("params", "state"), [({"all": True}, S.FAILED), ({"all": False}, S.TIMED_OUT)], ids=["the same", "another"]
)
async def test_an_answer_to_the_question_of_another_node_proves_as_much(
    tmp_path: Path, params: JsonValue, state: CommandState
) -> None:
    async with staged(tmp_path, store=Taken, rules=TELLING, size=2) as stage:
        answers(stage, on=False)
        first, second = stage.assembly.members
        invocation = await second.invoker.invoke(request(), park=True)
        await turns()
        await stage.after(5)
        ask = first.parts.probes.prober._questions.ask
        ask("homing", "lamp-1", ProbeQuestion("state_get", params), timedelta(seconds=5))
        await turns()
        (question,) = questions(stage)
        taken = stage.assembly.store
        assert isinstance(taken, Taken)
        taken.holder = question["id"]
        for _ in range(6):
            await stage.after(1)
            stage.tell(on=False)
        assert (await outcome(invocation)).state is state
        assert questions(stage) == [question]
        assert second.counters["probe.question.shared"] >= 1


async def test_a_question_that_another_node_put_before_the_command_proves_nothing(tmp_path: Path) -> None:
    async with staged(tmp_path, rules=TELLING, size=2) as stage:
        answers(stage, on=False)
        first, second = stage.assembly.members
        assert _asks(stage, first) is not None
        await turns()
        stage.assembly.clock.advance(0.1)
        answers(stage, on=False, status=None)
        invocation = await second.invoker.invoke(request(timeout=timedelta(seconds=4)), park=True)
        await turns()
        await stage.after(5)
        assert (await outcome(invocation)).state is S.TIMED_OUT


async def test_nobody_asks_while_the_store_gives_no_turns(tmp_path: Path) -> None:
    async with staged(tmp_path, store=Turnless, rules=ASKING) as stage:
        invocation = await stage.sent()
        await stage.after(11)
        assert (await outcome(invocation)).state is S.TIMED_OUT
        assert questions(stage) == []
        assert stage.counters["probe.question.not_sent"] >= 1


async def test_a_survivor_looks_for_what_the_broker_had(tmp_path: Path) -> None:
    async with staged(tmp_path, rules=ASKING, size=2) as stage:
        answers(stage, on=True)
        dead, survivor = stage.assembly.members
        reached = (await dead.invoker.invoke(request(), park=False)).command
        unknown = (await dead.invoker.invoke(request(), park=False)).command
        await turns()
        await stage.assembly.store.mark(reached.id, S.ACKNOWLEDGED)
        for one in (reached, unknown):  # the node dies: it keeps no deadlines any more
            dead.open_commands.discard(one.id)
        await stage.after(1)
        await survivor.prober.take_over("n1")
        await survivor.prober.take_over("n1")  # as after an interruption
        await stage.after(8)
        command = await stage.assembly.store.read(reached.id)
        assert (command.state, command.matched_by, command.received_by) == (S.SUCCEEDED, Correlation.PROBE, "n2")
        assert (await stage.assembly.store.read(unknown.id)).state is S.PENDING
        assert survivor.counters["probe.goal"] == 1
        assert survivor.counters["probe.no_puback"] == 2


async def test_a_survivor_leaves_alone_what_ends_by_itself(tmp_path: Path) -> None:
    async with staged(tmp_path, rules=ASKING, size=2) as stage:
        dead, survivor = stage.assembly.members
        command = (await dead.invoker.invoke(request(), park=False)).command
        await turns()
        await stage.assembly.store.mark(command.id, S.ACKNOWLEDGED)
        await survivor.prober.take_over("n1")
        stage.lamp.say(stage.lamp.received[0], "error")
        await turns()
        stage.tell(on=True)
        await stage.after(11)
        assert (await stage.assembly.store.read(command.id)).state is S.FAILED
        assert (questions(stage), stage.log.asked) == ([], [])
