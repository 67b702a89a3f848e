"""Streams of one command over three nodes, a real Redis and a real Mosquitto."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from redis.asyncio import Redis

from tests.api.streaming import Event, stream
from tests.cluster.harness import Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import PATIENCE

REPORTS = 20


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(3, redis, broker) as nodes:
        yield nodes


class Steps:
    """A device that reports and answers when a test says so."""

    def __init__(self) -> None:
        self.device: Device | None = None
        self.command: Json = {}
        self.here = asyncio.Event()

    def took(self, device: Device, command: Json) -> None:
        self.device, self.command = device, command
        self.here.set()

    def report(self, percent: int) -> None:
        assert self.device is not None
        self.device.report(self.command, percent)

    def answer(self) -> None:
        assert self.device is not None
        self.device.answer(self.command)


async def test_a_stream_goes_on_elsewhere_when_its_node_stops_or_dies(cluster: Cluster) -> None:
    steps = Steps()
    async with devices(cluster.broker, steps.took), caller(cluster) as client:
        _, sent = await client.command(0, "SN1", {}, prefer="respond-async")
        identity = sent["id"]
        path = f"/v1/commands/{identity}/events"
        seen: list[Event] = []
        await steps.here.wait()

        async def read(reading_of: int, percents: range, after: str = "") -> None:
            async with stream(f"{cluster.nodes[reading_of].url}{path}{after}") as reading:
                if not after:
                    assert (await reading.next()) is not None
                for percent in percents:
                    steps.report(percent)
                    event = await reading.next()
                    assert event is not None
                    seen.append(event)
                if reading_of == 1:  # sent away
                    os.kill(cluster.nodes[1].pid, signal.SIGTERM)
                    assert await reading.all() == []
                    assert 500 <= reading.retries[-1] <= 3500

        await read(1, range(5))
        await read(0, range(5, 10), f"?after={seen[-1].id}")
        os.kill(cluster.nodes[0].pid, signal.SIGKILL)  # the home node
        await read(2, range(10, REPORTS), f"?after={seen[-1].id}")
        async with stream(f"{cluster.nodes[2].url}{path}?after={seen[-1].id}") as reading:
            steps.answer()
            [last] = await reading.all()
        assert (last.name, last.id) == ("outcome", f"{identity}/{REPORTS + 1}")
        assert [one.id for one in seen] == [f"{identity}/{number}" for number in range(1, REPORTS + 1)]
        assert [one.data["progress"]["progress"]["percent"] for one in seen] == list(range(REPORTS))


async def test_hints_that_are_lost_are_repaired(cluster: Cluster) -> None:
    steps = Steps()
    async with (
        devices(cluster.broker, steps.took),
        caller(cluster) as client,
        Redis.from_url(cluster.redis.url) as redis,
    ):
        _, sent = await client.command(0, "SN1", {}, prefer="respond-async")
        identity = sent["id"]
        await steps.here.wait()
        async with (
            asyncio.timeout(PATIENCE),
            stream(f"{cluster.nodes[1].url}/v1/commands/{identity}/events") as reading,
        ):
            await reading.next()
            await redis.hdel(f"mqtt:callback:{{{identity[:3]}}}:{identity}", "watch", "joined")
            for percent in range(3):
                steps.report(percent)
            assert [(await reading.next()).data["seq"] for _ in range(3)] == [1, 2, 3]  # type: ignore[union-attr]
            steps.answer()
            assert [one.name for one in await reading.all()] == ["outcome"]
