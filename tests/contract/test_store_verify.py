"""Findings of probes after a time-out: annexed once, beside an outcome that stays as it is."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.commands.command import Command, CommandState
from app.core.commands.routing import MatchResult
from app.core.commands.stream import CommandChangeKind, Marks
from app.core.errors import CommandNotFoundError, IllegalTransitionError
from app.core.profiles.probes import ProbeEvidence, ProbeFinding
from app.core.webhooks.deliveries import OutboxEntry, Tidings
from app.store.state import StateStore
from tests.contract.store_backends import Backend, answer, new_id, registration

S = CommandState
OPEN = ProbeFinding(S.SUCCEEDED, ProbeEvidence.GOAL, "d/dock 1/ö", 17, {"a.b": "wide open\0ü", "n": 1}, 90)
SHUT = ProbeFinding(S.FAILED, ProbeEvidence.BOUND, "d/state", 18, {"a.b": None})
HOUR = timedelta(hours=1)


async def timed_out(store: StateStore) -> Command:
    wanted = registration()
    await store.register(wanted)
    await store.finish(wanted.command_id, S.TIMED_OUT, "node-a", b'{"code":"timed_out"}')
    return await store.read(wanted.command_id)


@pytest.mark.parametrize("finding", [OPEN, SHUT])
async def test_what_is_found_stands_beside_the_outcome(
    store: StateStore, other_node: StateStore, finding: ProbeFinding
) -> None:
    before = await timed_out(store)
    assert await other_node.verify(before.id, finding)
    after = await store.read(before.id)
    assert replace(after, verified=None) == before
    said = json.loads(after.verified or b"")
    assert before.finished_at is not None
    assert before.finished_at <= said.pop("found_at") <= await store.now()
    assert said == {"state": finding.state, **json.loads(finding.to_json())}


async def test_the_first_finding_stays(store: StateStore, other_node: StateStore) -> None:
    before = await timed_out(store)
    some = [(store, other_node)[at % 2].verify(before.id, (OPEN, SHUT)[at // 2 % 2]) for at in range(8)]
    assert sorted(await asyncio.gather(*some)) == [False] * 7 + [True]
    first = (await store.read(before.id)).verified
    assert not await store.verify(before.id, SHUT)
    assert (await store.read(before.id)).verified == first


async def test_only_what_has_timed_out_and_was_not_answered_is_looked_for(store: StateStore) -> None:
    wanted = registration()
    await store.register(wanted)
    with pytest.raises(IllegalTransitionError, match="pending"):
        await store.verify(wanted.command_id, OPEN)
    await store.respond(answer(wanted), "node-a")
    with pytest.raises(IllegalTransitionError, match="succeeded"):
        await store.verify(wanted.command_id, OPEN)
    late = registration()
    await store.register(late)
    await store.finish(late.command_id, S.TIMED_OUT, "node-a", b"{}")
    await store.respond(answer(late), "node-a")
    with pytest.raises(IllegalTransitionError, match="answered"):
        await store.verify(late.command_id, OPEN)
    for unknown in (new_id("dock-1"), "no command id"):
        with pytest.raises(CommandNotFoundError):
            await store.verify(unknown, OPEN)


async def test_an_answer_after_it_is_annexed_all_the_same_and_comes_last(store: StateStore) -> None:
    wanted = registration()
    await store.register(wanted)
    await store.finish(wanted.command_id, S.TIMED_OUT, "node-a", b"{}")
    before = await store.follow(wanted.command_id)
    await store.verify(wanted.command_id, OPEN)
    verified = await store.follow(wanted.command_id)
    assert (before.last, verified.last, verified.complete) == (1, 2, False)
    late = await store.respond(answer(wanted, S.FAILED), "node-a")
    assert late.verdict is MatchResult.LATE
    answered = await store.follow(wanted.command_id)
    assert (answered.last, answered.late_number, answered.complete) == (3, 3, True)


async def test_all_who_follow_are_told(backend: Backend, store: StateStore) -> None:
    await store.changes.keep(HOUR)
    marks = Marks.since(1)
    wanted = replace(registration(), notify=("wh_1",))
    await store.register(wanted)
    await store.follow(wanted.command_id, 0, "node-b")
    await store.finish(wanted.command_id, S.TIMED_OUT, "node-a", b"{}")
    await store.verify(wanted.command_id, OPEN)
    await store.respond(answer(wanted), "node-a")
    page = await store.changes.after(marks)
    told = [(one.kind, one.number, one.state) for one in page.changes]
    kinds = CommandChangeKind
    assert told == [(kinds.OUTCOME, 1, S.TIMED_OUT), (kinds.VERIFIED, 2, S.TIMED_OUT), (kinds.LATE, 3, S.TIMED_OUT)]
    assert json.loads(page.changes[1].text or b"") == {"state": "succeeded", "kind": "goal"}
    found = await store.webhooks.outbox(range(256), 10)
    assert found == [OutboxEntry(wanted.command_id, one) for one in (Tidings.OUTCOME, Tidings.VERIFIED, Tidings.LATE)]


async def test_a_command_of_homing_itself_says_so(store: StateStore) -> None:
    asked = replace(registration(), by_homing=True)
    await store.register(asked)
    assert (await store.read(asked.command_id)).by_homing
    plain = registration()
    await store.register(plain)
    assert not (await store.read(plain.command_id)).by_homing
