"""The context of a command's trace, kept with the command by every state store."""

from __future__ import annotations

from dataclasses import replace

from app.core.commands.callback import Expectation
from app.core.commands.command import CommandState
from app.core.commands.routing import MatchResult
from app.core.profiles.correlation import Correlation
from app.store.state import StateStore
from tests.contract.store_backends import Backend, answer, by_order, by_value, registration, topic_of

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_every_verdict_on_a_command_tells_its_trace(store: StateStore) -> None:
    by_id = Expectation(topic_of("dock-1"), Correlation.ID)
    for expectation in (by_id, by_order(), by_value("flight")):
        wanted = replace(registration("dock-1", expectation), trace=TRACE)
        await store.register(wanted)
        steps = [
            (CommandState.RUNNING, MatchResult.PROGRESS),
            (CommandState.SUCCEEDED, MatchResult.WON),
        ]
        if expectation.correlation is not Correlation.ORDER:  # where a repetition is known for one
            steps.append((CommandState.SUCCEEDED, MatchResult.DUPLICATE))
        for state, verdict in steps:
            recorded = await store.respond(answer(wanted, state), "node-b")
            assert (recorded.verdict, recorded.trace) == (verdict, TRACE)


async def test_a_late_response_tells_the_trace(store: StateStore) -> None:
    wanted = replace(registration(), trace=TRACE)
    await store.register(wanted)
    await store.finish(wanted.command_id, CommandState.CANCELLED, "node-a")
    recorded = await store.respond(answer(wanted), "node-b")
    assert (recorded.verdict, recorded.trace) == (MatchResult.LATE, TRACE)


async def test_a_wake_up_carries_the_trace(store: StateStore, backend: Backend) -> None:
    wanted = replace(registration(home="node-a"), trace=TRACE)
    await store.register(wanted)
    await backend.woken()
    await store.respond(answer(wanted, result=b'{"n":1}'), "node-b")
    ((node, outcome),) = await backend.woken()
    assert outcome is not None
    assert (node, outcome.trace, outcome.result, outcome.error) == ("node-a", TRACE, b'{"n":1}', None)


async def test_without_a_trace_nothing_is_told(store: StateStore, backend: Backend) -> None:
    wanted = registration(home="node-a")
    await store.register(wanted)
    await backend.woken()
    recorded = await store.respond(answer(wanted), "node-b")
    ((_, outcome),) = await backend.woken()
    assert outcome is not None
    assert recorded.trace is outcome.trace is None


async def test_what_a_node_ends_without_a_response_wakes_without_trace(store: StateStore, backend: Backend) -> None:
    wanted = replace(registration(home="node-a"), trace=TRACE)
    await store.register(wanted)
    await backend.woken()
    await store.finish(wanted.command_id, CommandState.CANCELLED, "node-b")
    ((_, outcome),) = await backend.woken()
    assert outcome is not None
    assert outcome.trace is None
