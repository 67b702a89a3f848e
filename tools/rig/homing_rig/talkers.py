"""Devices that say numbers unasked, and know which of them the broker took: what a log of events has to have."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import orjson

from app.core.errors import HomingError
from app.core.messages import Publication, Receipt
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient

START_SECONDS: Final = 90.0
"""A bound against hanging."""
SESSIONS: Final = 2
TICK_SECONDS: Final = 0.01
WINDOW: Final = 2000
"""Events that wait for PUBACK; with more, the devices keep silent."""
PUBACK_SECONDS: Final = 120.0
"""The time in which one of those has to be answered, or given up with its connection: four times the keepalive."""
_SHOWN_TOPICS: Final = 3


class UnansweredError(HomingError):
    """A client has publishes that are neither acknowledged nor given up, however long one waits."""


def topics_of(devices: Sequence[str]) -> list[str]:
    """The topics where devices of two families speak: one in each of the two databases that profiles propose."""
    return [topic for one in devices for topic in (f"homing/{one}/event", f"thing/product/{one}/osd")]


class Talkers:
    """Each topic has numbers of its own, without gaps, and one session that says them in order."""

    def __init__(
        self,
        login: Callable[[str], MqttOptions],
        topics: Sequence[str],
        padding: int = 120,
        patience: float = PUBACK_SECONDS,
    ) -> None:
        """`login` tells how a client id connects; `padding`: how many bytes an event has beside its number and topic,
        about; `patience`: for how many seconds nothing may be answered.
        """  # noqa: D205 - one sentence each
        self.topics: Final = tuple(topics)
        self.said: Counter[str] = Counter()
        """Topic -> how many numbers were said: those below."""
        self.taken: Counter[str] = Counter()
        """Topic -> how many of them the broker acknowledged."""
        self.unsure: defaultdict[str, set[int]] = defaultdict(set)
        """Topic -> numbers that nobody acknowledged: they may be in the log or not."""
        self._padding = "x" * padding
        self._patience = patience
        self._silent = False
        self._waiting = 0
        self._answer = asyncio.Event()
        self._clients = [PahoMqttClient(login(f"talker-{number}"), Counter()) for number in range(SESSIONS)]

    async def start(self) -> None:
        """Connect; TimeoutError when the broker does not let them in."""
        for client in self._clients:
            await client.start([], lambda delivery: delivery.acknowledge())
        async with asyncio.timeout(START_SECONDS):
            for client in self._clients:
                await client.wait_connected()

    async def stop(self) -> None:
        """Disconnect."""
        await asyncio.gather(*(client.stop() for client in self._clients))

    @property
    def total(self) -> int:
        """The count of numbers that the broker has acknowledged."""
        return self.taken.total()

    def stop_talking(self) -> None:
        """Say nothing more."""
        self._silent = True

    async def talk(self, rate: float, seconds: float) -> None:
        """Say so many events a second in turn on all topics, and wait until all are acknowledged or given up.

        UnansweredError when that never ends.
        """
        loop = asyncio.get_running_loop()
        began, said, turn = loop.time(), 0, 0
        while (elapsed := loop.time() - began) < seconds and not self._silent:
            due = math.ceil(min(elapsed + TICK_SECONDS, seconds) * rate)
            while said < due:
                if self._waiting >= WINDOW:
                    await self._next_answer()
                    if loop.time() - began >= seconds:
                        break
                self._say(turn % len(self.topics))
                turn, said = turn + 1, said + 1
            await asyncio.sleep(TICK_SECONDS)
        while self._waiting:
            await self._next_answer()

    async def _next_answer(self) -> None:
        self._answer.clear()
        try:
            async with asyncio.timeout(self._patience):
                await self._answer.wait()
        except TimeoutError:
            raise UnansweredError(f"nothing was answered for {self._patience:g} s: {self._standing()}") from None

    def _standing(self) -> str:
        """The connections with publishes that wait, and their topics."""
        said = []
        for number, client in enumerate(self._clients):
            topics = self.topics[number::SESSIONS]
            counts = {one: self.said[one] - self.taken[one] - len(self.unsure[one]) for one in topics}
            if waiting := {topic: count for topic, count in counts.items() if count}:
                state = f"connected {client.connections} times" + ("" if client.connected else ", and not now")
                shown = ", ".join(f"{count} on {topic}" for topic, count in [*waiting.items()][:_SHOWN_TOPICS])
                said.append(f"{client.client_id} ({state}) waits for {sum(waiting.values())}, as {shown}")
        return "; ".join(said)

    def _say(self, place: int) -> None:
        topic = self.topics[place]
        number = self.said[topic]
        self.said[topic] += 1
        payload = orjson.dumps({"n": number, "padding": self._padding})
        try:
            puback = self._clients[place % SESSIONS].publish(Publication(topic, payload))
        except HomingError:
            self.unsure[topic].add(number)
            return
        self._waiting += 1
        puback.add_done_callback(partial(self._answered, topic, number))

    def _answered(self, topic: str, number: int, puback: asyncio.Future[Receipt]) -> None:
        self._waiting -= 1
        self._answer.set()
        if puback.cancelled() or puback.exception() is not None:
            self.unsure[topic].add(number)
        else:
            self.taken[topic] += 1
