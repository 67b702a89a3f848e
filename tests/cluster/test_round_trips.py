"""What a command costs in Redis, counted by Redis itself."""

from __future__ import annotations

import time

import pytest
from redis.asyncio import Redis

from tests.cluster.harness import Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess

COUNT = 500


@pytest.mark.timeout(120)
async def test_a_command_costs_two_round_trips_to_redis() -> None:
    def at_once(device: Device, command: Json) -> None:
        device.answer(command)

    with (
        MosquittoProcess() as broker,
        RedisProcess() as server,
        # The sweep is a steady cost of the cluster, not of a command.
        cluster_of(2, server, broker, HOMING_CLUSTER_SWEEP_INTERVAL="60s") as cluster,
    ):
        redis = Redis.from_url(server.url)
        async with devices(broker, at_once), caller(cluster) as client:
            began = time.monotonic()
            before = await _scripts(redis), await _reads(redis)
            tally = await client.many(COUNT, 32)
            scripts, reads = await _scripts(redis) - before[0], await _reads(redis) - before[1]
        await redis.aclose()
        renewals = len(cluster.nodes) * (int(time.monotonic() - began) + 1)  # of the leases, once a second
    assert tally.states == {"succeeded": COUNT}
    assert tally.forwarded > 0
    assert 2 * COUNT <= scripts <= 2 * COUNT + renewals
    # Nothing else was asked, and what queued up travelled together: fewer packets than steps.
    assert reads < 2 * COUNT


async def _scripts(redis: Redis) -> int:
    stats = await redis.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


async def _reads(redis: Redis) -> int:
    stats = await redis.info("stats")
    return int(stats["total_reads_processed"])
