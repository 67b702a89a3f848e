from __future__ import annotations

import asyncio

from app.core.commands.command import CommandState
from tests.unit.assembly import AS_LONG_AS_IT_TAKES, Lamp, assemble, at_once, never, request, slow_to_register
from tests.waiting import PATIENCE


async def test_F20_without_any_wake_up_the_sweep_delivers() -> None:
    assembly = await assemble(2)
    assembly.lost_wake_ups = True
    lamp = Lamp(assembly.broker, at_once)
    await lamp.start()
    waking = [asyncio.create_task(member.waker.run()) for member in assembly.members]
    for _ in range(4):
        invocation = await assembly.members[0].invoker.invoke(request(), park=True)
        assembly.clock.advance(0.02)
        assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED
    assert assembly.members[0].counters["sweep.delivered"] == len(assembly.wake_ups) > 0
    for task in waking:
        task.cancel()


async def test_F20_a_fresh_subscription_reads_even_the_youngest_commands() -> None:
    assembly = await assemble(2, interval=60)
    assembly.lost_wake_ups = True
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    member = assembly.members[0]
    waking = asyncio.create_task(member.waker.run())
    invocations = [await member.invoker.invoke(request(), park=True) for _ in range(4)]
    await _turns()
    for command in lamp.received:
        lamp.say(command)
    await _turns()
    member.waker.resync()
    commands = [await invocation.wait(AS_LONG_AS_IT_TAKES) for invocation in invocations]
    assert {command.state for command in commands} == {CommandState.SUCCEEDED}
    waking.cancel()


async def test_F22_a_large_outcome_is_read_from_the_store() -> None:
    assembly = await assemble(2)
    assembly.lost_wake_ups = True
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    member = assembly.members[0]
    invocations = [await member.invoker.invoke(request(), park=True) for _ in range(2)]
    await _turns()
    for command in lamp.received:
        lamp.say(command, result="x" * 10_000)
    await _turns()
    for _, outcome in assembly.wake_ups:
        member.waker.wake(outcome.command_id, None)
    commands = [await invocation.wait(AS_LONG_AS_IT_TAKES) for invocation in invocations]
    assert [len(command.result or b"") for command in commands] == [10_002] * 2
    assert member.counters["wakeup.fetched"] == 1


async def test_F40_nobody_waits_for_a_command_that_is_gone() -> None:
    assembly = await assemble()
    member = assembly.members[0]
    waiter = member.waiters.park("042-00000000000000000000000000")
    waking = asyncio.create_task(member.waker.run())
    assembly.clock.advance(1)
    outcome = await asyncio.wait_for(waiter.future, PATIENCE)
    assert outcome is not None
    assert outcome.error is not None
    assert b"gone" in outcome.error
    waking.cancel()


async def test_F20_a_command_that_the_store_does_not_have_yet_is_not_gone() -> None:
    assembly = await assemble(make_store=slow_to_register)
    await Lamp(assembly.broker, at_once).start()
    member = assembly.members[0]
    waking = asyncio.create_task(member.waker.run())
    invoking = asyncio.create_task(member.invoker.invoke(request(), park=True))
    await asyncio.sleep(0)
    member.waker.resync()
    command = await (await invoking).wait(AS_LONG_AS_IT_TAKES)
    assert command.state is CommandState.SUCCEEDED
    waking.cancel()


async def test_only_commands_that_take_long_are_marked_as_acknowledged() -> None:
    assembly = await assemble()
    await Lamp(assembly.broker, never).start()
    member = assembly.members[0]
    lasting = await member.invoker.invoke(request(), park=False)
    await _turns()
    assembly.clock.advance(0.02)
    fresh = await member.invoker.invoke(request(), park=False)
    await _turns()
    await member.waker._mark(assembly.clock.monotonic() - 0.01)
    states = [command.state for command in await assembly.store.get([lasting.command.id, fresh.command.id]) if command]
    assert states == [CommandState.ACKNOWLEDGED, CommandState.PENDING]


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
