"""Commands that a probe settles: while they wait for an answer, once, and never after their deadline."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.commands.command import CommandState
from app.core.commands.reception import Reception, reception_of_finding
from app.core.commands.routing import MatchResult, Outcome
from app.core.errors import CommandNotFoundError, IllegalTransitionError
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.core.profiles.probes import ProbeEvidence, ProbeFinding
from app.store.commands import Finished
from app.store.rules import NOT_DONE
from app.store.state import StateStore
from tests.contract.store_backends import MINUTE, MOMENT, Backend, answer, new_id, registration
from tests.contract.store_reading import ENDS, state_of

S = CommandState
OPEN = ProbeFinding(S.SUCCEEDED, ProbeEvidence.GOAL, "d/dock 1/ö", 17, {"a.b": "wide open\0ü", "n": 1}, 90)
SHUT = ProbeFinding(S.FAILED, ProbeEvidence.BOUND, "d/state", 18, {"a.b": None})


async def test_what_the_device_says_is_the_outcome_for_all_who_wait(
    backend: Backend, store: StateStore, other_node: StateStore
) -> None:
    wanted = registration(key="k")
    await store.register(wanted)
    await store.register(registration(key="k", home="node-b"))
    finished = await store.confirm(wanted.command_id, OPEN, "node-a")
    reception = Reception(None, Correlation.PROBE, 90, OPEN.to_json())
    outcome = Outcome(wanted.command_id, S.SUCCEEDED, finished.outcome.finished_at, "node-a", None, None, reception)
    assert finished == Finished(won=True, outcome=outcome)
    assert await other_node.outcomes([wanted.command_id]) == [outcome]
    assert await backend.woken() == [("node-b", outcome)]
    assert await store.pending_of("node-a") == []
    command = await other_node.read(wanted.command_id)
    assert (command.matched_by, command.confirmed_by, command.result) == (Correlation.PROBE, OPEN.to_json(), None)


async def test_what_was_not_done_has_failed(store: StateStore) -> None:
    wanted = registration()
    await store.register(wanted)
    assert (await store.confirm(wanted.command_id, SHUT, "node-a")).won
    command = await store.read(wanted.command_id)
    assert (command.state, command.error, command.confirmed_by) == (S.FAILED, NOT_DONE, SHUT.to_json())


@pytest.mark.parametrize("reached", [S.PENDING, S.SENT, S.ACKNOWLEDGED, S.RUNNING])
async def test_it_settles_what_waits_for_an_answer(store: StateStore, reached: CommandState) -> None:
    wanted = registration()
    await store.register(wanted)
    if reached is S.RUNNING:
        await store.respond(answer(wanted, S.RUNNING), "node-a")
    elif reached is not S.PENDING:
        await store.mark(wanted.command_id, reached)
    assert (await store.confirm(wanted.command_id, OPEN, "node-a")).won


@pytest.mark.parametrize("end", ENDS)
async def test_an_outcome_stays_as_it_is(backend: Backend, store: StateStore, end: CommandState) -> None:
    wanted = registration()
    await store.register(wanted)
    first = await store.finish(wanted.command_id, end, "node-a")
    assert await store.confirm(wanted.command_id, OPEN, "node-b") == Finished(won=False, outcome=first.outcome)
    assert (await store.read(wanted.command_id)).confirmed_by is None
    assert await backend.woken() == []


async def test_of_several_nodes_and_the_device_one_settles_it(store: StateStore, other_node: StateStore) -> None:
    wanted = registration()
    await store.register(wanted)
    identity = wanted.command_id
    probed = [(store, other_node)[at % 2].confirm(identity, OPEN, f"node-{at}") for at in range(6)]
    recorded, finished = await asyncio.gather(
        store.respond(answer(wanted, S.FAILED), "node-a"), asyncio.gather(*probed)
    )
    won = [one for one in finished if one.won]
    assert len(won) + (recorded.verdict is MatchResult.WON) == 1
    (outcome,) = await store.outcomes([identity])
    assert outcome is not None
    assert all(one.outcome == outcome for one in finished)


async def test_the_same_call_again_finds_its_own_outcome(store: StateStore) -> None:
    wanted = registration()
    await store.register(wanted)
    first = await store.confirm(wanted.command_id, OPEN, "node-a")
    again = await store.confirm(wanted.command_id, OPEN, "node-a")
    assert again == Finished(won=False, outcome=first.outcome)
    assert again.outcome.reception == reception_of_finding(OPEN)


async def test_nothing_is_settled_after_the_deadline(backend: Backend, store: StateStore) -> None:
    wanted = registration(timeout=MOMENT)
    await store.register(wanted)
    await backend.advance(MOMENT * 2)
    with pytest.raises(IllegalTransitionError, match="past its deadline"):
        await store.confirm(wanted.command_id, OPEN, "node-a")
    assert await state_of(store, wanted.command_id) is S.PENDING
    (outcome,) = await store.sweep(range(256), "node-a", timedelta())
    assert (outcome.command_id, outcome.state) == (wanted.command_id, S.TIMED_OUT)


async def test_what_was_never_sent_is_not_settled(store: StateStore) -> None:
    held = registration(held=MINUTE)
    await store.register(held)
    with pytest.raises(IllegalTransitionError, match="held"):
        await store.confirm(held.command_id, OPEN, "node-a")
    one_way = replace(registration(), expectations=())
    await store.register(one_way)
    with pytest.raises(IllegalTransitionError, match="one-way"):
        await store.confirm(one_way.command_id, OPEN, "node-a")
    for unknown in (new_id("dock-1"), "no command id"):
        with pytest.raises(CommandNotFoundError):
            await store.confirm(unknown, OPEN, "node-a")


async def test_it_frees_the_place_in_a_lane(store: StateStore) -> None:
    lane = CommandLane("flight", LaneOrder.FIFO, 1, timedelta())
    first, second = registration(lane=lane, waits=MINUTE), registration(lane=lane, waits=MINUTE)
    for one in (first, second):
        await store.register(one)
    finished = await store.confirm(first.command_id, OPEN, "node-a")
    assert finished.outcome.follower is not None
    assert finished.outcome.follower.command_id == second.command_id


@pytest.mark.parametrize("said", [S.SUCCEEDED, S.FAILED])
async def test_an_answer_after_all_is_annexed_once_and_changes_nothing(
    store: StateStore, other_node: StateStore, said: CommandState
) -> None:
    wanted = registration()
    await store.register(wanted)
    confirmed = await store.confirm(wanted.command_id, OPEN, "node-a")
    running = await other_node.respond(answer(wanted, S.RUNNING), "node-b")
    assert running.verdict is MatchResult.DUPLICATE
    late = await other_node.respond(answer(wanted, said), "node-b")
    assert (late.verdict, late.outcome) == (MatchResult.LATE, confirmed.outcome)
    assert (await store.respond(answer(wanted, S.FAILED), "node-a")).verdict is MatchResult.DUPLICATE
    command = await store.read(wanted.command_id)
    assert (command.state, command.confirmed_by) == (S.SUCCEEDED, OPEN.to_json())
    assert json.loads(command.late or b"")["state"] == said


async def test_what_an_echo_has_answered_takes_nothing_late(store: StateStore) -> None:
    wanted = registration()
    await store.register(wanted)
    echo = replace(answer(wanted), correlation=Correlation.ECHO)
    assert (await store.respond(echo, "node-a")).verdict is MatchResult.WON
    assert (await store.respond(answer(wanted, S.FAILED), "node-a")).verdict is MatchResult.DUPLICATE
    assert (await store.read(wanted.command_id)).late is None
