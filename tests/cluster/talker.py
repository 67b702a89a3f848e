"""A device that says numbers on three topics, and what a log has kept of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import aiohttp

from app.core.messages import Publication
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from tests.cluster.harness import NodeProcess
from tests.services import NODE_PASSWORD, MosquittoProcess
from tests.waiting import PATIENCE, eventually

DEVICE = "SN0001"
TOPICS = tuple(f"thing/product/{DEVICE}/{name}" for name in ("events", "osd", "state"))
RECEIVE_MAXIMUM = 1024
HALLO = {"n": -1, "method": "x"}
"""The message that is said until somebody hears it."""


async def everything(node: NodeProcess) -> dict[str, list[int]]:
    """The numbers that were said on each topic, as the log has them."""
    found: dict[str, list[int]] = defaultdict(list)
    async with aiohttp.ClientSession() as http:
        for database in ("events", "telemetry"):
            parameters, more = {"database": database, "limit": "1000"}, True
            while more:
                async with http.get(f"{node.url}/v1/events", params=parameters) as answer:
                    page: dict[str, Any] = await answer.json()
                    assert answer.status == 200, page
                for event in page["events"]:
                    if event["data"] != HALLO:
                        found[event["topic"]].append(event["data"]["n"])
                parameters["cursor"], more = page["cursor"], page["more"]
    return found


class Talker:
    """A device that says numbers on three topics, and knows which of them the broker took."""

    def __init__(self, broker: MosquittoProcess) -> None:
        options = MqttOptions.from_url(broker.url, client_id="device")
        self.client = PahoMqttClient(replace(options, username=DEVICE, password=NODE_PASSWORD), Counter())
        self.taken: dict[str, list[int]] = defaultdict(list)
        self._window = asyncio.Semaphore(100)
        self._next = 0

    async def start(self) -> None:
        await self.client.start([], lambda _delivery: None)
        await asyncio.wait_for(self.client.wait_connected(), PATIENCE)

    async def heard_by(self, *nodes: NodeProcess) -> None:
        """Return when one of these has put into the log what this says: a node is ready before its intake listens."""

        async def hears(http: aiohttp.ClientSession, node: NodeProcess) -> bool:
            async with http.get(f"{node.url}/v1/nodes") as answer:
                counters: dict[str, int] = (await answer.json())["self"]["counters"]
                return counters.get("events.appended", 0) > 0

        async def heard() -> bool:
            await self.client.publish(Publication(TOPICS[1], json.dumps(HALLO).encode()))
            async with aiohttp.ClientSession() as http:
                return any([await hears(http, node) for node in nodes])

        await eventually(heard)

    def say(self, count: int) -> asyncio.Future[list[None]]:
        numbers = range(self._next, self._next + count)
        self._next += count
        return asyncio.gather(*(self._say(TOPICS[number % 3], number) for number in numbers))

    async def more_taken(self, count: int) -> None:
        """Return when the broker has taken so many more."""
        before = sum(map(len, self.taken.values()))
        await eventually(lambda: sum(map(len, self.taken.values())) >= before + count)

    async def judge(self, node: NodeProcess, kills: int, *, ordered: bool = True) -> None:
        """Nothing is lost, the order is kept, where it is, and what came twice is bounded."""

        async def all_there() -> bool:
            found = await everything(node)
            return all(set(found[topic]) >= set(numbers) for topic, numbers in self.taken.items())

        await eventually(all_there)
        found = await everything(node)
        for topic in TOPICS:
            first_of_each = list(dict.fromkeys(found[topic]))
            if not ordered:
                first_of_each.sort()
            assert first_of_each == sorted(self.taken[topic]), "in the order of the device, each there"
        repeated = sum(len(numbers) - len(set(numbers)) for numbers in found.values())
        assert repeated <= RECEIVE_MAXIMUM * kills

    async def _say(self, topic: str, number: int) -> None:
        async with self._window:
            await self.client.publish(Publication(topic, json.dumps({"n": number, "method": "x"}).encode()))
            self.taken[topic].append(number)
