from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from app.callbacks.observer import Observers
from app.callbacks.open_commands import OpenCommands
from app.callbacks.waiters import Waiter, Waiters
from app.commands.deadlines import expirer as module
from app.commands.deadlines.expirer import Expirer
from app.commands.deadlines.missed_ends import AT_ONCE, RETRY_SECONDS
from app.core.commands.command import CommandState
from app.core.errors import StoreUnavailableError
from app.store.commands import Finished
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import registration
from tests.unit.assembly import AS_LONG_AS_IT_TAKES, Lamp, ManualClock, assemble, never, request

SECOND = timedelta(seconds=1)


async def test_a_command_times_out_at_its_deadline_and_tells_its_caller() -> None:
    assembly = await assemble()
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(timeout=10 * SECOND), park=True)
    running = asyncio.create_task(member.expirer.run())
    assembly.clock.advance(9.9)
    await _turn(member.expirer)
    assert len(member.open_commands) == 1
    assembly.clock.advance(0.2)
    await _turn(member.expirer)
    command = await invocation.wait(AS_LONG_AS_IT_TAKES)
    assert command.state is CommandState.TIMED_OUT
    assert len(member.open_commands) == 0
    running.cancel()


async def test_F8_a_deadline_that_comes_second_takes_the_winners_outcome() -> None:
    assembly = await assemble(2)
    assembly.lost_wake_ups = True
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    member = assembly.members[0]
    invocations = [await member.invoker.invoke(request(), park=True) for _ in range(2)]
    for _ in range(20):
        await asyncio.sleep(0)
    for command in lamp.received:
        lamp.say(command)
    for _ in range(20):
        await asyncio.sleep(0)
    running = asyncio.create_task(member.expirer.run())
    assembly.clock.advance(11)
    await _turn(member.expirer)
    states = [(await invocation.wait(AS_LONG_AS_IT_TAKES)).state for invocation in invocations]
    assert states == [CommandState.SUCCEEDED] * 2
    running.cancel()


class Away(MemoryStateStore):
    away = True
    asked = 0

    async def finish(self, *args: Any, **kwargs: Any) -> Finished:
        self.asked += 1
        if self.away:
            raise StoreUnavailableError("away")
        return await super().finish(*args, **kwargs)


class PartlyAway(Away):
    """One of the servers does not answer: that which has the commands in `lost`."""

    lost: frozenset[str] = frozenset()

    async def finish(self, command_id: str, *args: Any, **kwargs: Any) -> Finished:
        if command_id in self.lost:
            raise StoreUnavailableError("away")
        return await super().finish(command_id, *args, **kwargs)


class Node:
    """The part of a node that keeps deadlines, with room for thousands of commands."""

    def __init__(self) -> None:
        self.clock, self.counters = ManualClock(), Counter[str]()
        self.store = PartlyAway(self.clock)
        observers = Observers(self.counters)
        self.waiters = Waiters(self.clock, observers, most=10_000)
        self.open = OpenCommands(self.clock, self.waiters, observers, most=10_000)
        self.expirer = Expirer(
            store=self.store, open_commands=self.open, clock=self.clock, node_id="node-a", counters=self.counters
        )

    async def wait_for(self, timeout: timedelta) -> tuple[str, Waiter]:
        """Let a caller wait for a command."""
        asked = registration(timeout=timeout)
        await self.store.register(asked)
        self.open.open(asked.command_id)
        self.expirer.keep(asked.command_id, timeout)
        return asked.command_id, self.waiters.park(asked.command_id)

    async def pass_by(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await _turn(self.expirer)


@asynccontextmanager
async def expiring() -> AsyncIterator[Node]:
    node = Node()
    running = asyncio.create_task(node.expirer.run())
    yield node
    running.cancel()


async def test_a_deadline_that_the_store_missed_is_recorded_when_it_is_back() -> None:
    assembly = await assemble(make_store=lambda clock, wake: Away(clock, wake=wake))
    assert isinstance(assembly.store, Away)
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(), park=True)
    running = asyncio.create_task(member.expirer.run())
    assembly.clock.advance(10.5)
    await _turn(member.expirer)
    assembly.store.away = False
    assembly.clock.advance(1)
    await _turn(member.expirer)
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.TIMED_OUT
    running.cancel()


