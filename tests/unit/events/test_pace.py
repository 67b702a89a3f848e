"""Events give way to commands while the loop is late."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from app.events.pace import MOST_LAG_SECONDS, give_way
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient
from app.runtime.tasks import end
from tests.waiting import eventually


class Rests(LoopbackMqttClient):
    """Notes when it rests."""

    def __init__(self) -> None:
        super().__init__(LoopbackBroker(), "intake", Counter())
        self.rests: list[bool] = []

    def rest(self, *, on: bool) -> None:
        self.rests.append(on)
        super().rest(on=on)


async def test_nothing_is_read_while_the_loop_is_late() -> None:
    client, counters = Rests(), Counter[str]()
    pacing = asyncio.create_task(give_way(client, counters))
    await asyncio.sleep(0)
    time.sleep(4 * MOST_LAG_SECONDS)
    await eventually(lambda: client.rests[:2] == [True, False])
    assert counters["events.gave_way"] >= 1
    await end([pacing])
