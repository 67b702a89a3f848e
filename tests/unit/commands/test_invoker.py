from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from app.core.callback import Registration
from app.core.command import Command, CommandState
from app.core.errors import (
    BrokerUnavailableError,
    CapacityError,
    CommandNotFoundError,
    IdempotencyMismatchError,
    InvalidInputError,
    StoreUnavailableError,
)
from app.core.messages import Publication
from app.mqtt.loopback import LoopbackMqttClient
from app.store.base import Joined, Query, Registered
from app.store.memory import MemoryStateStore
from tests.unit.assembly import Assembly, Lamp, assemble, at_once, never, request, slow_to_register

SECOND = timedelta(seconds=1)


async def stored(assembly: Assembly, command_id: str) -> Command:
    (command,) = await assembly.store.get([command_id])
    assert command is not None
    return command


async def only_command(assembly: Assembly) -> Command:
    (command,) = (await assembly.store.list_commands(Query())).commands
    return command


async def test_F1_an_instant_echo_finds_its_command() -> None:
    assembly = await assemble(make_store=slow_to_register)
    await Lamp(assembly.broker, at_once).start()
    invocation = await assembly.members[0].invoker.invoke(request(), park=True)
    command = await invocation.wait(SECOND)
    assert command.state is CommandState.SUCCEEDED
    assert command.result == b'{"n":3}'
    assert assembly.members[0].counters["drop.unknown"] == 0


async def test_responses_find_their_way_home_from_any_node() -> None:
    assembly = await assemble(3)
    await Lamp(assembly.broker, at_once).start()
    commands = []
    for i in range(30):
        invocation = await assembly.members[i % 3].invoker.invoke(request(params={"n": i}), park=True)
        commands.append(await invocation.wait(SECOND))
    assert [json.loads(command.result or b"null") for command in commands] == [{"n": i} for i in range(30)]
    assert {command.received_by for command in commands} == {"n1", "n2", "n3"}
    assert any(command.forwarded for command in commands)
    assert all(member.registry.pending_count == member.registry.waiter_count == 0 for member in assembly.members)


async def test_a_caller_that_stops_waiting_does_not_stop_the_command() -> None:
    assembly = await assemble()
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(), park=True)
    command = await invocation.wait(timedelta())
    assert command.state is CommandState.PENDING
    assert (member.registry.waiter_count, member.registry.pending_count) == (0, 1)
    lamp.say(lamp.received[0])
    await _turns()
    assert (await stored(assembly, command.id)).state is CommandState.SUCCEEDED
    assert member.registry.pending_count == 0


async def test_without_a_broker_nothing_is_registered() -> None:
    assembly = await assemble()
    assembly.broker.disconnect("n1")
    with pytest.raises(BrokerUnavailableError):
        await assembly.members[0].invoker.invoke(request(), park=True)
    assert assembly.store.size == 0
    assert assembly.members[0].registry.pending_count == 0


async def test_a_broker_that_goes_away_after_register_leaves_the_command_unsent() -> None:
    assembly = await assemble(make_store=slow_to_register)
    member = assembly.members[0]
    invoking = asyncio.create_task(member.invoker.invoke(request(), park=True))
    await asyncio.sleep(0)
    assembly.broker.disconnect("n1")
    with pytest.raises(BrokerUnavailableError):
        await invoking
    command = await only_command(assembly)
    assert command.state is CommandState.UNSENT
    assert json.loads(command.error or b"")["code"] == "not_sent"
    assert (member.registry.pending_count, member.registry.waiter_count) == (0, 0)


async def test_F4_an_unconfirmed_publish_is_neither_repeated_nor_called_unsent() -> None:
    assembly = await assemble()
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    invocation = await assembly.members[0].invoker.invoke(request(), park=False)
    assembly.broker.disconnect("n1")  # before PUBACK
    assembly.broker.restore("n1")
    await _turns()
    assert assembly.members[0].counters["publish.unconfirmed"] == 1
    assert len(lamp.received) == 1
    assert (await stored(assembly, invocation.command.id)).state is CommandState.PENDING


