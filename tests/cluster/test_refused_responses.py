"""Responses that Redis refuses for good, as those to records that something else wrote over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from redis.asyncio import Redis

from app.mqtt.inbox import MOST_REFUSED
from tests.cluster.harness import Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

SPOILT = 300
"""More than the Receive Maximum of a node: unacknowledged, they would leave it deaf."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(1, redis, broker) as nodes:
        yield nodes


async def test_refused_responses_do_not_make_a_node_deaf(cluster: Cluster) -> None:
    held: list[Json] = []

    def when_told(device: Device, command: Json) -> None:
        if command["method"] == "cover_open":
            held.append(command)
        else:
            device.answer(command)

    async with devices(cluster.broker, when_told) as device, caller(cluster) as client:
        await asyncio.gather(
            *(client.command(0, f"SN{n}", {"n": n}, timeout="60s", Prefer="respond-async") for n in range(SPOILT))
        )
        await eventually(lambda: len(held) == SPOILT)
        await _spoil_records(cluster)
        for command in held:
            device.answer(command)
        await eventually(lambda: sum(cluster.counters("drop.store_refused")) == SPOILT - MOST_REFUSED)
        answers = await asyncio.gather(
            *(client.command(0, f"OTHER{n}", {"n": n}, method="cover_close") for n in range(SPOILT))
        )
    assert [status for status, _ in answers] == [200] * SPOILT


async def _spoil_records(cluster: Cluster) -> None:
    async with Redis.from_url(cluster.redis.url) as redis:
        records = [name async for name in redis.scan_iter("mqtt:callback:*", count=1000)]
        assert len(records) == SPOILT
        for name in records:
            await redis.set(name, "not a hash")
