"""Nodes in one process: a store in memory, a loopback broker, and a device. No sockets, no waiting for real time."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from app.callbacks.observer import Observer
from app.cluster.adopter import NOBODY
from app.cluster.local import LocalCluster
from app.command_plane.observed import Observed, open_observers
from app.command_plane.plane import CommandPlane, open_commands
from app.command_plane.way_out import CommandSurroundings
from app.commands.send.admission import LastEvent
from app.commands.send.admission import no_events as no_last_events
from app.commands.send.registrar import CommandRequest
from app.core.cluster.wakekey import WakeKey
from app.core.commands.callback import Registration
from app.core.commands.routing import Outcome
from app.core.messages import Publication
from app.core.profiles.response_reader import ResponseReader
from app.core.topics import share
from app.kernel import Adapters, Kernel, open_kernel
from app.membership import MemberPlane, open_canary, open_membership
from app.mqtt import base as mqtt
from app.mqtt.base import Subscription
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient, LoopbackSessionDrain
from app.plane import services_of
from app.profiles.loader import load_profiles
from app.replies.finder import no_events
from app.replies.plane import open_replies
from app.runtime.services import Service
from app.runtime.system import new_charter
from app.runtime.telemetry import Counters
from app.settings import load_settings
from app.store.commands import Joined, Registered
from app.store.memory.commands.store import MemoryStateStore
from app.webhooks.plane import nobody
from tests.waiting import PATIENCE

PROFILES = load_profiles()
WAKE_KEY = WakeKey(b"the cluster's")

AS_LONG_AS_IT_TAKES = timedelta(seconds=PATIENCE)
"""For callers who wait in real time for what is on its way already."""


class ManualClock:
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000 + self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class NodeParts:
    """The parts of a node that keeps no events, serves no webhooks, and asks nobody who they are."""

    kernel: Kernel
    observed: Observed
    commands: CommandPlane
    membership: MemberPlane
    services: Sequence[Service]


def compose(kernel: Kernel, observers: Sequence[Observer] = (), last_event: LastEvent = no_last_events) -> NodeParts:
    """The planes of such a node; nothing of it is connected yet."""
    observed = open_observers(kernel, observers)
    replies = open_replies(kernel, observed.observers, no_events)
    canary = open_canary(kernel)
    around = CommandSurroundings(told_of=nobody, last_event=last_event)
    commands = open_commands(kernel, observed, canary, replies_to=replies.replies_to, around=around)
    membership = open_membership(kernel, canary, commands, NOBODY)
    services = services_of([kernel, observed, commands, replies, membership])
    return NodeParts(kernel, observed, commands, membership, services)


class Member:
    """One node's parts, with the client that connects it."""

    def __init__(self, node_id: str, node: NodeParts) -> None:
        parts = node.commands
        self.node_id = node_id
        self.node = node
        self.parts = parts
        self.open_commands = parts.open_commands
        self.waiters = parts.waiters
        self.inbox = parts.inbox
        self.waker = parts.waker
        self.expirer = parts.expirer
        self.prober = parts.probes.prober
        self.invoker = parts.invoker
        self.journal = node.observed.journal
        self.counters = node.kernel.counters
        self.client = node.kernel.mqtt


@dataclass
class Assembly:
    """Several nodes on one store and one broker."""

    store: MemoryStateStore
    broker: LoopbackBroker
    clock: ManualClock
    members: list[Member]
    lost_wake_ups: bool = False
    wake_ups: list[tuple[str, Outcome]] = field(default_factory=list)

    def wake(self, node_id: str, outcome: Outcome) -> None:
        self.wake_ups.append((node_id, outcome))
        if not self.lost_wake_ups:
            for member in self.members:
                if member.node_id == node_id:  # not so when it is one that died before the test began
                    member.waker.wake(outcome.command_id, outcome)


StoreFactory = Callable[[ManualClock, Callable[[str, Outcome], None]], MemoryStateStore]


def plain_store(clock: ManualClock, wake: Callable[[str, Outcome], None]) -> MemoryStateStore:
    return MemoryStateStore(clock, wake=wake, wake_key=WAKE_KEY)


class SlowToRegister(MemoryStateStore):
    """Lets the event loop turn before it registers, as a network does."""

    async def register(self, registration: Registration) -> Registered | Joined:
        for _ in range(10):
            await asyncio.sleep(0)
        return await super().register(registration)


