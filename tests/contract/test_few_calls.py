"""Calls beside the combiner, on a real Redis."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis

from app.store.redis.driver.plain import MOST_CONNECTIONS, PlainRedis
from tests.services import RedisProcess


async def nothing() -> None:
    raise AssertionError


async def test_connections_that_redis_has_closed_fail_no_call() -> None:
    with RedisProcess() as server:
        few = PlainRedis(server.url, scripts={}, timeout=30.0, became_replica=nothing)
        await asyncio.gather(*(few.call("PING") for _ in range(MOST_CONNECTIONS)))
        async with Redis(port=server.port) as other:
            await other.client_kill_filter(_type="normal", skipme=True)
            while len(await other.client_list(_type="normal")) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await asyncio.gather(*(few.call("PING") for _ in range(MOST_CONNECTIONS))) == [True] * MOST_CONNECTIONS
        await few.close()


async def test_many_calls_at_once_share_a_bounded_number_of_connections() -> None:
    with RedisProcess() as server:
        few = PlainRedis(server.url, scripts={}, timeout=30.0, became_replica=nothing)
        async with Redis(port=server.port) as other:
            waiting = [asyncio.create_task(few.call("BLPOP", f"list-{number % 100}", 0)) for number in range(100)]
            while len(await other.client_list(_type="normal")) < MOST_CONNECTIONS + 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            for _ in range(20):
                assert len(await other.client_list(_type="normal")) == MOST_CONNECTIONS + 1
            for number in range(100):
                await other.rpush(f"list-{number}", "x")
            await asyncio.gather(*waiting)
        await few.close()
