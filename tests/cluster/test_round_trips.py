"""The cost of a command in Redis, counted by Redis itself."""

from __future__ import annotations

from redis.asyncio import Redis

from tests.cluster.harness import Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess

COUNT = 500


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
            before = await _scripts(redis), await _reads(redis)
            tally = await client.many(COUNT, 32)
            scripts, reads = await _scripts(redis) - before[0], await _reads(redis) - before[1]
        await redis.aclose()
    assert tally.states == {"succeeded": COUNT}
    assert tally.forwarded > 0
    # Leases are renewed meanwhile, for as long as it takes; a third step would be as many again as there are commands.
    assert 2 * COUNT <= scripts < 2.5 * COUNT
    # Nothing else was asked, and what queued up travelled together: fewer packets than steps.
    assert reads < 2 * COUNT


async def _scripts(redis: Redis) -> int:
    stats = await redis.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


async def _reads(redis: Redis) -> int:
    stats = await redis.info("stats")
    return int(stats["total_reads_processed"])