def slow_to_register(clock: ManualClock, wake: Callable[[str, Outcome], None]) -> MemoryStateStore:
    return SlowToRegister(clock, wake=wake, wake_key=WAKE_KEY)


async def assemble(
    size: int = 1,
    make_store: StoreFactory = plain_store,
    interval: float = 0.01,
    log_dir: str = "",
    profiles_dir: Path | None = None,
    logging: Callable[[str], bool] = lambda _node_id: True,
    observers: Sequence[Observer] = (),
    last_event: LastEvent = no_last_events,
) -> Assembly:
    """`size` connected nodes called n1, n2, …; those that are `logging` have a latency log, where it has a place."""
    clock = ManualClock()
    broker = LoopbackBroker()
    assembly: Assembly

    def wake(node_id: str, outcome: Outcome) -> None:
        assembly.wake(node_id, outcome)

    store = make_store(clock, wake)
    ulids = count(1)
    places = {f"n{i + 1}": log_dir if logging(f"n{i + 1}") else "" for i in range(size)}
    members = [
        _member(node_id, store, broker, clock, ulids, interval, place, profiles_dir, observers, last_event)
        for node_id, place in places.items()
    ]
    assembly = Assembly(store, broker, clock, members)
    reader = ResponseReader((PROFILES if profiles_dir is None else load_profiles(profiles_dir)).values())
    for member in members:
        subscriptions = [Subscription(share("homing", one)) for one in reader.filters()]
        await member.client.start(subscriptions, member.inbox.handle)
        await member.client.wait_connected()
    return assembly


def _member(
    node_id: str,
    store: MemoryStateStore,
    broker: LoopbackBroker,
    clock: ManualClock,
    ulids: count[int],
    interval: float,
    log_dir: str,
    profiles_dir: Path | None,
    observers: Sequence[Observer],
    last_event: LastEvent,
) -> Member:
    counters: Counters = Counter()
    settings = load_settings(
        _env_file=None,
        node={"id": node_id},
        command={"max_pending": 100, "max_waiters": 50},
        cluster={"sweep_interval": timedelta(seconds=interval)},
        latency={"log_dir": log_dir},
        profiles={"dir": profiles_dir},
    )
    adapters = Adapters(
        clock=clock,
        new_ulid=lambda: f"{next(ulids):026}",
        counters=counters,
        store=store,
        wake_key=WAKE_KEY,
        open_cluster=lambda _delivery: LocalCluster(new_charter()),
        open_mqtt=lambda _client_id, _still_ours: LoopbackMqttClient(broker, node_id, counters),
        open_drain=lambda client_id: LoopbackSessionDrain(broker, client_id, counters),
    )
    return Member(node_id, compose(open_kernel(settings, adapters), observers, last_event))


def request(method: str = "blink", **changes: Any) -> CommandRequest:
    """A command for a device of the homing profile."""
    facts: dict[str, Any] = {
        "device_id": "lamp-1",
        "method": method,
        "params": {"n": 3},
        "timeout": timedelta(seconds=10),
        "profile": "homing",
    }
    return CommandRequest(**(facts | changes))


class Lamp:
    """A device of the homing profile; answers each command as `reaction` says."""

    def __init__(self, broker: LoopbackBroker, reaction: Callable[[Lamp, dict[str, Any]], None]) -> None:
        self.client = LoopbackMqttClient(broker, "lamp", Counter())
        self.reaction = reaction
        self.received: list[dict[str, Any]] = []

    async def start(self) -> None:
        await self.client.start([Subscription("homing/+/command")], self.handle)
        await self.client.wait_connected()

    def handle(self, delivery: mqtt.InboundDelivery) -> None:
        command = json.loads(delivery.message.payload)
        command["device_id"] = delivery.message.topic.split("/")[1]
        self.received.append(command)
        delivery.acknowledge()
        self.reaction(self, command)

    def say(self, command: dict[str, Any], status: str = "ok", **parts: Any) -> None:
        """Publish a response to the command."""
        payload = {"id": command["id"], "status": status, "result": command["params"]} | parts
        topic = f"homing/{command['device_id']}/response"
        _puback = self.client.publish(Publication(topic, json.dumps(payload).encode()))


def at_once(lamp: Lamp, command: dict[str, Any]) -> None:
    lamp.say(command)


def never(_lamp: Lamp, _command: dict[str, Any]) -> None:
    return
