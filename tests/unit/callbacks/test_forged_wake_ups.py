"""Forged wake-ups: a caller is handed what the store has, whoever may publish on a node's channel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from app.callbacks.waker import HINTS_PER_SECOND
from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome
from app.store.memory.commands.store import MemoryStateStore
from tests.unit.assembly import AS_LONG_AS_IT_TAKES, WAKE_KEY, Assembly, Lamp, ManualClock, assemble, never, request


class Counting(MemoryStateStore):
    """Counts the commands whose outcomes are read."""

    asked: list[int]

    async def outcomes(self, command_ids: Sequence[str]) -> list[Outcome | None]:
        self.asked.append(len(command_ids))
        await asyncio.sleep(0)
        return await super().outcomes(command_ids)


def counting(clock: ManualClock, wake: object) -> MemoryStateStore:
    store = Counting(clock, wake_key=WAKE_KEY)
    store.asked = []
    return store


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def forged(command_id: str, token: str = "") -> Outcome:
    return Outcome(command_id, CommandState.SUCCEEDED, 17, "n2", b'{"pwned":true}', token=token)


@pytest.mark.parametrize("token", ["", "A" * 12])
async def test_a_forged_outcome_reaches_nobody(token: str) -> None:
    assembly = await assemble(make_store=counting)
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(), park=True)
    member.waker.wake(invocation.command.id, forged(invocation.command.id, token))
    await _turns()
    assert invocation.command.id in member.open_commands
    await assembly.store.finish(invocation.command.id, CommandState.CANCELLED, "n9", b"{}")
    member.waker.wake(invocation.command.id, forged(invocation.command.id, token))
    command = await invocation.wait(AS_LONG_AS_IT_TAKES)
    assert (command.state, command.result) == (CommandState.CANCELLED, None)
    assert member.counters["drop.forged_wake_up"] == (2 if token else 0)
    assert member.counters["wakeup.fetched"] == 1


async def test_a_wake_up_with_the_token_of_its_command_is_believed() -> None:
    assembly = await assemble(make_store=counting)
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(), park=True)
    member.waker.wake(invocation.command.id, forged(invocation.command.id, WAKE_KEY.token(invocation.command.id)))
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).result == b'{"pwned":true}'
    assert member.counters["wakeup.delivered"] == 1
    assert _asked(assembly) == []


async def test_a_token_of_another_command_is_worth_nothing() -> None:
    assembly = await assemble(make_store=counting)
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(), park=True)
    member.waker.wake(invocation.command.id, forged(invocation.command.id, WAKE_KEY.token("042-other")))
    await _turns()
    assert invocation.command.id in member.open_commands


async def test_a_flood_of_forgeries_is_no_flood_of_reads() -> None:
    assembly = await assemble(make_store=counting)
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(), park=True)
    for number in range(10_000):
        member.waker.wake(f"042-{number:026}", None)
        member.waker.wake(f"042-{number:026}", forged(f"042-{number:026}", "A" * 12))
    await _turns()
    assert _asked(assembly) == []
    for _ in range(3 * HINTS_PER_SECOND):
        member.waker.wake(invocation.command.id, None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await _turns()
    assert sum(_asked(assembly)) <= HINTS_PER_SECOND
    assert member.counters["drop.hint_over_budget"] > 0
    assembly.clock.advance(1)
    await assembly.store.finish(invocation.command.id, CommandState.CANCELLED, "n9", b"{}")
    member.waker.wake(invocation.command.id, None)
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.CANCELLED


async def test_hints_that_come_together_are_read_together() -> None:
    assembly = await assemble(make_store=counting)
    await Lamp(assembly.broker, never).start()
    member = assembly.members[0]
    invocations = [await member.invoker.invoke(request(), park=True) for _ in range(40)]
    for invocation in invocations:
        await assembly.store.finish(invocation.command.id, CommandState.CANCELLED, "n9", b"{}")
        member.waker.wake(invocation.command.id, None)
    for invocation in invocations:
        assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.CANCELLED
    assert _asked(assembly) == [40]


def _asked(assembly: Assembly) -> list[int]:
    assert isinstance(assembly.store, Counting)
    return assembly.store.asked
