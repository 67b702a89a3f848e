from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from app.core.commands.command import CommandState
from app.core.errors import StoreUnavailableError
from app.store.commands import Finished
from app.store.memory.commands.store import MemoryStateStore
from tests.unit.assembly import AS_LONG_AS_IT_TAKES, Lamp, assemble, never, request

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

    async def finish(self, *args: Any, **kwargs: Any) -> Finished:
        if self.away:
            raise StoreUnavailableError("away")
        return await super().finish(*args, **kwargs)


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
