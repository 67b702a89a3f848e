"""Runs a fleet against a broker until it is told to stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from app.mqtt.base import MqttClient
from app.mqtt.options import MAX_SEND_WINDOW, MqttOptions, MqttVersion
from app.mqtt.paho import PahoMqttClient
from app.runtime.system import SystemClock
from homing_simulator.fleet import Fleet, FleetStats
from homing_simulator.options import FleetOptions


async def run_simulation(
    options: FleetOptions,
    mqtt_url: str,
    *,
    version: MqttVersion = "5",
    stats: FleetStats | None = None,
    ready: asyncio.Event | None = None,
) -> None:
    """Connect a fleet to the broker and let it answer until this task is cancelled.

    `stats` counts live; `ready` is set when all devices are subscribed. While the broker is away the devices go on
    trying. ConfigurationError when the URL is wrong.
    """
    fleet = Fleet(options, Connector(mqtt_url, version).client, clock=SystemClock(), stats=stats)
    try:
        await fleet.start()
        if ready is not None:
            ready.set()
        await asyncio.Event().wait()
    finally:
        await fleet.stop()


class Connector:
    """Makes the clients of one broker; `counters` counts what happened to all of them."""

    def __init__(self, mqtt_url: str, version: MqttVersion = "5") -> None:
        self.counters: Counter[str] = Counter()
        options = MqttOptions.from_url(mqtt_url, client_id="simulated", version=version)
        self._options = replace(options, receive_maximum=1000, send_window=MAX_SEND_WINDOW)

    def client(self, client_id: str) -> MqttClient:
        """The client of one session."""
        return PahoMqttClient(replace(self._options, client_id=client_id), self.counters)