class LosesReplies(MemoryStateStore):
    """Registers, and then says that it did not answer; back to normal for all else."""

    async def register(self, registration: Registration) -> Registered | Joined:
        await super().register(registration)
        raise StoreUnavailableError("no reply")


async def test_F3_what_was_perhaps_registered_and_is_never_sent_ends_as_unsent() -> None:
    assembly = await assemble(make_store=lambda clock, wake: LosesReplies(clock, wake=wake))
    lamp = Lamp(assembly.broker, at_once)
    await lamp.start()
    member = assembly.members[0]
    with pytest.raises(StoreUnavailableError):
        await member.invoker.invoke(request(), park=True)
    await member.invoker.drained()
    assert (await only_command(assembly)).state is CommandState.UNSENT
    assert lamp.received == []


async def test_F14_a_retry_joins_the_running_command_from_any_node() -> None:
    assembly = await assemble(2)
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    first = await assembly.members[0].invoker.invoke(request(idempotency_key="k"), park=True)
    second = await assembly.members[1].invoker.invoke(request(idempotency_key="k"), park=True)
    assert (first.replayed, second.replayed) == (False, True)
    await _turns()
    lamp.say(lamp.received[0])
    outcomes = await asyncio.gather(first.wait(SECOND), second.wait(SECOND))
    assert outcomes[0] == outcomes[1]
    assert len(lamp.received) == 1
    third = await assembly.members[1].invoker.invoke(request(idempotency_key="k"), park=True)
    assert (third.replayed, third.command) == (True, outcomes[0])
    with pytest.raises(IdempotencyMismatchError):
        await assembly.members[1].invoker.invoke(request("other", idempotency_key="k"), park=True)


async def test_a_one_way_command_succeeds_at_puback() -> None:
    assembly = await assemble()
    invocation = await assembly.members[0].invoker.invoke(request(one_way=True), park=True)
    assert (await invocation.wait(SECOND)).state is CommandState.SUCCEEDED


async def test_a_cancelled_command_tells_its_caller() -> None:
    assembly = await assemble(2)
    invocation = await assembly.members[0].invoker.invoke(request(), park=True)
    finished = await assembly.members[1].invoker.cancel(invocation.command.id)
    assert finished.won
    assert (await invocation.wait(SECOND)).state is CommandState.CANCELLED
    again = await assembly.members[0].invoker.cancel(invocation.command.id)
    assert not again.won
    with pytest.raises(CommandNotFoundError):
        await assembly.members[0].invoker.cancel(f"000-{0:026}")


async def test_F73_waiters_are_bounded_and_nothing_is_sent_beyond() -> None:
    assembly = await assemble()
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    invoker = assembly.members[0].invoker
    for _ in range(50):
        await invoker.invoke(request(), park=True)
    with pytest.raises(CapacityError, match="50 callers wait"):
        await invoker.invoke(request(), park=True)
    for _ in range(50):
        await invoker.invoke(request(), park=False)
    with pytest.raises(CapacityError, match="100 open commands"):
        await invoker.invoke(request(), park=False)
    await _turns()
    assert len(lamp.received) == 100


async def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    assembly = await assemble()
    with pytest.raises(InvalidInputError, match="profile: 'x' is unknown; allowed: dji, homing"):
        await assembly.members[0].invoker.invoke(request(profile="x"), park=True)


class RefusedByBroker(LoopbackMqttClient):
    """A broker that answers PUBLISH with a reason code of 0x80 or above."""

    def publish(self, publication: Publication) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(BrokerUnavailableError("not authorized"))
        return future


async def test_a_command_that_the_broker_refuses_is_unsent() -> None:
    assembly = await assemble()
    member = assembly.members[0]
    member.invoker._mqtt = RefusedByBroker(assembly.broker, "n1", member.counters)
    await member.invoker._mqtt.start([], member.dispatcher.handle)
    await member.invoker._mqtt.wait_connected()
    invocation = await member.invoker.invoke(request(), park=True)
    command = await invocation.wait(SECOND)
    assert command.state is CommandState.UNSENT
    assert json.loads(command.error or b"") == {"code": "not_sent", "message": "not authorized"}


async def _turns() -> None:
    """Let everything run that is ready to."""
    for _ in range(20):
        await asyncio.sleep(0)
