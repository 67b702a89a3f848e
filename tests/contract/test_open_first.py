"""A message that could answer several commands answers an open one first, on every state store."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from app.callbacks.answers import Answers
from app.callbacks.echoes import Echoes
from app.callbacks.observer import Observer, Observers
from app.callbacks.open_commands import OpenCommands
from app.callbacks.waiters import Waiters
from app.core.commands.callback import Answer, Registration
from app.core.commands.command import Command, CommandState
from app.core.commands.routing import MatchResult, Recorded
from app.core.messages import ReceivedMessage
from app.core.profiles.correlation import Correlation
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.response_reader import ResponseReader
from app.core.profiles.templates import CommandFacts
from app.mqtt.inbox import Inbox
from app.profiles.loader import load_profiles, parse_profile
from app.runtime.system import SystemClock
from app.store.state import StateStore
from tests.contract.store_backends import new_id, registration
from tests.waiting import eventually

RELAY = parse_profile(
    """
    name = "relay"
    description = "Any of the keys of an answer may be the command; several commands may be open"

    [request]
    topic = "relay/{device_id}/{method}/{id}"
    payload = "{params}"

    [[response]]
    name = "by_id"
    topic = "relay/{device_id}/result"
    match = [{ path = "ref", present = true }]
    correlation = "id"
    sources = [{ path = "ref" }]
    result = "$"
    rules = [{ state = "succeeded" }]

    [[response]]
    name = "by_key"
    also = true
    topic = "relay/{device_id}/result"
    correlation = "value"
    value = "{method}"
    sources = [{ keys = "$" }]
    result = "$"
    rules = [{ state = "succeeded" }]
    """,
    "relay.toml",
)
TASMOTA = load_profiles(shipped=["tasmota"])["tasmota"]
CLOCK = SystemClock()
TOPICS = {"relay": "relay/dock-1/result", "tasmota": "stat/dock-1/RESULT"}


@dataclass
class Delivered:
    """A message that the broker gives; `acknowledged` when its PUBACK went out."""

    message: ReceivedMessage
    acknowledged: bool = False

    def acknowledge(self) -> None:
        self.acknowledged = True


@dataclass
class Verdicts(Observer):
    found: list[tuple[MatchResult, str | None]] = field(default_factory=list)

    def recorded(self, recorded: Recorded, answer: Answer, arrived_at: float, now: float) -> None:
        del answer, arrived_at, now
        self.found.append((recorded.verdict, recorded.command_id))


class Node:
    """As much of a node as reads answers."""

    def __init__(self, store: StateStore, profile: DeviceProfile, node_id: str = "node-b") -> None:
        self._verdicts = Verdicts()
        observers = Observers(Counter(), [self._verdicts])
        waiters = Waiters(CLOCK, observers, most=10)
        answers = Answers(
            store=store,
            echoes=Echoes(store.states, {profile.name: profile}),
            open_commands=OpenCommands(CLOCK, waiters, observers, most=10),
            node_id=node_id,
            clock=CLOCK,
            observers=observers,
        )
        reader = ResponseReader([profile])
        self._topic = TOPICS[profile.name]
        self._inbox = Inbox(lambda arrival: answers.take(arrival, reader.read(arrival.message)), CLOCK)

    async def hear(self, payload: object, *, again: bool = False) -> tuple[MatchResult, str | None]:
        """Return what became of a message, once it has its PUBACK."""
        delivered = Delivered(ReceivedMessage(self._topic, json.dumps(payload).encode(), redelivered=again))
        self._inbox.handle(delivered)
        await self._inbox.drained()
        assert delivered.acknowledged
        return self._verdicts.found[-1]


def command(profile: DeviceProfile, method: str, quarantine: timedelta = timedelta()) -> Registration:
    identity = new_id("dock-1")
    facts = CommandFacts(identity, "dock-1", method, None, 0, 0)
    expected = registration("dock-1", *profile.expectations(facts), identity=identity, quarantine=quarantine)
    return replace(expected, method=method, profile=profile.name)


async def read(store: StateStore, one: Registration) -> Command:
    (found,) = await store.get([one.command_id])
    assert found is not None
    return found


STATE = {"POWER": "ON", "Dimmer": 41}
ORDERS = [("POWER", "Dimmer"), ("Dimmer", "POWER")]
ENDS = ["answered", "timed_out", "cancelled", "unsent"]


@pytest.mark.parametrize("keys", ORDERS, ids="-".join)
@pytest.mark.parametrize("methods", ORDERS, ids="-".join)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("profile", [RELAY, TASMOTA], ids=lambda one: one.name)
async def test_an_open_command_comes_before_one_that_has_its_outcome_whatever_is_read_first(
    store: StateStore,
    other_node: StateStore,
    profile: DeviceProfile,
    end: str,
    methods: tuple[str, str],
    keys: tuple[str, str],
) -> None:
    node, message = Node(other_node, profile), {key: STATE[key] for key in keys}
    before, wanted = (command(profile, method) for method in methods)
    await store.register(before)
    if end == "answered":
        assert await node.hear(message) == (MatchResult.WON, before.command_id)
    else:
        await store.finish(before.command_id, CommandState(end), "node-a")
    ended = await read(store, before)
    await store.register(wanted)
    assert await node.hear(message) == (MatchResult.WON, wanted.command_id)
    assert await read(store, before) == ended
    assert json.loads((await read(store, wanted)).result or b"") == message


@pytest.mark.parametrize("keys", ORDERS, ids="-".join)
@pytest.mark.parametrize("methods", ORDERS, ids="-".join)
async def test_two_that_are_open_at_once_are_both_answered(
    store: StateStore, methods: tuple[str, str], keys: tuple[str, str]
) -> None:
    node, message = Node(store, RELAY), {key: STATE[key] for key in keys}
    wanted = [command(RELAY, method) for method in methods]
    for one in wanted:
        await store.register(one)
    heard = [await node.hear(message) for _ in wanted]
    assert {identity for _, identity in heard} == {one.command_id for one in wanted}
    assert [verdict for verdict, _ in heard] == [MatchResult.WON] * 2
    assert (await node.hear(message))[0] is MatchResult.DUPLICATE


@pytest.mark.parametrize("keys", ORDERS, ids="-".join)
@pytest.mark.parametrize("end", ENDS[1:])
async def test_where_none_is_open_the_first_that_fits_has_the_late_answer(
    store: StateStore, end: str, keys: tuple[str, str]
) -> None:
    node, message = Node(store, RELAY), {key: STATE[key] for key in keys}
    ended = {key: command(RELAY, key) for key in keys}
    for one in ended.values():
        await store.register(one)
        await store.finish(one.command_id, CommandState(end), "node-a")
    first = ended[keys[0]]
    assert await node.hear(message) == (MatchResult.LATE, first.command_id)
    assert await node.hear(message) == (MatchResult.DUPLICATE, first.command_id)
    assert json.loads((await read(store, first)).late or b"")["result"] == message
    assert (await read(store, ended[keys[1]])).late is None


async def test_our_id_means_one_command_and_no_other_that_is_open(store: StateStore) -> None:
    node = Node(store, RELAY)
    ended, wanted = command(RELAY, "POWER"), command(RELAY, "Dimmer")
    await store.register(ended)
    await store.finish(ended.command_id, CommandState.TIMED_OUT, "node-a")
    await store.register(wanted)
    late = {"ref": ended.command_id, "Dimmer": 41}
    assert await node.hear(late) == (MatchResult.LATE, ended.command_id)
    assert await node.hear(late) == (MatchResult.DUPLICATE, ended.command_id)
    assert (await read(store, wanted)).state is CommandState.PENDING


async def test_what_is_delivered_again_after_it_was_recorded_answers_no_second_command(store: StateStore) -> None:
    """A node died before PUBACK, so another one gets the message once more."""
    node = Node(store, RELAY)
    wanted = [command(RELAY, method) for method in STATE]
    for one in wanted:
        await store.register(one)
    first = await node.hear(STATE)
    assert await node.hear(STATE, again=True) == (MatchResult.DUPLICATE, first[1])
    assert [(await read(store, one)).state for one in wanted] == [CommandState.SUCCEEDED, CommandState.PENDING]


async def test_what_is_delivered_again_and_was_never_recorded_is_read_as_any_other(store: StateStore) -> None:
    """The store was away, so the broker had kept it."""
    node = Node(store, RELAY)
    before, wanted = (command(RELAY, method) for method in STATE)
    await store.register(before)
    await node.hear({"POWER": "OFF"})
    await store.register(wanted)
    assert await node.hear(STATE, again=True) == (MatchResult.WON, wanted.command_id)


async def test_of_many_at_once_each_message_answers_one_command(store: StateStore, other_node: StateStore) -> None:
    nodes = [Node(store, RELAY, "node-a"), Node(other_node, RELAY, "node-b")]
    wanted = [command(RELAY, f"key{number}") for number in range(8)]
    for one in wanted:
        await store.register(one)
    message = {one.method: 1 for one in wanted}
    await asyncio.gather(*(node.hear(message) for node in nodes for _ in range(4)))

    async def all_answered() -> bool:
        states = [one.state for one in await store.get([one.command_id for one in wanted]) if one is not None]
        return states == [CommandState.SUCCEEDED] * len(wanted)

    await eventually(all_answered)


def test_the_readings_of_a_message_are_one_for_each_key() -> None:
    answer = ResponseReader([RELAY]).read(ReceivedMessage(TOPICS["relay"], json.dumps(STATE).encode()))
    assert [one.value for one in (answer, *answer.others)] == list(STATE)
    assert answer.correlation is Correlation.VALUE
