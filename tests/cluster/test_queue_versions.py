"""A rolling update from 0.2.0, which knows no queues: nodes in processes of their own are exchanged one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from redis import Redis

from app.cluster.shares import falls_to
from app.core import keys
from app.runtime.exits import Exit
from tests.cluster.harness import Json, NodeProcess
from tests.contract.test_event_versions import COMMIT
from tests.previous import previous_version
from tests.services import MosquittoProcess, RedisProcess

PATIENCE: Final = 180.0
"""Seconds for each step that is waited for: two versions start beside each other, and the machine may be busy."""
SITES: Final = 40
"""Each shard has the events of some of them."""
SHARDS: Final = 4
EACH: Final = 100
"""Events that are published between two steps of the update."""


@pytest.fixture(scope="module")
def previous() -> Iterator[Path]:
    with previous_version(COMMIT) as folder:
        yield folder


@pytest.fixture
def redis() -> Iterator[RedisProcess]:
    with RedisProcess() as server:
        yield server


class Fleet:
    """The nodes by their ids, of which each has a version, and what was said to them and by them."""

    def __init__(self, stack: ExitStack, redis: RedisProcess, broker: MosquittoProcess, previous: Path) -> None:
        self.nodes: dict[str, NodeProcess] = {}
        self._stack, self._redis, self._broker, self._previous = stack, redis, broker, previous
        self._numbers = count()
        self.confirmed: set[int] = set()
        self.handled: set[int] = set()

    async def start(self, node_id: str, *, old: bool) -> None:
        env = {"HOMING_EVENTS_URL": self._redis.node_url, "HOMING_MQTT_SHARE_GROUP": "queue-versions"}
        if old:
            env["PYTHONPATH"] = str(self._previous)
        node = NodeProcess(node_id, self._redis, self._broker, module="app.cli", **env)
        await asyncio.to_thread(self._stack.enter_context, node)
        self.nodes[node_id] = node

    async def exchange(self, node_id: str) -> None:
        """End a node in an orderly way and start one of this version, while it and others are published to."""
        leaving = self.nodes[node_id]
        others = asyncio.create_task(self.publish(EACH))
        assert await asyncio.to_thread(leaving.stop) == Exit.OK
        await self.start(node_id, old=False)
        await others

    async def publish(self, number: int) -> None:
        """Say so many things, one by one, to all nodes in turn. Whatever is not confirmed is said to the next one."""
        async with aiohttp.ClientSession() as http, asyncio.timeout(PATIENCE):
            for value in [next(self._numbers) for _ in range(number)]:
                body = [{"topic": f"site/{value % SITES}/alarm", "data": value}]
                for turn in count(value):
                    node = list(self.nodes.values())[turn % len(self.nodes)]
                    try:
                        async with http.post(f"{node.url}/v1/events", json=body) as answer:
                            if answer.ok:
                                self.confirmed.add(value)
                                break
                            assert answer.status in {429, 503}, await answer.text()
                    except aiohttp.ClientError:
                        continue

    async def call(self, node_id: str, method: str, path: str, body: Json | None = None) -> Json:
        url = f"{self.nodes[node_id].url}/v1/queues/alarms{path}"
        async with aiohttp.ClientSession() as http, http.request(method, url, json=body) as answer:
            assert answer.ok, await answer.text()
            told: Json = await answer.json()
            return told

    async def handle(self, node_id: str) -> None:
        """Take and settle at a node until all that was confirmed has been handled."""
        async with asyncio.timeout(PATIENCE):
            while self.confirmed - self.handled:
                taken = (await self.call(node_id, "POST", "/take", {"max": 100, "wait": "2s"}))["events"]
                if taken:
                    loans = [one["loan"] for one in taken]
                    over = (await self.call(node_id, "POST", "/settle", {"done": loans}))["over"]
                    self.handled |= {one["event"]["data"] for one in taken if one["loan"] not in over}


async def test_nothing_that_was_confirmed_is_lost_while_nodes_are_exchanged_one_by_one(
    previous: Path, redis: RedisProcess, mosquitto: MosquittoProcess
) -> None:
    """A node of 0.2.0 gets no shard, though one would fall to it; what is published there is fed by the others."""
    with ExitStack() as stack:
        fleet = Fleet(stack, redis, mosquitto, previous)
        await fleet.start("a", old=True)
        await fleet.start("b", old=True)
        await fleet.exchange("a")
        routes = [{"database": "events", "topic": "site/+/alarm"}]
        await fleet.call("a", "PUT", "", {"routes": routes, "start": "-1h"})
        await fleet.publish(EACH)
        with Redis.from_url(redis.url, decode_responses=True) as client:
            assert client.get(keys.lease("b")), "0.2.0 lives"
            assert client.get(keys.knows("b")) is None
            assert "queues" in str(client.get(keys.knows("a"))).split()
        would = [falls_to("b", ["a", "b"], f"queues events.{shard}") for shard in range(SHARDS)]
        assert any(would), "of all living nodes, some shard falls to the one of 0.2.0"
        await fleet.handle("a")
        await fleet.exchange("b")
        await fleet.handle("b")
        await fleet.exchange("a")
        await fleet.publish(EACH)
        await fleet.handle("a")
        assert fleet.confirmed == set(range(5 * EACH))
        counts = (await fleet.call("b", "GET", ""))["counts"]
        assert (counts["ready"], counts["lent"], counts["later"], counts["dead"]) == (0, 0, 0, 0)
        assert not redis.refusals()
