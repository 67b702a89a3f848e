from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.commands.send.registrar import CommandRequest, Registrar
from app.core.commands.callback import Registration
from app.core.commands.command import Command, CommandState
from app.core.errors import (
    BrokerUnavailableError,
    CapacityError,
    CommandNotFoundError,
    IdempotencyMismatchError,
    InvalidInputError,
    StoreUnavailableError,
)
from app.core.messages import Publication
from app.core.payload import JsonValue
from app.mqtt.base import Puback, Subscription
from app.mqtt.loopback import LoopbackMqttClient
from app.store.commands import Finished, Joined, Query, Registered
from app.store.memory.commands.store import MemoryStateStore
from tests.unit.assembly import (
    AS_LONG_AS_IT_TAKES,
    WAKE_KEY,
    Assembly,
    Lamp,
    assemble,
    at_once,
    never,
    request,
    slow_to_register,
)


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
    command = await invocation.wait(AS_LONG_AS_IT_TAKES)
    assert command.state is CommandState.SUCCEEDED
    assert command.result == b'{"n":3}'
    assert assembly.members[0].counters["drop.unknown"] == 0


async def test_responses_find_their_way_home_from_any_node() -> None:
    assembly = await assemble(3)
    await Lamp(assembly.broker, at_once).start()
    commands = []
    for i in range(30):
        invocation = await assembly.members[i % 3].invoker.invoke(request(params={"n": i}), park=True)
        commands.append(await invocation.wait(AS_LONG_AS_IT_TAKES))
    assert [json.loads(command.result or b"null") for command in commands] == [{"n": i} for i in range(30)]
    assert {command.received_by for command in commands} == {"n1", "n2", "n3"}
    assert any(command.forwarded for command in commands)
    assert all(len(member.open_commands) == len(member.waiters) == 0 for member in assembly.members)


async def test_a_caller_that_stops_waiting_does_not_stop_the_command() -> None:
    assembly = await assemble()
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(), park=True)
    command = await invocation.wait(timedelta())
    assert command.state is CommandState.PENDING
    assert (len(member.waiters), len(member.open_commands)) == (0, 1)
    lamp.say(lamp.received[0])
    await _turns()
    assert (await stored(assembly, command.id)).state is CommandState.SUCCEEDED
    assert len(member.open_commands) == 0


async def test_without_a_broker_nothing_is_registered() -> None:
    assembly = await assemble()
    assembly.broker.disconnect("n1")
    with pytest.raises(BrokerUnavailableError):
        await assembly.members[0].invoker.invoke(request(), park=True)
    assert assembly.store.size == 0
    assert len(assembly.members[0].open_commands) == 0


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
    assert (len(member.open_commands), len(member.waiters)) == (0, 0)


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


class TakesNothing(MemoryStateStore):
    """Answers no registration, and counts what is to be ended."""

    was_asked = True
    finished = 0

    async def register(self, registration: Registration) -> Registered | Joined:
        raise StoreUnavailableError("no reply", asked=self.was_asked)

    async def finish(self, *args: Any, **named: Any) -> Finished:
        self.finished += 1
        return await super().finish(*args, **named)


@pytest.mark.parametrize("ends", [1, 0])
async def test_only_what_the_store_was_asked_for_may_be_on_record(ends: int) -> None:
    assembly = await assemble(make_store=lambda clock, wake: TakesNothing(clock, wake=wake))
    assert isinstance(assembly.store, TakesNothing)
    assembly.store.was_asked = ends > 0
    member = assembly.members[0]
    with pytest.raises(StoreUnavailableError) as refused:
        await member.invoker.invoke(request(), park=True)
    await member.invoker.drained()
    assert refused.value.command_id
    assert assembly.store.finished == ends


