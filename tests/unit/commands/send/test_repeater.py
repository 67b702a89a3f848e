from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.commands.send.repeater import AT_A_TIME, Repeater
from app.core.commands.callback import Expectation, HoldRequest, Registration
from app.core.commands.command import Command, CommandState
from app.core.errors import BrokerUnavailableError, StoreUnavailableError
from app.core.identifiers import command_id
from app.core.messages import Publication
from app.core.profiles.correlation import Correlation
from app.mqtt.base import Puback
from app.mqtt.loopback import LoopbackMqttClient
from app.store.commands import Joined, Registered
from app.store.holds import Claimed
from tests.unit.assembly import Assembly, Lamp, Member, assemble, at_once, never
from tests.waiting import turns

PROFILE = """
name = "valve"
description = "a valve that may be opened twice"
[request]
topic = "homing/{device_id}/command"
repeatable = ["open", "close"]
payload = { id = "{id}", method = "{method}", params = "{params}", deadline = "{deadline}" }
[[response]]
name = "response"
topic = "homing/{device_id}/response"
correlation = "id"
sources = [{ path = "id" }]
result = "result"
rules = [{ state = "succeeded" }]
"""


Reaction = Callable[[Lamp, dict[str, Any]], None]


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    (tmp_path / "valve.toml").write_text(PROFILE)
    return tmp_path


_numbers = iter(range(1, 1000))


async def left(assembly: Assembly, method: str = "open", *, one_way: bool = False, **changes: Any) -> str:
    """A command that node `dead` put on record and did not send."""
    identity = command_id("lamp-1", f"{next(_numbers) + 5000:026}")
    registration = registration_of(method, one_way=one_way, **{"command_id": identity} | changes)
    assert isinstance(await assembly.members[0].invoker._store.register(registration), Registered)
    assembly.clock.advance(0.001)
    return identity


def registration_of(method: str = "open", *, one_way: bool = False, **changes: Any) -> Registration:
    facts: dict[str, Any] = {
        "command_id": "",
        "device_id": "lamp-1",
        "method": method,
        "params": b'{"n":3}',
        "profile": "valve",
        "home_node": "dead",
        "timeout": timedelta(seconds=10),
        "retention": timedelta(minutes=1),
    } | changes
    facts.setdefault("expectations", () if one_way else places(facts["device_id"]))
    return Registration(**facts)


def places(device: str) -> tuple[Expectation, ...]:
    return (Expectation(f"homing/{device}/response", Correlation.ID),)


async def command(assembly: Assembly, identity: str) -> Command:
    (found,) = await assembly.store.get([identity])
    assert found is not None
    return found


def repeater(member: Member) -> Repeater:
    return member.parts.repeater


async def started(profiles: Path, size: int = 2, reaction: Reaction = at_once) -> tuple[Assembly, Lamp]:
    assembly = await assemble(size, profiles_dir=profiles)
    lamp = Lamp(assembly.broker, reaction)
    await lamp.start()
    return assembly, lamp


async def test_what_may_be_repeated_is_sent_with_its_id_and_answered(profiles: Path) -> None:
    assembly, lamp = await started(profiles)
    identity = await left(assembly)
    assert await repeater(assembly.members[0]).take_over("dead") == 1
    await turns()
    found = await command(assembly, identity)
    assert (found.state, found.result) == (CommandState.SUCCEEDED, b'{"n":3}')
    assert [one["id"] for one in lamp.received] == [identity]
    assert lamp.received[0]["params"] == {"n": 3}


async def test_of_two_survivors_one_sends(profiles: Path) -> None:
    assembly, lamp = await started(profiles, 3, never)
    identities = [await left(assembly) for _ in range(40)]
    sent = await asyncio.gather(*(repeater(member).take_over("dead") for member in assembly.members))
    await turns()
    assert sum(sent) == 40
    assert sorted(one["id"] for one in lamp.received) == sorted(identities)
    assert await repeater(assembly.members[0]).take_over("dead") == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "toggle"},
        {"profile": "homing", "method": "open"},
        {"profile": "unknown"},
        {"home_node": "n2"},
        {"timeout": timedelta(microseconds=1)},
    ],
)
async def test_what_may_not_be_repeated_stays_as_it_is(profiles: Path, changes: dict[str, Any]) -> None:
    assembly, lamp = await started(profiles)
    identity = await left(assembly, **changes)
    assert await repeater(assembly.members[0]).take_over("dead") == 0
    await turns()
    assert lamp.received == []
    assert (await command(assembly, identity)).state is CommandState.PENDING


