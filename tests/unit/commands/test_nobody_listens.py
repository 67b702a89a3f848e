"""Commands to devices that are not there, where the broker tells."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.commands.send.absence import Absence
from app.commands.send.invoker import Invocation
from app.commands.send.unsent import may_be_sent_again, unsent_code
from app.core.commands.callback import Answer
from app.core.commands.command import Command, CommandState, IfOffline
from app.core.identifiers import CANARY
from app.core.messages import ReceivedMessage
from app.core.profiles.correlation import Correlation
from app.mqtt.base import Subscription
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient
from tests.unit.assembly import AS_LONG_AS_IT_TAKES, PROFILES, Assembly, Lamp, assemble, at_once, never, request
from tests.waiting import eventually, turns

FAIL, SEND = IfOffline.FAIL, IfOffline.SEND


async def sent(assembly: Assembly, **changes: Any) -> Invocation:
    return await assembly.members[0].invoker.invoke(request(**changes), park=True)


async def of(assembly: Assembly, invocation: Invocation) -> Command:
    return await assembly.store.read(invocation.command.id)


async def test_a_command_to_nobody_is_unsent_and_says_where_nobody_was() -> None:
    assembly = await assemble()
    invocation = await sent(assembly, if_offline=FAIL)
    command = await invocation.wait(AS_LONG_AS_IT_TAKES)
    assert (command.state, unsent_code(command)) == (CommandState.UNSENT, "no_subscriber")
    assert "homing/lamp-1/command" in json.loads(command.error or b"")["message"]
    member = assembly.members[0]
    assert (len(member.open_commands), len(member.waiters)) == (0, 0)
    assert member.counters["publish_unmatched"] == 1
    assert member.counters["publish.refused"] == 0
    assert not may_be_sent_again(command)  # a caller who has joined it is told at once, and does not try till the end


async def test_its_key_is_free_for_the_next_try() -> None:
    assembly = await assemble()
    first = await (await sent(assembly, if_offline=FAIL, idempotency_key="k")).wait(AS_LONG_AS_IT_TAKES)
    await Lamp(assembly.broker, at_once).start()
    second = await (await sent(assembly, if_offline=FAIL, idempotency_key="k")).wait(AS_LONG_AS_IT_TAKES)
    assert (first.state, second.state) == (CommandState.UNSENT, CommandState.SUCCEEDED)
    assert first.id != second.id


async def test_who_joined_it_is_told_the_same() -> None:
    assembly = await assemble(2)
    invocations = await asyncio.gather(
        *(
            member.invoker.invoke(request(if_offline=FAIL, idempotency_key="k"), park=True)
            for member in assembly.members
        )
    )
    ended = await asyncio.gather(*(one.wait(AS_LONG_AS_IT_TAKES) for one in invocations))
    assert {one.state for one in ended} == {CommandState.UNSENT}


async def test_what_is_to_be_sent_all_the_same_waits_for_its_deadline() -> None:
    assembly = await assemble()
    invocation = await sent(assembly, if_offline=SEND)
    await turns()
    assert (await of(assembly, invocation)).state is CommandState.PENDING
    pending = assembly.members[0].open_commands.get(invocation.command.id)
    assert pending is not None
    assert pending.reach(tells=False).subscribed is False
    assert pending.acknowledged_at is not None


@pytest.mark.parametrize("if_offline", IfOffline)
async def test_a_one_way_command_to_nobody_never_succeeds(if_offline: IfOffline) -> None:
    assembly = await assemble()
    invocation = await sent(assembly, one_way=True, if_offline=if_offline)
    command = await invocation.wait(AS_LONG_AS_IT_TAKES)
    assert (command.state, unsent_code(command)) == (CommandState.UNSENT, "no_subscriber")


@pytest.mark.parametrize("home_knows", [True, False], ids=["its home was told", "another node has recorded it"])
async def test_what_was_answered_before_its_puback_stays_answered(*, home_knows: bool) -> None:
    """A device behind a bridge has the command, though the broker counts no subscriber."""
    assembly = await assemble(2)
    assembly.lost_wake_ups = not home_knows
    invocation = await sent(assembly, if_offline=FAIL)
    topic, identity = "homing/lamp-1/response", invocation.command.id
    answer = Answer(topic, "lamp-1", Correlation.ID, identity, CommandState.SUCCEEDED, b"1")
    await assembly.store.respond(answer, "n2")  # before the loop has had a turn for the PUBACK
    command = await invocation.wait(AS_LONG_AS_IT_TAKES)
    assert (command.state, command.result) == (CommandState.SUCCEEDED, b"1")
    await turns()
    stored = await of(assembly, invocation)
    assert (stored.state, stored.result, stored.late) == (CommandState.SUCCEEDED, b"1", None)
    assert len(assembly.members[0].open_commands) == 0


async def test_what_reports_progress_is_there_after_all() -> None:
    assembly = await assemble()
    invocation = await sent(assembly, if_offline=FAIL)
    identity = invocation.command.id
    progress = Answer("homing/lamp-1/response", "lamp-1", Correlation.ID, identity, CommandState.RUNNING, b"1")
    await assembly.store.respond(progress, "n1")
    await turns()
    assert (await of(assembly, invocation)).state is CommandState.RUNNING


async def test_an_answer_after_it_is_kept_as_late() -> None:
    assembly = await assemble()
    invocation = await sent(assembly, if_offline=FAIL)
    command = await invocation.wait(AS_LONG_AS_IT_TAKES)
    payload = json.dumps({"id": command.id, "status": "ok"}).encode()
    assembly.broker.publish(ReceivedMessage("homing/lamp-1/response", payload))
    await turns()
    stored = await of(assembly, invocation)
    assert stored.state is CommandState.UNSENT
    assert stored.late is not None


async def test_a_repeated_publish_to_nobody_says_nothing_about_the_first(tmp_path: Path) -> None:
    """The dead node may have sent it while the device was there; so only the deadline ends it."""
    homing = (
        (Path("app/profiles/shipped") / "homing.toml").read_text().replace("repeatable = []", 'repeatable = ["blink"]')
    )
    (tmp_path / "homing2.toml").write_text(homing.replace('name = "homing"', 'name = "homing2"'))
    assembly = await assemble(2, profiles_dir=tmp_path)
    home, survivor = assembly.members
    assembly.broker.disconnect("n1")
    left = []
    for one_way in (False, True):
        registration = home.invoker._registrar.registration(
            request(profile="homing2", one_way=one_way, if_offline=FAIL),
            home.invoker._admission.profile_named("homing2"),
            timedelta(seconds=10),
        )
        await assembly.store.register(registration)
        left.append(registration.command_id)
    assert await survivor.parts.repeater.take_over("n1") == 2
    assert survivor.counters["publish_unmatched"] == 2
    states = [one.state for one in await assembly.store.get(left) if one is not None]
    assert states == [CommandState.SENT, CommandState.SENT]


class Broker:
    """A broker, a client of it, and what is known of absence there."""

    def __init__(self) -> None:
        self.broker = LoopbackBroker()
        self.client = LoopbackMqttClient(self.broker, "n1", Counter())
        self.contradicted = False
        self.absence = Absence(mqtt=self.client, profiles=PROFILES, contradicted=lambda: self.contradicted)

    async def asked(self) -> None:
        if not self.client.connections:
            await self.client.start([], lambda _delivery: None)
        await self.client.wait_connected()
        self.absence._ask()
        await turns()


async def test_the_default_is_fail_where_the_broker_tells() -> None:
    there = Broker()
    assert set(there.absence.defaults().values()) == {SEND}
    await there.asked()
    assert there.absence.defaults() == dict.fromkeys(sorted(PROFILES), FAIL)


async def test_who_listens_to_everything_makes_it_send_until_a_command_tells_otherwise() -> None:
    there = Broker()
    logger = LoopbackMqttClient(there.broker, "logger", Counter())
    heard: list[str] = []
    await logger.start([Subscription("homing/#")], lambda delivery: heard.append(delivery.message.topic))
    await logger.wait_connected()
    await there.asked()
    assert (there.absence.default("homing"), there.absence.default("dji")) == (SEND, FAIL)
    assert heard == [f"homing/{CANARY}/command"]
    there.absence.told("homing")
    assert there.absence.default("homing") is FAIL


async def test_a_broker_that_denies_our_own_subscription_is_not_believed() -> None:
    there = Broker()
    await there.asked()
    there.contradicted = True
    assert set(there.absence.defaults().values()) == {SEND}


async def test_each_connection_is_asked_anew() -> None:
    there = Broker()
    running = asyncio.create_task(there.absence.run())
    await there.client.start([], lambda _delivery: None)
    await eventually(lambda: there.absence.default("homing") is FAIL)
    everything = LoopbackMqttClient(there.broker, "logger", Counter())
    await everything.start([Subscription("#")], lambda _delivery: None)
    await everything.wait_connected()
    there.broker.disconnect("n1")
    there.broker.restore("n1")
    await eventually(lambda: there.absence.default("homing") is SEND)
    running.cancel()


async def test_the_caller_decides_otherwise_the_node() -> None:
    assembly = await assemble()
    await Lamp(assembly.broker, never).start()
    absence = assembly.members[0].parts.absence
    assert (await sent(assembly)).command.if_offline is SEND
    absence.told("homing")
    assert (await sent(assembly)).command.if_offline is FAIL
    assert (await sent(assembly, if_offline=SEND)).command.if_offline is SEND
