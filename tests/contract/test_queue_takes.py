"""Queues in Redis: takes that find nothing, of which a node asks many, and the hints that nodes give each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from app.core.events.event import Database, Entry, Shard
from app.core.queues.hints import ANY_QUEUE, QueueHint, appended_to
from app.core.queues.loans import LendingRules, Loan, LoanWish, QueueSource, Reference, grouped
from app.runtime.system import SystemClock, new_secret
from app.runtime.telemetry import BurstLog
from app.store.declared import DocumentChange
from app.store.queues import TakeCall
from app.store.redis.events.log import RedisEventLog
from app.store.redis.queues import RedisQueues
from tests.services import RedisProcess
from tests.waiting import eventually

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


async def test_whoever_appends_hints_of_the_shard_and_not_at_every_append(
    queues: RedisQueues, redis_server: RedisProcess
) -> None:
    """The script says it, in the step that appends; those who miss a hint look often enough."""
    heard: list[QueueHint] = []
    queues.hear(heard.append)
    await eventually(lambda: queues.hears)
    log = RedisEventLog(
        redis_server.url,
        [Database("events", 4)],
        counters=Counter(),
        drops=BurstLog(Counter(), SystemClock()),
        new_secret=new_secret,
    )
    await log.start()
    try:
        async with Redis.from_url(redis_server.url) as redis:
            told = f"mqtt:shard:{{{Shard('events', 2)}}}"
            for _ in range(3):  # as if all of these came within 10 ms
                await log.append(Shard("events", 2), [Entry("alarm", b"1")])
                await redis.hset(told, "told", int((await redis.time())[0] + 1) * 1_000_000)
            await redis.hset(told, "told", 0)
            await log.append(Shard("events", 2), [Entry("alarm", b"1")])
        await eventually(lambda: len(heard) >= 2)
        await queues.hint([SOURCE])
        await eventually(lambda: heard[-1].queue_id == SOURCE.queue_id)
    finally:
        await log.close()
    about_log = [one for one in heard if one.is_about_log]
    assert about_log[:1] == [appended_to(Shard("events", 2))]
    assert 2 <= len(about_log) <= 4


async def test_whoever_changes_what_is_declared_tells_all(queues: RedisQueues, redis_server: RedisProcess) -> None:
    heard: list[QueueHint] = []
    queues.hear(heard.append)
    await eventually(lambda: heard == [ANY_QUEUE])  # whatever came before nobody listened
    other = RedisQueues(redis_server.url, clock=SystemClock(), counters=Counter(), new_life=lambda: "00000002")
    await other.start()
    try:
        version = await other.apply([DocumentChange("q -/alarms", b"{}")], await other.version())
        assert version is not None
        await eventually(lambda: heard)
        assert await other.apply([DocumentChange("q -/alarms", None)], version - 1) is None
        await other.hint([SOURCE])
        await eventually(lambda: heard[-1].queue_id == SOURCE.queue_id)
    finally:
        await other.close()
    assert [one.is_about_declarations for one in heard] == [False, True, False], "who came too late has changed nothing"
