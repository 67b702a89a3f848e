"""A sweep costs a Redis in which nothing is overdue next to nothing."""

from __future__ import annotations

from datetime import timedelta

from redis.asyncio import Redis

from app.core import keys
from app.core.identifiers import PARTITIONS, partition_of_command
from app.store.redis.commands.store import RedisStateStore
from app.store.redis.commands.sweep_look import THOROUGH_ONE_IN, THOROUGH_US, SweepLook
from tests.contract.store_backends import registration
from tests.contract.store_reading import ALL_PARTITIONS, NO_GRACE


async def scripts_of(client: Redis, store: RedisStateStore) -> int:
    """The number of scripts that one sweep of all partitions has Redis run."""
    await client.config_resetstat()
    await store.sweep(ALL_PARTITIONS, "sweeper", NO_GRACE)
    told = await client.info("commandstats")
    return int(told.get("cmdstat_evalsha", {}).get("calls", 0))


async def test_no_script_runs_where_nothing_is_overdue(store: RedisStateStore, client: Redis) -> None:
    assert await scripts_of(client, store) == 0
    one = registration("dock-1", timeout=timedelta(minutes=1))
    await store.register(one)
    partition = partition_of_command(one.command_id)
    look = SweepLook(store._lanes)
    seconds = range(1, THOROUGH_ONE_IN + 1)
    needed = [list(await look.needed([partition], second * THOROUGH_US)) for second in seconds]
    assert sorted(needed) == [[]] * (THOROUGH_ONE_IN - 1) + [[partition]]
    await client.zadd(keys.due(partition), {one.command_id: 1})
    assert await scripts_of(client, store) == 1
    await client.delete(keys.callback(partition, one.command_id))
    assert await scripts_of(client, store) == 1
    assert await client.exists(*(keys.listing(other) for other in range(PARTITIONS))) == 0
