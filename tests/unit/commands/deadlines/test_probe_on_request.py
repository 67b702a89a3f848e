"""A probe on request: one look for all who ask, within bounds, and never more sure than what was told."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.commands.deadlines.probe_on_request import MOST, ProbeOnRequest
from app.core.commands.command import Command, CommandState
from app.core.errors import CapacityError, EventsOffError, IllegalTransitionError, InvalidInputError, NotYetError
from app.core.profiles.probes import ProbeEvidence, ProbeQuestion, Unsettled
from tests.unit.assembly import Lamp
from tests.unit.commands.deadlines.test_prober import RULES, Stage, outcome, staged, turns
from tests.unit.commands.deadlines.test_questions import ASKING, TELLING, answers, questions

S = CommandState
BOUND = RULES.replace("goal = true", 'bound = [{ path = "n", equals = "{params.n}" }]') + (
    'not_done = [{ path = "on", is_in = [false] }]\n'
)


def on_request(
    stage: Stage,
    *,
    sleep: Callable[[float], Awaitable[None]] | None = None,
    all_know: bool = True,
) -> ProbeOnRequest:
    """A probe on request that a test lets wait, beside the one of the node."""
    own = stage.member.parts.probes.on_request

    async def known(_feature: str) -> bool:
        return all_know

    async def at_once(seconds: float) -> None:
        stage.assembly.clock.advance(seconds)
        await turns()

    return ProbeOnRequest(
        store=stage.assembly.store,
        looker=own._looker,
        questions=own._questions,
        all_know=known,
        sleep=sleep or at_once,
        counters=Counter(),
    )


async def timed_out(stage: Stage, **changes: Any) -> Command:
    invocation = await stage.sent(**changes)
    await stage.after(11)
    command = await outcome(invocation)
    assert command.state is S.TIMED_OUT
    return await stage.assembly.store.read(command.id)


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path, rules=ASKING) as made:
        yield made


async def test_a_device_that_is_asked_now_says_what_it_did(asking: Stage) -> None:
    command = await timed_out(asking)
    before = len(questions(asking))
    asking.assembly.clock.advance(5)
    answers(asking, on=True)
    report = await on_request(asking).verify(command)
    assert report.result is ProbeEvidence.GOAL
    assert len(questions(asking)) == before + 1
    assert json.loads(report.command.verified or b"")["state"] == "succeeded"
    assert report.command == await asking.assembly.store.read(command.id)
    again = await on_request(asking).verify(report.command)
    assert (again, len(questions(asking))) == (report, before + 1)


async def test_a_device_is_asked_again_while_somebody_waits(asking: Stage) -> None:
    """A state that is told within a second of the time-out may be of before it."""
    invocation = await asking.sent()
    await asking.after(10.25)
    command = await asking.assembly.store.read(invocation.command.id)
    assert command.state is S.TIMED_OUT
    answers(asking, on=True)  # it tells its state when it is asked, and not otherwise
    report = await on_request(asking).verify(command)
    assert report.result is ProbeEvidence.GOAL


async def test_two_questions_to_one_device_both_get_their_turn(asking: Stage) -> None:
    command = await timed_out(asking)
    asking.assembly.clock.advance(5)
    answers(asking, on=True)
    other = asking.member.parts.probes.on_request._questions.ask
    assert other("homing", "lamp-1", ProbeQuestion("state_get", None), timedelta(seconds=5)) is not None
    await turns()
    asking.log.told = None
    assert (await on_request(asking).verify(command)).result is ProbeEvidence.GOAL


async def test_all_who_ask_share_one_look(asking: Stage) -> None:
    command = await timed_out(asking)
    before = len(questions(asking))
    asking.assembly.clock.advance(5)
    answers(asking, on=True)
    one = on_request(asking)
    reports = await asyncio.gather(*(one.verify(command) for _ in range(500)))
    assert {report.result for report in reports} == {ProbeEvidence.GOAL}
    assert len(questions(asking)) == before + 1
    assert one._under_way == {}
    assert one._counters == {"verified.goal": 1}


async def test_a_caller_who_leaves_takes_nothing_from_the_others(asking: Stage) -> None:
    command = await timed_out(asking)
    asking.assembly.clock.advance(5)
    going = asyncio.Event()

    async def wait(_seconds: float) -> None:
        await going.wait()
        asking.tell(on=True)

    one = on_request(asking, sleep=wait)
    leaves, stays = asyncio.create_task(one.verify(command)), asyncio.create_task(one.verify(command))
    await turns()
    leaves.cancel()
    await turns()
    going.set()
    assert (await stays).result is ProbeEvidence.GOAL


async def test_a_flood_is_refused_beyond_its_bound(asking: Stage) -> None:
    some = [await timed_out(asking) for _ in range(MOST + 1)]

    async def for_ever(_seconds: float) -> None:
        await asyncio.Event().wait()

    one = on_request(asking, sleep=for_ever)
    under_way = [asyncio.create_task(one.verify(each)) for each in some[:MOST]]
    await turns()
    with pytest.raises(CapacityError):
        await one.verify(some[MOST])
    shared = asyncio.create_task(one.verify(some[0]))
    await turns()
    assert not shared.done()  # it waits with those who asked first
    for task in (*under_way, shared, *one._under_way.values()):
        task.cancel()


async def test_nothing_is_annexed_beside_nodes_that_would_not_know_it(asking: Stage) -> None:
    command = await timed_out(asking)
    answers(asking, on=True)
    with pytest.raises(NotYetError):
        await on_request(asking, all_know=False).verify(command)
    assert (await asking.assembly.store.read(command.id)).verified is None


async def test_only_what_has_timed_out_and_was_not_answered_is_looked_for(asking: Stage) -> None:
    one = on_request(asking)
    is_open = (await asking.sent()).command
    with pytest.raises(IllegalTransitionError, match="pending"):
        await one.verify(is_open)
    late = await timed_out(asking)
    asking.lamp.say(next(each for each in asking.lamp.received if each["id"] == late.id))
    await turns()
    with pytest.raises(IllegalTransitionError, match="answered"):
        await one.verify(await asking.assembly.store.read(late.id))
    with pytest.raises(InvalidInputError, match="no probe for glow"):
        await one.verify(await timed_out(asking, method="glow"))


async def test_an_answer_that_comes_while_it_looks_is_not_contradicted(asking: Stage) -> None:
    command = await timed_out(asking)
    asking.assembly.clock.advance(5)

    def react(lamp: Lamp, said: dict[str, Any]) -> None:
        lamp.say({**said, "id": command.id}, "error")
        asking.tell(on=True)

    asking.lamp.reaction = react
    with pytest.raises(IllegalTransitionError, match="answered"):
        await on_request(asking).verify(command)
    assert (await asking.assembly.store.read(command.id)).verified is None


async def test_a_state_of_before_the_outcome_says_nothing_of_a_goal(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        invocation = await stage.sent()
        pending = stage.member.open_commands.get(invocation.command.id)
        assert pending is not None
        pending.puback = None  # so that the probe before the deadline settles nothing
        await stage.after(9)
        stage.tell(on=True)
        await stage.after(2)
        command = await outcome(invocation)
        assert (await on_request(stage).verify(command)).result is Unsettled.UNTOLD
        stage.assembly.clock.advance(2)
        stage.tell(on=True)
        assert (await on_request(stage).verify(command)).result is ProbeEvidence.GOAL


@pytest.mark.parametrize("state", [S.SUCCEEDED, S.FAILED])
async def test_a_state_that_names_the_command_says_either_end(tmp_path: Path, state: CommandState) -> None:
    async with staged(tmp_path, rules=BOUND) as stage:
        on = state is S.SUCCEEDED
        command = await timed_out(stage)
        stage.tell_raw(json.dumps({"on": on, "n": 4}).encode())
        assert (await on_request(stage).verify(command)).result is Unsettled.ANOTHER
        stage.tell_raw(json.dumps({"on": on, "n": 3}).encode())
        report = await on_request(stage).verify(command)
        assert json.loads(report.command.verified or b"")["state"] == state


async def test_a_goal_that_is_not_reached_now_may_have_been_reached_before(tmp_path: Path) -> None:
    async with staged(tmp_path, rules=TELLING) as stage:
        command = await timed_out(stage)
        stage.assembly.clock.advance(60)
        answers(stage, on=False)
        report = await on_request(stage).verify(command)
        assert (report.result, report.command.verified) == (Unsettled.NOT_SO, None)


async def test_a_node_that_cannot_read_last_values_finds_nothing(asking: Stage) -> None:
    command = await timed_out(asking)
    asking.log.error = EventsOffError("off")
    answers(asking, on=True)
    before = len(questions(asking))
    assert (await on_request(asking).verify(command)).result is Unsettled.BLIND
    assert len(questions(asking)) == before


@pytest.mark.parametrize("known", [{"published": False}, {"published": True, "subscribers": "none"}])
async def test_what_arrived_nowhere_was_not_done(asking: Stage, known: dict[str, object]) -> None:
    command = (await asking.sent()).command
    error = json.dumps({"code": "timed_out", "message": "", "known": known}).encode()
    await asking.assembly.store.finish(command.id, S.TIMED_OUT, "n9", error)
    asking.assembly.clock.advance(5)
    answers(asking, on=True)
    asking.tell(on=True)
    report = await on_request(asking).verify(await asking.assembly.store.read(command.id))
    assert (report.result, questions(asking)) == (Unsettled.NO_PUBACK, [])
