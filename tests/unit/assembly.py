"""Nodes in one process: a store in memory, a loopback broker, and a device. No sockets, no waiting for real time."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

from app.cluster.local import LocalCluster
from app.commands.invoker import CommandRequest
from app.core.callback import Registration
from app.core.messages import Publication
from app.core.profile import ResponseReader
from app.core.routing import Outcome
from app.core.topics import share
from app.main import Adapters, compose
from app.mqtt import base as mqtt
from app.mqtt.base import Subscription
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient
from app.node import Parts
from app.observability import Counters
from app.profiles.loader import load_profiles
from app.settings import load_settings
from app.store.base import Joined, Registered
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


class Member:
    """One node's parts, with the client that connects it."""

    def __init__(self, node_id: str, parts: Parts) -> None:
        self.node_id = node_id
        self.parts = parts
        self.registry = parts.registry
        self.dispatcher = parts.dispatcher
        self.delivery = parts.delivery
        self.expirer = parts.expirer
        self.invoker = parts.invoker
        self.journal = parts.journal
        self.counters = parts.counters
        self.client = parts.mqtt


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


class SlowToRegister(MemoryStateStore):
    """Lets the event loop turn before it registers, as a network does."""

    async def register(self, registration: Registration) -> Registered | Joined:
        for _ in range(10):
            await asyncio.sleep(0)
        return await super().register(registration)


def slow_to_register(clock: ManualClock, wake: Callable[[str, Outcome], None]) -> MemoryStateStore:
    return SlowToRegister(clock, wake=wake)


async def assemble(
    size: int = 1, make_store: StoreFactory = plain_store, interval: float = 0.01, log_dir: str = ""
) -> Assembly:
    """`size` connected nodes called n1, n2, …, with a latency log where it is given a place."""
    clock = ManualClock()
    broker = LoopbackBroker()
    assembly: Assembly

    def wake(node_id: str, outcome: Outcome) -> None:
        assembly.wake(node_id, outcome)

    store = make_store(clock, wake)
    ulids = count(1)
    members = [_member(f"n{i + 1}", store, broker, clock, ulids, interval, log_dir) for i in range(size)]
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
    log_dir: str,
) -> Member:
    counters: Counters = Counter()
    settings = load_settings(
        _env_file=None,
        node={"id": node_id},
        command={"max_pending": 100, "max_waiters": 50},
        cluster={"sweep_interval": timedelta(seconds=interval)},
        latency={"log_dir": log_dir},
    )
    adapters = Adapters(
        clock=clock,
        new_ulid=lambda: f"{next(ulids):026}",
        counters=counters,
        store=store,
        open_cluster=lambda _delivery: LocalCluster(),
        open_mqtt=lambda _client_id, _still_ours: LoopbackMqttClient(broker, node_id, counters),
    )
    return Member(node_id, compose(settings, adapters))


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
