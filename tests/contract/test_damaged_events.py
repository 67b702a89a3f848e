"""Damage in the Redis of the event log is named once and left out; readers are told, and get the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from app.core.errors import StoreUnavailableError
from app.core.events import keys
from app.core.events.event import Database, Entry, Position, Shard
from app.core.events.generation import GenerationState
from app.core.events.plan import NamedDatabase, Plan
from app.core.events.reading import Cursor, Reading
from app.events.reader import EventsReader
from app.runtime.system import SystemClock, new_secret
from app.store.engine import open_events
from app.store.events import EventStore
from app.store.tiered import TieredEventLog
from tests.contract.cold_places import archive_at, cooler_of
from tests.services import RedisProcess

DATABASE = Database("events", 1)
SHARD = Shard("events", 0)
WORDS = b"some words that are long enough for a block to be compressed " * 10
Damage = Callable[[bytes], bytes]


def small(number: int) -> list[Entry]:
    """An entry that is kept as it is."""
    return [Entry(f"site/{each}/up", b"%d" % (10 * number + each)) for each in range(3)]


def large(number: int) -> list[Entry]:
    """An entry that is compressed."""
    return [entry._replace(value=entry.value + b" " + WORDS) for entry in small(number)]


class Stage:
    def __init__(self, log: EventStore, admin: Redis, counters: Counter[str]) -> None:
        self.log = log
        self.admin = admin
        self.counters = counters

    async def damage(self, position: Position, damage: Damage) -> None:
        """Change the block that ends there. A stream takes no entry before others, so all are put anew."""
        slab = f"{keys.slabs(SHARD)}1"
        blocks: Any = await self.admin.xrange(slab)
        await self.admin.delete(slab)
        for identity, fields in blocks:
            here = int(identity.partition(b"-")[0]) == position
            await self.admin.xadd(slab, {b"b": damage(fields[b"b"]) if here else fields[b"b"]}, id=identity)

    async def numbers(self) -> list[int]:
        return await numbers_of(self.log)


async def numbers_of(log: EventStore) -> list[int]:
    found = await log.read(SHARD, Reading(), 1000)
    return [int(event.entry.value.split()[0]) for event in found.events]


@pytest.fixture
async def stage(redis_server: RedisProcess) -> AsyncIterator[Stage]:
    counters: Counter[str] = Counter()
    async with Redis.from_url(redis_server.url) as admin:
        await admin.flushall()
        engine = open_events(redis_server.node_url, clock=SystemClock(), counters=counters, new_secret=new_secret)
        log = engine.open_log([DATABASE])
        await log.start()
        yield Stage(log, admin, counters)
        await log.close()


@pytest.mark.parametrize(
    ("entries", "damage"),
    [
        pytest.param(small, lambda data: data[:-1], id="cut off"),
        pytest.param(small, lambda data: data[:5], id="head alone"),
        pytest.param(small, lambda _data: b"", id="empty"),
        pytest.param(small, lambda data: b"\x09" + data[1:], id="later version"),
        pytest.param(small, lambda data: data[:2] + b"\x00\x02" + data[4:], id="fewer entries than there are"),
        pytest.param(small, lambda data: data[:2] + b"\x00\x04" + data[4:], id="more entries than there are"),
        pytest.param(small, lambda data: data[:6] + b"\xff\xff\xff\xff" + data[10:], id="size of four gigabytes"),
        pytest.param(large, lambda data: data[:6] + b"\xff\xff\xff\xff" + data[10:], id="packed, four gigabytes"),
        pytest.param(large, lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], id="packed, one bit"),
        pytest.param(large, lambda data: data[:-3], id="packed, cut off"),
    ],
)
async def test_a_damaged_block_is_named_once_and_left_out_and_readers_are_told(
    stage: Stage, entries: Callable[[int], list[Entry]], damage: Damage
) -> None:
    ends = [await stage.log.append(SHARD, entries(number)) for number in range(5)]
    await stage.damage(ends[2], damage)
    with capture_logs() as said:
        for _ in range(3):
            part = await stage.log.read(SHARD, Reading(), 1000)
            assert [int(event.entry.value.split()[0]) for event in part.events] == [
                10 * number + each for number in (0, 1, 3, 4) for each in range(3)
            ]
            assert (part.lost, part.more) == (ends[2], False)
    assert (await stage.log.read(SHARD, Reading(after=ends[2]), 1000)).lost == 0, "behind it nothing is missing"
    assert stage.counters["drop.damaged_block"] == 1
    (line,) = said
    assert (line["event"], line["reason"], line["topic"]) == (
        "message_dropped",
        "damaged_block",
        f"events.0 at {ends[2]}",
    )
    assert line["why"].startswith("a block ")


async def test_events_of_a_damaged_block_are_named_when_they_are_picked(stage: Stage) -> None:
    ends = [await stage.log.append(SHARD, small(number)) for number in range(3)]
    await stage.damage(ends[1], lambda data: data[:-1])
    all_of = [end - each for end in ends for each in (2, 1, 0)]
    picked = await stage.log.pick(SHARD, all_of)
    assert sorted(picked.events) == all_of[:3] + all_of[6:]
    assert sorted(picked.damaged) == all_of[3:6]
    assert stage.counters["drop.damaged_block"] == 1
    await stage.admin.hset(keys.cuts(SHARD), "1", "nonsense")
    with pytest.raises(StoreUnavailableError, match="has no generation in 1"):
        await stage.log.pick(SHARD, all_of)


async def test_a_page_over_a_damaged_block_says_until_when_events_are_missing(stage: Stage) -> None:
    reader = EventsReader(stage.log, Plan([NamedDatabase("events", timedelta(days=1))], [], 1))
    ends = [await stage.log.append(SHARD, small(number)) for number in range(3)]
    await stage.damage(ends[1], lambda data: data[:-1])
    page = await reader.page("events", "#", Cursor((0,)), 4)
    assert (page.lost, len(page.events), page.more) == (ends[1], 4, True)
    rest = await reader.page("events", "#", page.cursor, 4)
    assert (rest.lost, len(rest.events), rest.more) == (0, 2, False)


async def test_what_is_damaged_stays_in_the_log_and_does_not_become_cold(stage: Stage, tmp_path: Path) -> None:
    counters: Counter[str] = Counter()
    log = TieredEventLog(stage.log, archive_at(tmp_path / "cold"), counters)
    ends = [await log.append(SHARD, small(number)) for number in range(3)]
    await stage.damage(ends[1], lambda data: data[:-1])
    await log.rotate("events", 1)
    await log.append(SHARD, small(3))
    await log.rotate("events", 2)
    cooler = cooler_of(log, log._archive)
    with capture_logs() as said:
        await cooler.look()
    assert [one["event"] for one in said if one["log_level"] == "error"] == ["events_cold_stuck"]
    states = [one.state for one in await log.generations("events")]
    assert states == [GenerationState.SEALED, GenerationState.COLD, GenerationState.CURRENT]
    part = await log.read(SHARD, Reading(), 1000)
    assert part.lost == ends[1], "also where later generations are cold"
    assert await numbers_of(log) == [0, 1, 2, 20, 21, 22, 30, 31, 32]


async def test_a_last_value_that_cannot_be_read_is_none_and_can_be_set_anew(stage: Stage) -> None:
    await stage.log.append(SHARD, small(0))
    for topic, row in (("site/0/up", b"rubbish"), ("site/1/up", b"17 \x01\x00")):
        await stage.admin.hset(keys.latest(SHARD), topic, row)
    assert [one.entry.topic for one in await stage.log.values(SHARD, "#", "", 10)] == ["site/2/up"]
    assert await stage.log.value(SHARD, "site/0/up") is None
    assert stage.counters["drop.damaged_value"] == 3
    await stage.log.append(SHARD, small(1))
    assert len(await stage.log.values(SHARD, "#", "", 10)) == 3
