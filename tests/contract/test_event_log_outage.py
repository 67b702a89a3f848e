"""An event log whose Redis is away."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from app.core.errors import StoreUnavailableError
from app.core.events.event import Entry, Shard
from app.core.events.reading import Reading
from tests.contract.event_places import RedisEvents
from tests.services import RedisProcess
from tests.waiting import PATIENCE

SHARD = Shard("events", 0)


async def test_a_start_that_found_nobody_may_be_tried_again() -> None:
    with RedisProcess() as server:
        place = RedisEvents(server.url, server.node_url)
        log = place.make(budget=timedelta(seconds=30))
        await asyncio.to_thread(server.kill)
        with pytest.raises(StoreUnavailableError, match="the Redis of the event log cannot be used now"):
            await log.start()
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(PATIENCE):
            await log.start()
            await log.append(SHARD, [Entry("a", b"1")])
        await log.close()


async def test_what_was_acknowledged_is_there_after_redis_was_killed() -> None:
    with RedisProcess("--appendonly", "yes") as server:
        place = RedisEvents(server.url, server.node_url)
        log = await place.open()
        for number in range(50):
            await log.append(SHARD, [Entry("a", b"%d" % number)])
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(PATIENCE):
            await log.append(SHARD, [Entry("a", b"50")])
            found = await log.read(SHARD, Reading(), 100)
        assert list(dict.fromkeys(int(event.entry.value) for event in found.events)) == list(range(51))
        await place.close()
