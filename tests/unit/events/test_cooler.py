"""Generations go into the cold tier; and what happens when that fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from app.core.errors import DamagedEventsError, QuotaError, StoreUnavailableError
from app.core.events.event import Database, Entry, Event, Shard
from app.core.events.generation import ColdFile, Generation, GenerationState
from app.core.events.plan import NamedDatabase
from app.core.events.reading import Reading, Slice
from app.events.cooler import Cooler
from app.events.keeper import Keeper
from app.store.memory.events import MemoryEventLog
from app.store.parquet.archive import ParquetArchive
from app.store.parquet.files import FileWriter
from app.store.parquet.place import ObjectStore
from app.store.roles import OnlyOne
from app.store.tiered import TieredEventLog
from tests.unit.assembly import ManualClock
from tests.waiting import PATIENCE

SHARD = Shard("events", 0)
KEPT = [NamedDatabase("events", timedelta(days=30))]


class Away(ParquetArchive):
    """Fails as often as it is told to."""

    failures = 0

    async def put(self, shard: Shard, generation: int, events: AsyncIterator[Sequence[Event]]) -> Sequence[ColdFile]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("the bucket is away")
        return await super().put(shard, generation, events)


class Short(MemoryEventLog):
    """Cannot read the first event of a generation that is named."""

    async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        part = await super().read(shard, reading, limit)
        return part if reading.generation is None else part._replace(events=part.events[1:])


class Telling(TieredEventLog):
    """Says when a generation has become cold."""

    def __init__(self, hot: MemoryEventLog, archive: ParquetArchive, counters: Counter[str]) -> None:
        super().__init__(hot, archive, counters)
        self.cooled = asyncio.Event()

    async def cool(self, database: str, number: int, files: Sequence[ColdFile]) -> None:
        await super().cool(database, number, files)
        self.cooled.set()


class Stage:
    def __init__(self, request: pytest.FixtureRequest, hot: type[MemoryEventLog] = MemoryEventLog) -> None:
        self.clock = ManualClock()
        self.archive = Away(ObjectStore(f"memory://{request.node.name}", self.clock, lambda: "0" * 8))
        self.counters: Counter[str] = Counter()
        self.log = Telling(hot([Database("events", 1)], self.clock), self.archive, self.counters)
        self.cooler = Cooler(
            self.log,
            self.archive,
            KEPT,
            OnlyOne(),
            hot=timedelta(hours=2),
            quota_bytes=10_000,
            clock=self.clock,
            counters=self.counters,
        )
        self.keeper = Keeper(
            self.log,
            KEPT,
            generation_bytes=10**9,
            quota_bytes=10_000,
            discard="new",
            clock=self.clock,
            counters=self.counters,
            hourly=True,
        )

    async def say(self, value: bytes = b"1") -> None:
        await self.log.append(SHARD, [Entry("a", value)])

    async def states(self) -> list[GenerationState]:
        return [one.state for one in await self.there()]

    async def there(self) -> Sequence[Generation]:
        return await self.log.generations("events")


COLD, SEALED, CURRENT = GenerationState.COLD, GenerationState.SEALED, GenerationState.CURRENT


async def test_generations_end_with_the_hour_and_go_when_they_are_old_enough(request: pytest.FixtureRequest) -> None:
    stage = Stage(request)
    stage.clock.advance(3600 - stage.clock.wall() % 3600)
    await stage.say()
    stage.clock.advance(3599)
    await stage.keeper.look()
    assert await stage.states() == [CURRENT]
    stage.clock.advance(2)
    await stage.keeper.look()
    await stage.cooler.look()
    assert await stage.states() == [SEALED, CURRENT]
    stage.clock.advance(3600)
    await stage.cooler.look()
    assert await stage.states() == [COLD, CURRENT]
    assert stage.counters["events.cooled"] == 1
    assert stage.counters["events.cold_files"] == 1
    assert stage.counters["events.cold_bytes"] == (await stage.there())[0].files[0].size


async def test_what_takes_half_of_the_quota_goes_sooner_and_then_counts_no_more(request: pytest.FixtureRequest) -> None:
    stage = Stage(request)
    await stage.say(b"x" * 11_000)
    await stage.log.rotate("events", 1)
    await stage.keeper.look()
    with pytest.raises(QuotaError):
        stage.keeper.admit("events")
    await stage.cooler.look()
    assert await stage.states() == [COLD, CURRENT]
    await stage.keeper.look()
    stage.keeper.admit("events")
    assert stage.keeper.size == 0


async def test_a_place_that_is_away_is_tried_again_and_told_once(request: pytest.FixtureRequest) -> None:
    stage = Stage(request)
    await stage.say()
    await stage.log.rotate("events", 1)
    stage.clock.advance(7201)
    stage.archive.failures = 1
    with capture_logs() as said:
        running = asyncio.create_task(stage.cooler.run())
        async with asyncio.timeout(PATIENCE):
            await stage.log.cooled.wait()
        running.cancel()
        await asyncio.wait([running])
    assert [one["event"] for one in said][:2] == ["events_cold_wait", "events_cooled"]
    assert said[0]["reason"] == "the bucket is away"
    assert stage.counters["events.cold_retried"] == 1


async def test_one_that_cannot_be_read_whole_stays_where_it_is_and_later_ones_go(
    request: pytest.FixtureRequest,
) -> None:
    stage = Stage(request, Short)
    for number in (b"1", b"2"):
        await stage.log.append(SHARD, [Entry("a", number), Entry("b", number)])
        await stage.log.rotate("events", int(number))
    stage.clock.advance(7201)
    with capture_logs() as said:
        await stage.cooler.look()
        await stage.cooler.look()
    assert [one["reason"] for one in said] == ["it has 2 events, and 1 can be read"] * 2, "once for each generation"
    assert stage.counters["events.cold_stuck"] == 2
    assert await stage.states() == [SEALED, SEALED, CURRENT]
    assert len((await stage.log.read(SHARD, Reading(), 10)).events) == 4
    await stage.log.cool("events", 2, [ColdFile(0, 1, (await stage.there())[1].last, 0, 0, "", "is damaged")])
    part = await stage.log.read(SHARD, Reading(), 10)
    assert [event.entry.value for event in part.events] == [b"1"], "as far as it can be read, before what is cold"
    assert part.lost == (await stage.there())[1].last


async def test_a_file_that_is_not_what_was_written_is_never_named(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(request)
    await stage.say(b"said")
    await stage.log.rotate("events", 1)
    stage.clock.advance(7201)
    original = ObjectStore.put

    def rotten(place: ObjectStore, path: str, data: memoryview) -> None:
        other = FileWriter()
        other.add([Event(5, 0, Entry("a", b"other"))])
        original(place, path, other.finish())

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "put", rotten)
        with pytest.raises(DamagedEventsError, match="when it is read again"):
            await stage.cooler.look()
    assert await stage.states() == [SEALED, CURRENT]
    await stage.cooler.look()
    assert await stage.states() == [COLD, CURRENT]
    part = await stage.log.read(SHARD, Reading(), 10)
    assert [event.entry.value for event in part.events] == [b"said"]
