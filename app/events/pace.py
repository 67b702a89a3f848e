"""Events give way to commands: while the event loop is late, the intake reads nothing, and the broker keeps it.

An intake in which nothing arrives keeps nobody waiting, so the loop is looked at only after an arrival.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from app.mqtt.base import MqttClient
from app.runtime.telemetry import Counters

LOOK_SECONDS: Final = 0.02
MOST_LAG_SECONDS: Final = 0.05
"""The delay that the loop may have: a command that comes then waits for as long."""
MOST_REST_SECONDS: Final = 0.5
"""The longest rest at a time: on a machine that is always late, events still come in, slowly."""


async def give_way(
    mqtt: MqttClient,
    counters: Counters,
    arrived: asyncio.Event,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Rest while the loop is late, until cancelled; how often is counted as `events.gave_way`.

    `arrived` is set with each arrival, and cleared here.
    """
    loop = asyncio.get_running_loop()
    since: float | None = None
    while True:
        if since is None:
            await arrived.wait()
            arrived.clear()
        due = loop.time() + LOOK_SECONDS
        await sleep(LOOK_SECONDS)
        now = loop.time()
        if now - due <= MOST_LAG_SECONDS or (since is not None and now - since > MOST_REST_SECONDS):
            if since is not None:
                mqtt.rest(on=False)
            since = None
        elif since is None:
            since = now
            mqtt.rest(on=True)
            counters["events.gave_way"] += 1