@pytest.mark.parametrize("state", [CommandState.ACKNOWLEDGED, CommandState.SENT, CommandState.CANCELLED])
async def test_what_was_seen_to_leave_or_has_ended_is_not_sent_again(profiles: Path, state: CommandState) -> None:
    assembly, lamp = await started(profiles)
    identity = await left(assembly)
    if state.final:
        await assembly.store.finish(identity, state, "n1")
    else:
        await assembly.store.mark(identity, state)
    assert await repeater(assembly.members[0]).take_over("dead") == 0
    await turns()
    assert lamp.received == []


async def test_what_another_incarnation_registered_is_left_to_it(profiles: Path) -> None:
    assembly, lamp = await started(profiles)
    before = await left(assembly)
    now = await assembly.store.now()
    await left(assembly)
    assert await repeater(assembly.members[0]).take_over("dead", registered_before=now) == 1
    await turns()
    assert [one["id"] for one in lamp.received] == [before]


async def test_what_was_overtaken_by_another_method_is_not_repeated(profiles: Path) -> None:
    assembly, lamp = await started(profiles)
    await left(assembly, "open")
    await left(assembly, "open", device_id="lamp-2", command_id=command_id("lamp-2", f"{1:026}"))
    closing = await left(assembly, "close")
    member = assembly.members[0]
    assert await repeater(member).take_over("dead") == 2
    await turns()
    assert {one["id"] for one in lamp.received} == {closing, command_id("lamp-2", f"{1:026}")}
    assert member.counters["repeat.overtaken"] == 1


async def test_what_was_held_was_told_to_its_device_when_it_was_claimed(profiles: Path) -> None:
    """It has waited since before the command that it overtakes was registered."""
    assembly, lamp = await started(profiles)
    held = await left(assembly, "close", hold=HoldRequest(timedelta(hours=1)))
    await left(assembly, "open")
    assert isinstance(await assembly.store.claim(held, "n2", "token"), Claimed)
    assert await repeater(assembly.members[0]).take_over("dead") == 0
    await turns()
    assert lamp.received == []
    assert assembly.members[0].counters["repeat.overtaken"] == 1


async def test_what_another_incarnation_claimed_is_left_to_it(profiles: Path) -> None:
    assembly, lamp = await started(profiles)
    held = await left(assembly, hold=HoldRequest(timedelta(hours=1)))
    began = await assembly.store.now()
    assembly.clock.advance(1)
    assert isinstance(await assembly.store.claim(held, "dead", "token"), Claimed)
    assert await repeater(assembly.members[0]).take_over("dead", registered_before=began) == 0
    await turns()
    assert lamp.received == []


async def test_a_one_way_command_has_succeeded_at_puback(profiles: Path) -> None:
    assembly, lamp = await started(profiles)
    identity = await left(assembly, one_way=True)
    await repeater(assembly.members[0]).take_over("dead")
    assert (await command(assembly, identity)).state is CommandState.SUCCEEDED
    await turns()
    assert len(lamp.received) == 1


async def test_without_a_broker_nothing_is_taken_over_and_it_may_be_tried_again(profiles: Path) -> None:
    assembly, lamp = await started(profiles)
    await left(assembly)
    assembly.broker.disconnect("n1")
    with pytest.raises(BrokerUnavailableError):
        await repeater(assembly.members[0]).take_over("dead")
    assembly.broker.restore("n1")
    assert await repeater(assembly.members[0]).take_over("dead") == 1
    await turns()
    assert len(lamp.received) == 1


