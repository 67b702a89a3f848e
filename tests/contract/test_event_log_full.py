"""An event log whose Redis has no memory left: what was acknowledged stays, and what is over makes room."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from os import urandom

import pytest
from redis.asyncio import Redis

from app.core.errors import StoreUnavailableError
from app.core.events.event import Entry, Position, Shard
from app.core.events.plan import NamedDatabase
from app.core.events.reading import Reading
from app.events.keeper import Keeper
from app.store.events import EventStore
from tests.contract.event_places import RedisEvents
from tests.services import RedisProcess
from tests.unit.assembly import ManualClock
from tests.waiting import PATIENCE, eventually

SHARD = Shard("events", 0)
ROOM = 4 * 1024 * 1024
SIZE = 50_000
RETENTION = timedelta(minutes=1)


def said(number: int) -> Entry:
    return Entry("a", b"%d " % number + urandom(SIZE))


async def fill(log: EventStore, first: int, most: int) -> tuple[list[int], Position]:
    """The numbers that were acknowledged until one was refused, or `most`; and the last position."""
    acknowledged: list[int] = []
    position = 0
    for number in range(first, first + most):
        try:
            position = await log.append(SHARD, [said(number)])
        except StoreUnavailableError:
            break
        acknowledged.append(number)
    return acknowledged, position


async def numbers(log: EventStore) -> list[int]:
    return [int(one.entry.value.split(maxsplit=1)[0]) for one in (await log.read(SHARD, Reading(), 1000)).events]


async def fits(log: EventStore, number: int) -> bool:
    acknowledged, _ = await fill(log, number, 1)
    return bool(acknowledged)


async def test_a_full_redis_refuses_reads_on_and_is_freed_by_the_retention() -> None:
    with RedisProcess() as server:
        place = RedisEvents(server.url, server.node_url)
        log = await place.open()
        async with Redis.from_url(server.url) as admin, asyncio.timeout(PATIENCE):
            used = int((await admin.info("memory"))["used_memory"])
            await admin.config_set("maxmemory", used + ROOM)
            old, last = await fill(log, 0, ROOM // SIZE // 2)
            await log.rotate("events", 1)
            new, _ = await fill(log, len(old), ROOM // SIZE)
            with pytest.raises(StoreUnavailableError, match="Redis has reached its maxmemory"):
                await log.append(SHARD, [said(-1)])
            assert await numbers(log) == [*old, *new], "nothing acknowledged is lost, and reading goes on"

            clock = ManualClock()
            clock.advance((last + 1) / 1e6 - clock.wall() + RETENTION.total_seconds())
            keeper = Keeper(
                log,
                [NamedDatabase("events", RETENTION)],
                generation_bytes=1000,  # another one is to begin, which needs memory
                quota_bytes=10**9,
                discard="new",
                clock=clock,
                counters=Counter(),
            )
            await keeper.look()
            assert await numbers(log) == new
            # Redis frees what was dropped beside its other work.
            await eventually(lambda: fits(log, 1000))
            assert await numbers(log) == [*new, 1000]
        await place.close()
