"""Nodes in one process: a store in memory, a loopback broker, and a device. No sockets, no waiting for real time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

from app.callbacks.delivery import Delivery
from app.callbacks.dispatcher import Dispatcher
from app.callbacks.registry import Registry
from app.commands.expirer import Expirer
from app.commands.invoker import CommandRequest, Invoker
from app.core.messages import Publication
from app.core.profile import ResponseReader
from app.core.routing import Outcome
from app.core.topics import share
from app.mqtt import base as mqtt
from app.mqtt.base import Subscription
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient
from app.observability import BurstLog, Counters
from app.profiles.loader import load_profiles
from app.store.memory import MemoryStateStore

PROFILES = load_profiles()


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


@dataclass
class Member:
    """One node's parts."""

    node_id: str
    client: LoopbackMqttClient
    registry: Registry
    dispatcher: Dispatcher
    delivery: Delivery
    expirer: Expirer
    invoker: Invoker
    counters: Counters


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
            member = next(one for one in self.members if one.node_id == node_id)
            member.delivery.wake(outcome.command_id, outcome)


StoreFactory = Callable[[ManualClock, Callable[[str, Outcome], None]], MemoryStateStore]


def plain_store(clock: ManualClock, wake: Callable[[str, Outcome], None]) -> MemoryStateStore:
    return MemoryStateStore(clock, wake=wake)


async def assemble(size: int = 1, make_store: StoreFactory = plain_store, interval: float = 0.01) -> Assembly:
    """`size` connected nodes called n1, n2, …"""
    clock = ManualClock()
    broker = LoopbackBroker()
    assembly: Assembly

    def wake(node_id: str, outcome: Outcome) -> None:
        assembly.wake(node_id, outcome)

    store = make_store(clock, wake)
    ulids = count(1)
    members = [_member(f"n{i + 1}", store, broker, clock, ulids, interval) for i in range(size)]
    assembly = Assembly(store, broker, clock, members)
    reader = ResponseReader(PROFILES.values())
    for member in members:
        subscriptions = [Subscription(share("homing", one)) for one in reader.filters()]
        await member.client.start(subscriptions, member.dispatcher.handle)
        await member.client.wait_connected()
    return assembly


def _member(
    node_id: str,
    store: MemoryStateStore,
    broker: LoopbackBroker,
    clock: ManualClock,
    ulids: count[int],
    interval: float,
) -> Member:
    counters: Counters = Counter()
    client = LoopbackMqttClient(broker, node_id, counters)
    registry = Registry(clock, max_pending=100, max_waiters=50)
    expirer = Expirer(store=store, registry=registry, clock=clock, node_id=node_id)
    invoker = Invoker(
        store=store,
        mqtt=client,
        registry=registry,
        profiles=PROFILES,
        new_ulid=lambda: f"{next(ulids):026}",
        node_id=node_id,
        retention=timedelta(minutes=5),
        expirer=expirer,
        counters=counters,
    )
    dispatcher = Dispatcher(
        reader=ResponseReader(PROFILES.values()),
        store=store,
        registry=registry,
        node_id=node_id,
        counters=counters,
        drops=BurstLog(counters, clock),
    )
    delivery = Delivery(store=store, registry=registry, clock=clock, interval=interval, counters=counters)
    return Member(node_id, client, registry, dispatcher, delivery, expirer, invoker, counters)


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

    def handle(self, delivery: mqtt.Delivery) -> None:
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
