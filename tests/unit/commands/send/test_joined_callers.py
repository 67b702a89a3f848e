"""Callers that joined a command which turns out to be unsent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from app.commands.send.unsent import may_be_sent_again, unsent_code
from app.core.commands.callback import Registration
from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome
from app.core.errors import (
    PacketTooLargeError,
    StoreUnavailableError,
)
from app.core.messages import Publication
from app.mqtt.base import Puback
from app.mqtt.loopback import LoopbackMqttClient
from app.store.commands import Finished, Joined, Registered
from app.store.memory.commands.store import MemoryStateStore
from tests.unit.assembly import (
    AS_LONG_AS_IT_TAKES,
    Assembly,
    Lamp,
    ManualClock,
    assemble,
    at_once,
    request,
)
from tests.unit.commands.send.test_invoker import _turns, stored


class Register:
    """The first registration is on record; its reply is lost, and so is, until told otherwise, its end as unsent."""

    def __init__(self) -> None:
        self.first = True
        self.may_end = asyncio.Event()

    def store(self, clock: ManualClock, wake: Callable[[str, Outcome], None]) -> MemoryStateStore:
        outer = self

        class Store(MemoryStateStore):
            async def register(self, registration: Registration) -> Registered | Joined:
                first, outer.first = outer.first, False
                reply = await super().register(registration)
                if first:
                    raise StoreUnavailableError("no reply")
                return reply

            async def finish(
                self,
                command_id: str,
                state: CommandState,
                finisher: str,
                error: bytes | None = None,
                *,
                only_held: bool = False,
            ) -> Finished:
                if state is CommandState.UNSENT:
                    await outer.may_end.wait()
                return await super().finish(command_id, state, finisher, error, only_held=only_held)

        return Store(clock, wake=wake)


async def failed_first_try(size: int) -> tuple[Assembly, Register, Lamp]:
    register = Register()
    assembly = await assemble(size, make_store=register.store)
    lamp = Lamp(assembly.broker, at_once)
    await lamp.start()
    with pytest.raises(StoreUnavailableError):
        await assembly.members[0].invoker.invoke(request(idempotency_key="k", timeout_given=False), park=True)
    return assembly, register, lamp


async def test_callers_that_joined_what_turns_out_to_be_unsent_have_it_sent_once() -> None:
    assembly, register, lamp = await failed_first_try(2)
    invokers = [member.invoker for member in assembly.members]
    same = request(idempotency_key="k", timeout_given=False)
    joined = [await invoker.invoke(same, park=True) for invoker in (*invokers, *invokers)]
    assert {one.replayed for one in joined} == {True}
    unsent = joined[0].command.id
    waiting = asyncio.gather(*(one.wait(AS_LONG_AS_IT_TAKES) for one in joined))
    await _turns()
    assert lamp.received == []
    register.may_end.set()
    commands = await waiting
    assert {command.state for command in commands} == {CommandState.SUCCEEDED}
    assert len({command.id for command in commands} - {unsent}) == 1
    assert len(lamp.received) == 1
    assert sorted(one.replayed for one in joined) == [False, True, True, True]
    assert (await stored(assembly, unsent)).state is CommandState.UNSENT
    assert all(len(member.waiters) == len(member.open_commands) == 0 for member in assembly.members)


async def test_a_joined_caller_whose_time_is_over_is_told_that_it_is_unsent() -> None:
    assembly, register, lamp = await failed_first_try(1)
    short = request(idempotency_key="k", timeout=timedelta(microseconds=1), timeout_given=False)
    joined = await assembly.members[0].invoker.invoke(short, park=True)
    waiting = asyncio.create_task(joined.wait(AS_LONG_AS_IT_TAKES))
    register.may_end.set()
    assert (await waiting).state is CommandState.UNSENT
    assert lamp.received == []


async def test_what_is_sent_for_a_joined_caller_ends_at_its_own_deadline() -> None:
    assembly, register, _ = await failed_first_try(1)
    same = request(idempotency_key="k", timeout_given=False)
    joined = await assembly.members[0].invoker.invoke(same, park=True)
    waiting = asyncio.create_task(joined.wait(AS_LONG_AS_IT_TAKES))
    await asyncio.sleep(0.05)
    register.may_end.set()
    command = await waiting
    assert command.deadline - command.created_at < 10_000_000 - 40_000


async def test_what_the_broker_can_never_take_is_said_to_joined_callers_too() -> None:
    assembly = await assemble()
    member = assembly.members[0]

    class TooLarge(LoopbackMqttClient):
        def publish(self, publication: Publication) -> Puback:
            raise PacketTooLargeError("payload", "makes a packet of 9 bytes; the broker takes 8")

    member.invoker._publisher._mqtt = TooLarge(assembly.broker, "n1", member.counters)
    await member.invoker._publisher._mqtt.start([], member.inbox.handle)
    await member.invoker._publisher._mqtt.wait_connected()
    for _ in range(2):
        with pytest.raises(PacketTooLargeError) as caught:
            await member.invoker.invoke(request(idempotency_key="k"), park=True)
        assert caught.value.command_id is not None
        command = await stored(assembly, caught.value.command_id)
        assert (command.state, unsent_code(command)) == (CommandState.UNSENT, "packet_too_large")
        assert not may_be_sent_again(command)