async def test_callers_of_a_command_past_its_deadline_do_not_wait_for_a_store_that_is_away() -> None:
    assembly = await assemble(make_store=lambda clock, wake: Away(clock, wake=wake))
    assert isinstance(assembly.store, Away)
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(timeout=10 * SECOND), park=True)
    waiting = asyncio.create_task(invocation.wait(AS_LONG_AS_IT_TAKES))
    running = asyncio.create_task(member.expirer.run())
    assembly.clock.advance(10.5)
    await _turn(member.expirer)
    assert not waiting.done()
    assembly.clock.advance(0.6)
    await _turn(member.expirer)
    assert not (await waiting).state.final
    assembly.store.away = False
    assembly.clock.advance(1)
    await _turn(member.expirer)
    assert (await assembly.store.read(invocation.command.id)).state is CommandState.TIMED_OUT
    running.cancel()


async def test_a_store_that_is_away_is_asked_for_one_of_thousands_and_ends_all_when_it_is_back() -> None:
    many = 5 * AT_ONCE
    async with expiring() as node:
        waiters = [waiter for _, waiter in [await node.wait_for(10 * SECOND) for _ in range(many)]]
        await node.pass_by(10)
        assert node.store.asked == AT_ONCE
        assert not any(waiter.future.done() for waiter in waiters)
        for _ in range(6):
            await node.pass_by(RETRY_SECONDS)
        assert node.store.asked == AT_ONCE + 6
        assert [waiter.future.result() for waiter in waiters] == [None] * many
        assert len(node.open) == many
        node.store.away = False
        await node.pass_by(RETRY_SECONDS)
        for _ in range(many // AT_ONCE + 1):
            await node.pass_by(0)
        assert len(node.open) == 0


async def test_what_one_server_does_not_end_delays_nothing_of_the_others() -> None:
    async with expiring() as node:
        for _ in range(3):
            await node.wait_for(10 * SECOND)
        late = [await node.wait_for(10 * SECOND) for _ in range(2)]
        lost = set(node.open._pending) - {identity for identity, _ in late}
        node.store.lost = frozenset(lost)
        await node.pass_by(10)
        node.store.away = False
        _, fresh = await node.wait_for(SECOND / 100)
        await node.pass_by(0.01)
        assert fresh.future.done()
        for _ in range(len(lost) + 1):
            assert len(node.open) == len(lost) + len(late)
            await node.pass_by(RETRY_SECONDS)
        await node.pass_by(0)
        assert {one for one, waiter in late if waiter.future.done()} == {one for one, _ in late}
        assert set(node.open._pending) == lost


async def test_ends_of_what_is_perhaps_on_record_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_UNKNOWN", 3)
    async with expiring() as node:
        for number in range(5):
            await node.expirer.end(f"000-{number:026}", CommandState.UNSENT)
        _, waiter = await node.wait_for(10 * SECOND)
        await node.pass_by(10)
        assert node.counters["drop.missed_end"] == 2
        await node.pass_by(2 * module.PATIENCE_SECONDS)
        assert waiter.future.done()


async def test_what_is_not_to_be_ended_later_is_left_as_it_is() -> None:
    assembly = await assemble(make_store=lambda clock, wake: Away(clock, wake=wake))
    assert isinstance(assembly.store, Away)
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(), park=True)
    with pytest.raises(StoreUnavailableError):
        await member.expirer.end(invocation.command.id, CommandState.CANCELLED, only_held=True)
    running = asyncio.create_task(member.expirer.run())
    assembly.store.away = False
    assembly.clock.advance(1)
    await _turn(member.expirer)
    assert not (await assembly.store.read(invocation.command.id)).state.final
    running.cancel()


async def test_deadlines_of_closed_commands_do_not_pile_up() -> None:
    assembly = await assemble()
    expirer = assembly.members[0].expirer
    for i in range(5000):
        expirer.keep(f"000-{i:026}", timedelta(hours=1))
    assert len(expirer._due) <= 1001


async def _turn(expirer: object) -> None:
    """Wake the expirer, whose clock a test moved, and let it work."""
    expirer._changed.set()  # type: ignore[attr-defined]
    for _ in range(20):
        await asyncio.sleep(0)
