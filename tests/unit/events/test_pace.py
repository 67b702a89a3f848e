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


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_nothing_is_read_while_the_loop_is_late() -> None:
    client, counters = Rests(), Counter[str]()
    arrived = asyncio.Event()
    arrived.set()
    pacing = asyncio.create_task(give_way(client, counters, arrived))
    await asyncio.sleep(0)
    time.sleep(4 * MOST_LAG_SECONDS)
    await eventually(lambda: client.rests[:2] == [True, False])
    assert counters["events.gave_way"] >= 1
    await end([pacing])


async def test_nobody_looks_while_nothing_arrives() -> None:
    looks: list[float] = []
    go_on = asyncio.Semaphore(0)

    async def sleep(seconds: float) -> None:
        looks.append(seconds)
        await go_on.acquire()

    arrived = asyncio.Event()
    pacing = asyncio.create_task(give_way(Rests(), Counter(), arrived, sleep))
    await turns()
    assert looks == []
    arrived.set()
    await turns()
    arrived.set()
    go_on.release()
    await turns()
    assert len(looks) == 2, "what arrives during a look is followed by another one"
    go_on.release()
    await turns()
    assert len(looks) == 2
    await end([pacing])


async def test_whoever_rests_is_looked_at_until_it_goes_on() -> None:
    client, arrived = Rests(), asyncio.Event()
    looks = 0

    async def sleep(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            time.sleep(2 * MOST_LAG_SECONDS)
        await asyncio.sleep(0)

    arrived.set()
    pacing = asyncio.create_task(give_way(client, Counter(), arrived, sleep))
    await eventually(lambda: client.rests == [True, False])
    await turns()
    assert looks == 2
    await end([pacing])