async def test_F14_a_retry_joins_the_running_command_from_any_node() -> None:
    assembly = await assemble(2)
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    first = await assembly.members[0].invoker.invoke(request(idempotency_key="k"), park=True)
    second = await assembly.members[1].invoker.invoke(request(idempotency_key="k"), park=True)
    assert (first.replayed, second.replayed) == (False, True)
    await _turns()
    lamp.say(lamp.received[0])
    outcomes = await asyncio.gather(first.wait(AS_LONG_AS_IT_TAKES), second.wait(AS_LONG_AS_IT_TAKES))
    assert outcomes[0] == outcomes[1]
    assert len(lamp.received) == 1
    third = await assembly.members[1].invoker.invoke(request(idempotency_key="k"), park=True)
    assert (third.replayed, third.command) == (True, outcomes[0])
    with pytest.raises(IdempotencyMismatchError):
        await assembly.members[1].invoker.invoke(request("other", idempotency_key="k"), park=True)


async def test_a_one_way_command_succeeds_at_puback() -> None:
    assembly = await assemble()
    await Lamp(assembly.broker, never).start()
    invocation = await assembly.members[0].invoker.invoke(request(one_way=True), park=True)
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED


async def test_a_cancelled_command_tells_its_caller() -> None:
    assembly = await assemble(2)
    invocation = await assembly.members[0].invoker.invoke(request(), park=True)
    finished = await assembly.members[1].invoker.cancel(invocation.command.id)
    assert finished.won
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.CANCELLED
    again = await assembly.members[0].invoker.cancel(invocation.command.id)
    assert not again.won
    with pytest.raises(CommandNotFoundError):
        await assembly.members[0].invoker.cancel(f"000-{0:026}")


