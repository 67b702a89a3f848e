from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.core.commands.callback import Answer
from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome, Recorded
from app.core.errors import StoreRefusedError, StoreUnavailableError
from app.core.messages import ReceivedMessage
from app.mqtt.inbox import MOST_REFUSED
from app.store.memory.commands.store import MemoryStateStore
from tests.unit.assembly import AS_LONG_AS_IT_TAKES, Assembly, Lamp, ManualClock, assemble, at_once, never, request


class Gated(MemoryStateStore):
    """Answers to responses only when the gate is open."""

    gate: asyncio.Event
    fail: Exception | None = None

    async def respond(self, answer: Answer, receiver: str, *, open_only: bool = False) -> Recorded:
        await self.gate.wait()
        if self.fail is not None:
            raise self.fail
        return await super().respond(answer, receiver, open_only=open_only)


async def gated() -> tuple[Assembly, Gated]:
    gate = asyncio.Event()

    def make(clock: ManualClock, wake: Callable[[str, Outcome], None]) -> Gated:
        store = Gated(clock, wake=wake)
        store.gate = gate
        return store

    assembly = await assemble(make_store=make)
    assert isinstance(assembly.store, Gated)
    return assembly, assembly.store


async def test_F17_puback_is_sent_only_after_the_store_has_the_response() -> None:
    assembly, store = await gated()
    await Lamp(assembly.broker, at_once).start()
    invocation = await assembly.members[0].invoker.invoke(request(), park=True)
    await _turns()
    assert _unacknowledged(assembly) == 1
    store.gate.set()
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED
    assert _unacknowledged(assembly) == 0


async def test_F17_a_response_that_the_store_did_not_take_is_delivered_again() -> None:
    assembly, store = await gated()
    await Lamp(assembly.broker, at_once).start()
    invocation = await assembly.members[0].invoker.invoke(request(), park=True)
    store.fail = StoreUnavailableError("closed")
    store.gate.set()
    await _turns()
    assert _unacknowledged(assembly) == 1
    store.fail = None
    assembly.broker.disconnect("n1")
    assembly.broker.restore("n1")
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED


async def test_a_response_that_the_store_refused_holds_up_no_other() -> None:
    assembly, store = await gated()
    await Lamp(assembly.broker, at_once).start()
    member = assembly.members[0]
    store.fail = StoreRefusedError("WRONGTYPE")
    store.gate.set()
    await member.invoker.invoke(request(), park=False)
    await _turns()
    store.fail = None
    invocation = await member.invoker.invoke(request(), park=True)
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED
    await _turns()
    assert _unacknowledged(assembly) == 1  # the first one only
    assert member.counters["response.not_recorded"] == 1


async def test_responses_that_the_store_refuses_do_not_use_up_the_receive_maximum() -> None:
    assembly, store = await gated()
    await Lamp(assembly.broker, at_once).start()
    member = assembly.members[0]
    store.fail = StoreRefusedError("WRONGTYPE")
    store.gate.set()
    for _ in range(MOST_REFUSED + 3):
        await member.invoker.invoke(request(), park=False)
    await _turns()
    assert _unacknowledged(assembly) == MOST_REFUSED
    assert member.counters["drop.store_refused"] == 3


async def test_a_mistake_over_one_response_holds_up_no_other() -> None:
    assembly, store = await gated()
    await Lamp(assembly.broker, at_once).start()
    member = assembly.members[0]
    loop, seen = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _loop, context: seen.append(context))
    store.fail = RuntimeError("a mistake of ours")
    store.gate.set()
    await member.invoker.invoke(request(), park=False)
    await _turns()
    store.fail = None
    invocation = await member.invoker.invoke(request(), park=True)
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED
    await _turns()
    assert _unacknowledged(assembly) == 1  # the first one only
    await member.inbox.drained()
    gc.collect()
    assert [str(one["exception"]) for one in seen] == ["a mistake of ours"]