async def test_a_store_that_goes_away_for_one_command_does_not_keep_the_others(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembly, lamp = await started(profiles)
    lost = await left(assembly)
    others = [await left(assembly) for _ in range(3)]
    mark = assembly.store.mark

    async def away(identity: str, state: CommandState, sender: str | None = None) -> bool:
        if identity == lost:
            raise StoreUnavailableError("away")
        return await mark(identity, state, sender)

    monkeypatch.setattr(assembly.store, "mark", away)
    with pytest.raises(StoreUnavailableError):
        await repeater(assembly.members[0]).take_over("dead")
    monkeypatch.setattr(assembly.store, "mark", mark)
    assert await repeater(assembly.members[0]).take_over("dead") == 1
    await turns()
    assert sorted(one["id"] for one in lamp.received) == sorted([lost, *others])


class Refuses(LoopbackMqttClient):
    def publish(self, publication: Publication) -> Puback:
        raise BrokerUnavailableError("the window is full")


async def test_what_a_survivor_cannot_send_is_not_called_unsent_and_its_key_stands_for_it(profiles: Path) -> None:
    """Its dead node may have sent it: called unsent, it would be sent once more under another id (seed 52)."""
    assembly, _ = await started(profiles)
    identity = await left(assembly, idempotency_key="k")
    member = assembly.members[0]
    refusing = Refuses(assembly.broker, "n9", member.counters)
    await refusing.start([], member.inbox.handle)
    await refusing.wait_connected()
    repeater(member)._publisher._mqtt = refusing
    assert await repeater(member).take_over("dead") == 0
    assert (await command(assembly, identity)).state is CommandState.SENT
    again = registration_of(idempotency_key="k", command_id=command_id("lamp-1", f"{1:026}"))
    joined = await assembly.store.register(again)
    assert isinstance(joined, Joined)
    assert joined.command.id == identity


async def test_a_connection_that_breaks_meanwhile_leaves_the_others_to_be_tried_again(profiles: Path) -> None:
    assembly, lamp = await started(profiles, reaction=never)
    identities = [await left(assembly) for _ in range(2 * AT_A_TIME)]
    member = assembly.members[0]
    breaks = BreaksAfterOne(assembly.broker, "n9", member.counters)
    await breaks.start([], member.inbox.handle)
    await breaks.wait_connected()
    publisher = repeater(member)._publisher
    usual, publisher._mqtt = publisher._mqtt, breaks
    with pytest.raises(BrokerUnavailableError):
        await repeater(member).take_over("dead")
    publisher._mqtt = usual
    states = [(await command(assembly, one)).state for one in identities]
    assert states.count(CommandState.PENDING) >= AT_A_TIME
    assert CommandState.UNSENT not in states
    assert await repeater(member).take_over("dead") == states.count(CommandState.PENDING)
    await turns()
    assert len(lamp.received) == 1 + states.count(CommandState.PENDING)


class BreaksAfterOne(LoopbackMqttClient):
    """Its connection breaks as soon as it has sent something."""

    sent = 0

    @property
    def connected(self) -> bool:
        return super().connected and not self.sent

    def publish(self, publication: Publication) -> Puback:
        if self.sent:
            raise BrokerUnavailableError("not connected")
        puback = super().publish(publication)
        self.sent += 1
        return puback


class Notes(LoopbackMqttClient):
    def publish(self, publication: Publication) -> Puback:
        self.expiry = publication.message_expiry
        return super().publish(publication)


async def test_it_expires_at_its_deadline_and_not_later(profiles: Path) -> None:
    assembly, lamp = await started(profiles)
    await left(assembly)
    member = assembly.members[0]
    notes = Notes(assembly.broker, "n9", member.counters)
    await notes.start([], member.inbox.handle)
    await notes.wait_connected()
    repeater(member)._publisher._mqtt = notes
    assembly.clock.advance(5.999)
    await repeater(member).take_over("dead")
    assert notes.expiry == timedelta(seconds=4)
    await turns()
    assert len(lamp.received) == 1


async def test_what_an_earlier_start_left_is_sent_as_soon_as_the_store_answers(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembly, lamp = await started(profiles)
    member = assembly.members[0]
    commands = member.node.membership.parts.left
    identity = await left(assembly, home_node=member.node_id)
    await commands.take_up()
    await left(assembly, home_node=member.node_id)  # of this start: it is on its way
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(member.parts.repeater, "take_over", away)
        await commands.repeat()
    assert lamp.received == []
    await commands.repeat()
    await commands.repeat()
    await turns()
    assert [one["id"] for one in lamp.received] == [identity]


async def away(*_: object, **__: object) -> int:
    raise StoreUnavailableError("away")