async def test_F73_waiters_are_bounded_and_nothing_is_sent_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what has no room nothing is composed: a full node is asked the most."""
    assembly = await assemble()
    compose, composed = Registrar.registration, list[CommandRequest]()

    def counting(registrar: Registrar, asked: CommandRequest, *rest: Any) -> Registration:
        composed.append(asked)
        return compose(registrar, asked, *rest)

    monkeypatch.setattr(Registrar, "registration", counting)
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
    assert len(lamp.received) == len(composed) == 100


async def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    assembly = await assemble()
    with pytest.raises(InvalidInputError, match="profile: 'x' is unknown; allowed: dji, homing"):
        await assembly.members[0].invoker.invoke(request(profile="x"), park=True)


BY_FLIGHT = """
name = "flights"
description = "answers carry the flight of the command"
[request]
topic = "flights/{device_id}/do"
payload = { flight = "{params.flight}" }
[[response]]
name = "done"
topic = "flights/{device_id}/done"
correlation = "value"
value = "F-{params.flight}"
sources = [{ path = "flight" }]
rules = [{ state = "succeeded" }]
"""


@pytest.mark.parametrize("params", [{}, None, {"flight": None}, []])
async def test_a_command_whose_answer_could_not_be_told_is_refused(tmp_path: Path, params: JsonValue) -> None:
    (tmp_path / "flights.toml").write_text(BY_FLIGHT)
    assembly = await assemble(profiles_dir=tmp_path)
    invoker = assembly.members[0].invoker
    with pytest.raises(
        InvalidInputError, match=r"params: .*by F-\{params.flight\}, which this command lacks; needed: text"
    ):
        await invoker.invoke(request(profile="flights", params=params), park=True)
    assert assembly.store.size == 0
    await invoker.invoke(request(profile="flights", params={"flight": 7}), park=True)
    assert (await only_command(assembly)).state is CommandState.PENDING
    listener = LoopbackMqttClient(assembly.broker, "device", Counter())
    await listener.start([Subscription("flights/lamp-1/do")], lambda _delivery: None)
    await listener.wait_connected()
    one_way = await invoker.invoke(request(profile="flights", params=params, one_way=True), park=True)
    assert (await one_way.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED


@pytest.mark.parametrize("flight", ["", [], {}, None])
async def test_what_no_answer_can_carry_is_refused(tmp_path: Path, flight: JsonValue) -> None:
    (tmp_path / "flights.toml").write_text(BY_FLIGHT.replace("F-{params.flight}", "{params.flight}"))
    assembly = await assemble(profiles_dir=tmp_path)
    with pytest.raises(InvalidInputError, match="text, a number, true or false"):
        await assembly.members[0].invoker.invoke(request(profile="flights", params={"flight": flight}), park=True)


class RefusedByBroker(LoopbackMqttClient):
    """A broker that answers PUBLISH with a reason code of 0x80 or above."""

    def publish(self, publication: Publication) -> Puback:
        future = Puback()
        future.set_exception(BrokerUnavailableError("not authorized"))
        return future


async def test_a_command_that_the_broker_refuses_is_unsent() -> None:
    assembly = await assemble()
    member = assembly.members[0]
    member.invoker._publisher._mqtt = RefusedByBroker(assembly.broker, "n1", member.counters)
    await member.invoker._publisher._mqtt.start([], member.inbox.handle)
    await member.invoker._publisher._mqtt.wait_connected()
    invocation = await member.invoker.invoke(request(), park=True)
    command = await invocation.wait(AS_LONG_AS_IT_TAKES)
    assert command.state is CommandState.UNSENT
    assert json.loads(command.error or b"") == {
        "code": "not_sent",
        "message": "not authorized",
    }


async def test_a_command_that_is_cancelled_before_the_store_has_replied_is_not_sent() -> None:
    assembly = await assemble(2, make_store=lambda clock, wake: RepliesLate(clock, wake=wake, wake_key=WAKE_KEY))
    lamp = Lamp(assembly.broker, at_once)
    await lamp.start()
    invoking = asyncio.create_task(assembly.members[0].invoker.invoke(request(), park=True))
    await asyncio.sleep(0)
    await assembly.members[1].invoker.cancel((await only_command(assembly)).id)
    invocation = await invoking
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.CANCELLED
    await _turns()
    assert lamp.received == []


class RepliesLate(MemoryStateStore):
    """Registers at once, and lets the event loop turn before it says so."""

    async def register(self, registration: Registration) -> Registered | Joined:
        reply = await super().register(registration)
        for _ in range(10):
            await asyncio.sleep(0)
        return reply


class Holds(LoopbackMqttClient):
    """As if the broker's window were full: publishes wait until they are let go, or cancelled."""

    def publish(self, publication: Publication) -> Puback:
        self.waiting: list[tuple[Publication, Puback]]
        future = Puback()
        self.waiting = [*getattr(self, "waiting", []), (publication, future)]
        return future


@pytest.mark.parametrize("end", ["cancelled here", "cancelled elsewhere", "timed out", "timed out without the store"])
async def test_what_waits_for_the_broker_leaves_its_queue_when_the_command_ends(end: str) -> None:
    assembly = await assemble(2)
    member, other = assembly.members
    held = Holds(assembly.broker, "n1", member.counters)
    member.invoker._publisher._mqtt = held
    await held.start([], member.inbox.handle)
    await held.wait_connected()
    invocation = await member.invoker.invoke(request(), park=False)
    ((_, future),) = held.waiting
    match end:
        case "cancelled here":
            await member.invoker.cancel(invocation.command.id)
        case "cancelled elsewhere":
            await other.invoker.cancel(invocation.command.id)
        case "timed out":
            await member.expirer.end(invocation.command.id, CommandState.TIMED_OUT)
        case _:
            member.expirer._store = Away(assembly.clock)
            await member.expirer.end(invocation.command.id, CommandState.TIMED_OUT)
    assert future.cancelled()


class Away(MemoryStateStore):
    """A store that does not answer."""

    async def finish(
        self,
        command_id: str,
        state: CommandState,
        finisher: str,
        error: bytes | None = None,
        *,
        only_held: bool = False,
    ) -> Finished:
        raise StoreUnavailableError("away")


async def _turns() -> None:
    """Let everything run that is ready to."""
    for _ in range(20):
        await asyncio.sleep(0)