async def test_pubacks_go_out_in_the_order_of_arrival() -> None:
    assembly, store = await gated()
    await Lamp(assembly.broker, at_once).start()
    await assembly.members[0].invoker.invoke(request(), park=False)
    await _turns()
    # This one needs no store, and still waits for the one before it.
    assembly.broker.publish(ReceivedMessage("homing/lamp-1/response", b"rubbish"))
    await _turns()
    assert _unacknowledged(assembly) == 2
    store.gate.set()
    await _turns()
    assert _unacknowledged(assembly) == 0


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        ("homing/lamp-1/response", b"", "empty"),
        ("homing/lamp-1/response", b"\xff\xfe", "not_utf8"),
        ("homing/lamp-1/response", b"{", "not_json"),
        ("homing/lamp-1/response", b"[" * 100_000, "too_deep"),
        ("homing/lamp-1/response", b'"' + b"x" * 140_000 + b'"', "too_large"),
        ("homing/lamp-1/response", b'{"id":"x","status":"ok"}', "foreign_id"),
        ("homing/lamp-1/response", b'{"id":"042-00000000000000000000000000","status":"ok"}', "unknown"),
        ("homing/la%20mp/response", b'{"id":"042-00000000000000000000000000","status":"ok"}', "foreign_id"),
        ("homing/lamp-1/response", b'{"status":"ok"}', "no_correlation"),
    ],
)
async def test_F92_rubbish_is_counted_acknowledged_and_harmless(topic: str, payload: bytes, reason: str) -> None:
    assembly = await assemble()
    await Lamp(assembly.broker, at_once).start()
    assembly.broker.publish(ReceivedMessage(topic, payload))
    await _turns()
    member = assembly.members[0]
    assert member.counters[f"drop.{reason}"] == 1
    assert member.counters[f"dropped_of.homing.{reason}"] == 1
    assert _unacknowledged(assembly) == 0
    invocation = await member.invoker.invoke(request(), park=True)
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED


async def test_F63_a_retained_response_completes_nothing() -> None:
    assembly = await assemble()
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    invocation = await assembly.members[0].invoker.invoke(request(), park=True)
    await _turns()
    payload = f'{{"id":"{invocation.command.id}","status":"ok"}}'.encode()
    assembly.broker.publish(ReceivedMessage("homing/lamp-1/response", payload, retain=True))
    await _turns()
    assert assembly.members[0].counters["drop.retained"] == 1
    assert (await invocation.wait(timedelta())).state is CommandState.PENDING


async def test_F95_another_device_cannot_answer() -> None:
    assembly = await assemble()
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    invocation = await assembly.members[0].invoker.invoke(request(), park=True)
    await _turns()
    lamp.say(lamp.received[0] | {"device_id": "lamp-2"})
    await _turns()
    assert assembly.members[0].counters["drop.mismatch"] == 1
    lamp.say(lamp.received[0])
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED


async def test_F12_progress_is_not_an_outcome() -> None:
    assembly = await assemble()
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    invocation = await assembly.members[0].invoker.invoke(request(), park=True)
    await _turns()
    lamp.say(lamp.received[0], "running", progress={"percent": 50})
    await _turns()
    (command,) = await assembly.store.get([invocation.command.id])
    assert command is not None
    assert (command.state, command.progress) == (CommandState.RUNNING, b'{"percent":50}')
    lamp.say(lamp.received[0])
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state is CommandState.SUCCEEDED


async def test_a_late_response_is_annexed() -> None:
    assembly = await assemble()
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(), park=True)
    await _turns()
    await member.invoker.cancel(invocation.command.id)
    lamp.say(lamp.received[0])
    await _turns()
    (command,) = await assembly.store.get([invocation.command.id])
    assert command is not None
    assert command.state is CommandState.CANCELLED
    assert command.late is not None
    assert member.counters["response.late"] == 1


LAMP = """
name = "{name}"
description = "a lamp that shares its topics with another kind of lamp"
[request]
topic = "lamps/{{device_id}}/set"
payload = {{ ref = "{{id}}" }}
[[response]]
name = "done"
topic = "lamps/{{device_id}}/done"
correlation = "id"
sources = [{{ path = "ref" }}]
result = "{result}"
rules = [{{ state = "{state}" }}]
"""


@pytest.mark.parametrize("with_log", [False, True])
async def test_the_commands_own_profile_reads_its_answer_on_a_shared_topic(tmp_path: Path, *, with_log: bool) -> None:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    for name, result, state in (("amber", "a", "failed"), ("blue", "b", "succeeded"), ("cyan", "c", "succeeded")):
        (profiles / f"{name}.toml").write_text(LAMP.format(name=name, result=result, state=state))
    assembly = await assemble(2, profiles_dir=profiles, log_dir=str(tmp_path / "log") if with_log else "")
    states, results = [], []
    for name in ("amber", "blue", "cyan", "blue"):
        invocation = await assembly.members[0].invoker.invoke(request(profile=name), park=True)
        payload = f'{{"ref":"{invocation.command.id}","a":1,"b":2,"c":3}}'.encode()
        assembly.broker.publish(ReceivedMessage("lamps/lamp-1/done", payload))
        command = await invocation.wait(AS_LONG_AS_IT_TAKES)
        states.append(command.state.value)
        results.append(command.result)
    assert states == ["failed", "succeeded", "succeeded", "succeeded"]
    assert results == [b"1", b"2", b"3", b"2"]
    assert [member.counters["drop.mismatch"] for member in assembly.members] == [0, 0]


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def _unacknowledged(assembly: Assembly) -> int:
    return len(assembly.broker._sessions["n1"].unacknowledged)
