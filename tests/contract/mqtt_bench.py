"""Clients of every MqttClient for a test: in process, over a real Mosquitto, and over the broker of a node."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import cast

from paho.mqtt import publish

from app.core.messages import ReceivedMessage
from app.mqtt.base import InboundDelivery, MqttClient, SessionDrain, Subscription
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient, LoopbackSessionDrain
from app.mqtt.options import MqttOptions, MqttVersion
from app.mqtt.paho import PahoMqttClient
from app.mqtt.paho_drain import PahoSessionDrain
from homing_rig.simulation.broker import Quirks, SimBroker
from homing_rig.simulation.loop import SimLoop
from homing_rig.simulation.mqtt import SimMqttClient, SimSessionDrain
from homing_rig.simulation.network import Link
from tests.broker import RunningBroker
from tests.services import MosquittoProcess
from tests.waiting import PATIENCE

IDLE = timedelta(seconds=1)
"""As long as in life: a busy broker may take a moment for what it holds."""


class Inbox:
    """A handler that keeps deliveries, and acknowledges them unless told not to."""

    def __init__(self, *, acknowledge: bool = True) -> None:
        self.deliveries: list[InboundDelivery] = []
        self._acknowledge = acknowledge
        self._news = asyncio.Event()

    def __call__(self, delivery: InboundDelivery) -> None:
        self.deliveries.append(delivery)
        self._news.set()
        if self._acknowledge:
            delivery.acknowledge()

    @property
    def payloads(self) -> list[bytes]:
        return [delivery.message.payload for delivery in self.deliveries]

    async def wait_for(self, number: int) -> list[ReceivedMessage]:
        async with asyncio.timeout(PATIENCE):
            while len(self.deliveries) < number:
                self._news.clear()
                await self._news.wait()
        return [delivery.message for delivery in self.deliveries]


class _Simulation:
    """The broker of the simulation, here on the loop of the test and in real time."""

    def __init__(self) -> None:
        self._loop = cast("SimLoop", asyncio.get_running_loop())
        chance = Random(1)
        self._chance = chance
        self._broker = SimBroker(self._loop, Quirks(), chance)
        self._way = Link(self._loop, "way", "near", chance)

    def client(self, client_id: str, counters: Counter[str]) -> MqttClient:
        return SimMqttClient(self._loop, self._broker, self._way, client_id, counters, self._chance)

    def drain(self, client_id: str, counters: Counter[str]) -> SessionDrain:
        return SimSessionDrain(self._loop, self._broker, self._way, client_id, counters)


class Bench:
    """One broker, and clients of it that are stopped at the end of the test."""

    def __init__(self, implementation: str, find_broker: Callable[[], MosquittoProcess | RunningBroker]) -> None:
        self.implementation = implementation
        self.prefix = f"contract/{secrets.token_hex(8)}"
        self.counters: Counter[str] = Counter()
        self.clients: list[MqttClient] = []
        self._loopback = LoopbackBroker()
        self._simulation = _Simulation()
        self._find_broker = find_broker

    @property
    def version(self) -> MqttVersion:
        return "3.1.1" if self.implementation.endswith("v3.1.1") else "5"

    def client(self, client_id: str = "") -> MqttClient:
        client_id = client_id or secrets.token_hex(8)
        client: MqttClient
        if self.implementation == "simulated":
            client = self._simulation.client(client_id, self.counters)
        elif self.implementation == "loopback":
            client = LoopbackMqttClient(self._loopback, client_id, self.counters)
        else:
            client = PahoMqttClient(self._options(client_id), self.counters)
        self.clients.append(client)
        return client

    def drain(self, client_id: str) -> SessionDrain:
        if self.implementation == "simulated":
            return self._simulation.drain(client_id, self.counters)
        if self.implementation == "loopback":
            return LoopbackSessionDrain(self._loopback, client_id, self.counters)
        return PahoSessionDrain(self._options(client_id), self.counters)

    def _options(self, client_id: str) -> MqttOptions:
        return MqttOptions.from_url(self._find_broker().url, client_id=client_id, version=self.version)

    async def started(self, handler: Inbox, *filters: str, client_id: str = "") -> MqttClient:
        client = self.client(client_id)
        await client.start([Subscription(topic_filter) for topic_filter in filters], handler)
        async with asyncio.timeout(PATIENCE):
            await client.wait_connected()
        return client

    async def retain(self, topic: str, payload: bytes) -> None:
        """As a device might do; our own clients never do."""
        if self.implementation == "loopback":
            self._loopback.retain(ReceivedMessage(topic, payload))
        else:
            port = self._find_broker().port
            await asyncio.to_thread(publish.single, topic, payload, 1, retain=True, hostname="127.0.0.1", port=port)

    def topic(self, rest: str) -> str:
        return f"{self.prefix}/{rest}"
