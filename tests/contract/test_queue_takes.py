"""Takes from queues in Redis that find nothing, of which a node with ten waiting consumers asks many."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from app.core.events.event import Shard
from app.core.queues.loans import LendingRules, Loan, LoanWish, QueueSource, Reference, grouped
from app.runtime.system import SystemClock
from app.store.queues import TakeCall
from app.store.redis.queues import RedisQueues
from tests.services import RedisProcess

SOURCE = QueueSource("01TAKES", Shard("events", 0))


@pytest.fixture
async def queues(redis_server: RedisProcess) -> AsyncIterator[RedisQueues]:
    store = RedisQueues(redis_server.url, clock=SystemClock(), counters=Counter(), new_life=lambda: "00000001")
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def take(queues: RedisQueues, call: str) -> list[Loan | None]:
    taken = await queues.take(SOURCE, LendingRules(), [LoanWish(10, "one", announce=False)], TakeCall("n1", call))
    return taken.loans


async def test_a_take_that_finds_nothing_writes_nothing(queues: RedisQueues, redis_server: RedisProcess) -> None:
    await queues.feed(SOURCE, 0, 0, 3, grouped([Reference(1), Reference(2)]), 100)
    assert all(await take(queues, "1"))
    async with Redis.from_url(redis_server.url) as redis:
        before = (await redis.info("persistence"))["rdb_changes_since_last_save"]
        for number in range(5):
            assert await take(queues, f"{number + 2}") == [None]
        after = (await redis.info("persistence"))["rdb_changes_since_last_save"]
    assert after - before < 5, "when somebody asked is noted once a second"
