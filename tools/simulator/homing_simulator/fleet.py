"""The fleet: MQTT sessions whose devices react to commands."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from app.core.clock import Clock
from app.core.errors import BrokerUnavailableError, UnavailableError
from app.core.messages import Publication, Receipt
from app.mqtt.base import InboundDelivery, MqttClient, Subscription
from app.profiles.loader import load_profiles
from homing_simulator.behaviour import Behaviour
from homing_simulator.options import FleetOptions, device_ids

REMEMBERED: Final = 100_000
"""The number of executed command ids that are kept, the latest."""
BATCH: Final = 100
"""The number of sessions that connect, or disconnect, at the same time."""
SEND_TRIES: Final = 100
SEND_PAUSE: Final = timedelta(milliseconds=100)
"""The time between two tries to send an answer while the broker is away: a device keeps it for ten seconds."""


@dataclass(slots=True)
class FleetStats:
    """The counts of what happened so far.

    Commands are counted once under how they were treated, publications by their fate.
    """

    devices: int = 0
    sessions: int = 0
    """MQTT sessions that should be connected."""
    received: int = 0
    answered: int = 0
    refused: int = 0
    dropped: int = 0
    duplicated: int = 0
    late: int = 0
    garbage: int = 0
    silent: int = 0
    not_a_command: int = 0
    published: int = 0
    """Messages sent; those sent again after a lost connection count again."""
    unsent: int = 0
    """Messages given up, as the broker was away for too long."""
    overloaded: int = 0
    """Messages given up, as too many were waiting."""
    waiting: int = 0
    """Messages that wait for their time at this moment."""
    executed: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED), repr=False)
    """Ids of the commands that devices read, in order, also those they did not answer; the latest 100,000."""


class Fleet:
    """Devices that share sessions as the options say. `connect` makes the client of a session from its client id."""

    def __init__(
        self,
        options: FleetOptions,
        connect: Callable[[str], MqttClient],
        *,
        clock: Clock,
        send_tries: int = SEND_TRIES,
        send_pause: timedelta = SEND_PAUSE,
        stats: FleetStats | None = None,
    ) -> None:
        self.stats = stats if stats is not None else FleetStats()
        self._options = options
        self._clock = clock
        self._send_tries = send_tries
        self._send_pause = send_pause.total_seconds()
        profile = options.speaks or load_profiles(shipped=[options.profile])[options.profile]
        self._behaviour = Behaviour(options, random.Random(options.seed), profile.catalogue)
        self._devices = device_ids(options.first_device, options.devices)
        self._connect = connect
        self._clients: list[MqttClient] = []
        self._timers: set[asyncio.TimerHandle] = set()
        self._stopped = False

    @property
    def devices(self) -> tuple[str, ...]:
        """The ids of all devices."""
        return tuple(self._devices)

    @property
    def connected(self) -> int:
        """The number of sessions that are connected at this moment."""
        return sum(client.connected for client in self._clients)

    async def start(self) -> None:
        """Connect all sessions and return when every device is subscribed."""
        self.stats.devices = len(self._devices)
        size = self._options.devices_per_session
        shares = [self._devices[start : start + size] for start in range(0, len(self._devices), size)]
        self.stats.sessions = len(shares)
        # In batches, or a large fleet would knock at the broker all at once.
        for start in range(0, len(shares), BATCH):
            sessions = [await self._open_session(devices) for devices in shares[start : start + BATCH]]
            for session in sessions:
                await session.wait_connected()

    async def stop(self) -> None:
        """Disconnect; answers that wait for their time are never sent."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.stats.waiting = 0
        self._stopped = True
        clients, self._clients = self._clients, []
        for start in range(0, len(clients), BATCH):
            await asyncio.gather(*(client.stop() for client in clients[start : start + BATCH]))

    async def _open_session(self, devices: list[str]) -> MqttClient:
        topics = dict.fromkeys(topic for device in devices for topic in self._behaviour.command_topics(device))
        client = self._connect(f"simulated-{devices[0]}")
        own = frozenset(devices)
        self._clients.append(client)
        await client.start([Subscription(one) for one in topics], lambda one: self._receive(client, own, one))
        return client

    def _receive(self, client: MqttClient, own: frozenset[str], delivery: InboundDelivery) -> None:
        delivery.acknowledge()
        stats = self.stats
        stats.received += 1
        reaction = self._behaviour.react(delivery.message, self._clock.wall(), own)
        kind = reaction.kind
        setattr(stats, kind, getattr(stats, kind) + 1)
        if reaction.command_id is not None:
            stats.executed.append(reaction.command_id)
        for delay, publication in reaction.planned:
            if delay:
                self._later(delay, client, publication, self._send_tries)
            else:
                self._send(client, publication, self._send_tries)

    def _later(self, delay: float, client: MqttClient, publication: Publication, tries: int) -> None:
        if len(self._timers) >= self._options.max_waiting:
            self.stats.overloaded += 1
            return

        def due() -> None:
            self._timers.discard(timer)
            self.stats.waiting = len(self._timers)
            self._send(client, publication, tries)

        timer = asyncio.get_running_loop().call_later(delay, due)
        self._timers.add(timer)
        self.stats.waiting = len(self._timers)

    def _send(self, client: MqttClient, publication: Publication, tries: int) -> None:
        try:
            puback = client.publish(publication)
        except BrokerUnavailableError:
            self._again(client, publication, tries)
            return
        self.stats.published += 1

        def settled(puback: asyncio.Future[Receipt]) -> None:
            # QoS 1: what was not acknowledged is sent again, be it for the second time.
            if not puback.cancelled() and isinstance(puback.exception(), UnavailableError):
                self._again(client, publication, tries)

        puback.add_done_callback(settled)

    def _again(self, client: MqttClient, publication: Publication, tries: int) -> None:
        if self._stopped:
            return
        if tries <= 1:
            self.stats.unsent += 1
            return
        self._later(self._send_pause, client, publication, tries - 1)
