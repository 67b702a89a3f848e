"""A command that has timed out says how far it came, and who does not know."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from app.core.commands.command import CommandState, IfOffline
from app.core.identifiers import PARTITIONS
from app.core.messages import Publication
from app.mqtt.base import Puback
from app.mqtt.loopback import LoopbackMqttClient
from tests.unit.assembly import Assembly, Lamp, assemble, never, request
from tests.waiting import turns


async def timed_out(assembly: Assembly, **changes: Any) -> dict[str, Any]:
    """The error of a command that its home ends at its deadline."""
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(**changes), park=False)
    await turns()
    assert await member.expirer.end(invocation.command.id, CommandState.TIMED_OUT) is not None
    return await error_of(assembly, invocation.command.id)


async def error_of(assembly: Assembly, identity: str) -> dict[str, Any]:
    command = await assembly.store.read(identity)
    assert command.state is CommandState.TIMED_OUT
    error: dict[str, Any] = json.loads(command.error or b"")
    return error


class Mute(LoopbackMqttClient):
    """Gives no PUBACK; what it takes has left, or still waits for room in the broker's window."""

    left = True

    def publish(self, publication: Publication) -> Puback:
        return Puback(left=self.left)


@pytest.mark.parametrize("left", [True, False])
async def test_without_puback_it_is_told_whether_it_left(*, left: bool) -> None:
    assembly = await assemble()
    member = assembly.members[0]
    mute = Mute(assembly.broker, "n9", member.counters)
    mute.left = left
    await mute.start([], member.inbox.handle)
    await mute.wait_connected()
    member.invoker._publisher._mqtt = mute
    error = await timed_out(assembly)
    assert (error["known"]["published"], error["known"]["acknowledged"]) == (left, False)
    assert ("may or may not" in error["message"]) is left


async def test_a_lost_connection_leaves_it_unknown_whether_it_arrived() -> None:
    assembly = await assemble()
    member = assembly.members[0]
    invocation = await member.invoker.invoke(request(), park=False)
    assembly.broker.disconnect("n1")  # before PUBACK
    await turns()
    await member.expirer.end(invocation.command.id, CommandState.TIMED_OUT)
    assert "may or may not" in (await error_of(assembly, invocation.command.id))["message"]


async def test_nobody_was_subscribed() -> None:
    error = await timed_out(await assemble(), if_offline=IfOffline.SEND)
    assert error["known"]["subscribers"] == "none"
    assert error["known"]["acknowledged"]


async def test_somebody_was_subscribed_where_the_broker_tells() -> None:
    assembly = await assemble()
    await Lamp(assembly.broker, never).start()
    assert (await timed_out(assembly))["known"]["subscribers"] == "unknown"
    assembly.members[0].parts.absence.told("homing")
    known = (await timed_out(assembly))["known"]
    assert (known["acknowledged"], known["subscribers"]) == (True, "some")
    assert known["acknowledged_at"] == "2023-11-14T22:30:00.000Z"  # as the clock of the tests has it


async def test_what_an_earlier_start_sent_is_not_known() -> None:
    assembly = await assemble()
    member = assembly.members[0]
    await Lamp(assembly.broker, never).start()
    invocation = await member.invoker.invoke(request(), park=False)
    await turns()
    member.open_commands.discard(invocation.command.id)  # the node was restarted
    member.open_commands.reopen(await assembly.store.read(invocation.command.id))
    await member.expirer.end(invocation.command.id, CommandState.TIMED_OUT)
    error = await error_of(assembly, invocation.command.id)
    assert error["known"]["published"] is None
    assert "not known" in error["message"]


async def test_what_another_node_ends_is_not_known() -> None:
    assembly = await assemble(2)
    await Lamp(assembly.broker, never).start()
    invocation = await assembly.members[0].invoker.invoke(request(timeout=timedelta(seconds=1)), park=False)
    assembly.clock.advance(5)
    await assembly.store.sweep(range(PARTITIONS), "n2", timedelta())
    assert (await error_of(assembly, invocation.command.id))["known"]["published"] is None
