"""Bounds of the log, and what waits while it is full or away."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import pytest

from app.core.errors import FencedError, QuotaError, StoreUnavailableError
from app.core.events.batches import BatchId, CallId
from app.core.events.event import Entry, Position, Shard
from app.core.events.plan import NamedDatabase, Plan
from app.core.events.quota import parse_quotas
from app.core.events.reading import Reading
from app.events.keeper import Keeper
from app.events.writer import EventWriter, PendingEntry
from app.store.memory.events import MemoryEventLog
from tests.unit.assembly import ManualClock
from tests.waiting import PATIENCE

DAY = timedelta(days=1)
SHARD = Shard("events", 0)


class Stage:
    def __init__(self, quota: int = 10**9, discard: Literal["new", "old"] = "new") -> None:
        self.clock = ManualClock()
        kept = [NamedDatabase("events", DAY)]
        self.log = MemoryEventLog(Plan(kept, [], 1).databases, self.clock)
        self.keeper = Keeper(
            self.log,
            kept,
            generation_bytes=10**6,
            quota_bytes=quota,
            discard=discard,
            clock=self.clock,
            counters=Counter(),
        )

    async def say(self, value: bytes = b"1") -> None:
        await self.log.append(SHARD, [Entry("a", value)])

    async def numbers(self) -> list[int]:
        return [one.number for one in await self.log.generations("events")]


async def test_generations_end_with_time_and_go_with_the_retention() -> None:
    stage = Stage()
    for _ in range(60):
        await stage.say()
        await stage.keeper.look()
        stage.clock.advance(3600)
    found = await stage.log.read(SHARD, Reading(), 1000)
    assert 24 <= len(found.events) <= 27, "those of a day, and what is left of a generation"
    assert len(await stage.numbers()) <= 27


async def test_a_full_log_takes_nothing_more_until_something_is_gone() -> None:
    stage = Stage(quota=1000)
    await stage.say(b"x" * 2000)
    stage.keeper.admit("events")
    await stage.keeper.look()
    with pytest.raises(QuotaError, match="HOMING_EVENTS_QUOTA_BYTES allows 1000; reading goes on"):
        stage.keeper.admit("events")
    stage.clock.advance(3600)
    await stage.keeper.look()
    stage.clock.advance(DAY.total_seconds() + 1)
    await stage.keeper.look()
    stage.keeper.admit("events")


async def test_or_the_oldest_generation_goes() -> None:
    stage = Stage(quota=2500, discard="old")
    for _ in range(4):
        await stage.say(b"x" * 1000)
        await stage.log.rotate("events", (await stage.numbers())[-1])
        await stage.keeper.look()
        stage.keeper.admit("events")
    assert len((await stage.log.read(SHARD, Reading(), 10)).events) == 2


async def test_a_group_of_databases_is_bounded_by_itself() -> None:
    """Fill a group: it refuses at once, and crowds out nobody else; the other group drops what is old."""
    clock = ManualClock()
    kept = [NamedDatabase("events", DAY), NamedDatabase("telemetry", DAY), NamedDatabase("raw", DAY)]
    log = MemoryEventLog(Plan(kept, [], 1).databases, clock)
    groups = parse_quotas("telemetry+raw=10000000:old, events=20000000", [one.name for one in kept])
    counters: Counter[str] = Counter()
    keeper = Keeper(
        log,
        kept,
        generation_bytes=10**9,
        quota_bytes=10**9,
        discard="new",
        clock=clock,
        counters=counters,
        groups=groups,
    )

    async def fill(database: str, most: int) -> None:
        for _ in range(most // 100_000):
            await log.append(Shard(database, 0), [Entry("a", b"x" * 100_000)])

    await fill("telemetry", 9_000_000)
    clock.advance(1)
    await fill("raw", 9_000_000)
    await fill("events", 9_000_000)
    await keeper.look()
    assert counters["events.dropped.quota"] == 1
    assert [(await log.generations(one.name))[-1].number for one in kept] == [1, 2, 1], "the oldest of the group"
    for one in kept:
        keeper.admit(one.name)
    with pytest.raises(QuotaError, match="of the database 'events' take as many bytes as quotas allow"):
        await fill("events", 12_000_000)
    await keeper.look()
    for name in ("telemetry", "raw"):
        keeper.admit(name)
    with pytest.raises(
        QuotaError, match=r"the events of events take 20\d+ bytes, and HOMING_EVENTS_QUOTAS allows 20000000"
    ):
        keeper.admit("events")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("telemetry", "'telemetry' has no number of bytes; allowed: databases=bytes, such as"),
        ("telemetry=1e9", "has no number of bytes"),
        ("telemetry=1", "'telemetry=1': allowed are 10000000 to"),
        ("nowhere=10000000", "names 'nowhere', which is no database; allowed, each once: events, telemetry"),
        ("events+events=10000000", "names a database twice"),
        ("events=10000000:oldest", "ends with 'oldest'; allowed: new, old"),
        (",".join(["events=10000000"] * 17), "names 17 groups; allowed are up to 16"),
    ],
)
def test_quotas_that_are_none_are_refused(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        parse_quotas(text, ["events", "telemetry"])


class Stubborn(MemoryEventLog):
    """Fails a number of times, and then appends."""

    failures: list[Exception]

    async def append(
        self, shard: Shard, entries: Sequence[Entry], epoch: int | None = None, batch: BatchId | CallId | None = None
    ) -> Position:
        if self.failures:
            raise self.failures.pop()
        return await super().append(shard, entries, epoch, batch)


async def written(failures: list[Exception], count: int) -> tuple[list[int], list[bool]]:
    """Return what is in the log after so many events were given to a writer, and what it said of each."""
    log = Stubborn(Plan([NamedDatabase("events", DAY)], [], 1).databases, ManualClock())
    log.failures = failures
    writer = EventWriter(
        log,
        name="w",
        flush_interval=timedelta(milliseconds=1),
        max_items=7,
        bound=count,
        admit=lambda _database: None,
        counters=Counter(),
    )
    said: list[bool] = []
    everything = asyncio.Event()

    def done(is_in: bool) -> None:  # noqa: FBT001 - how the writer tells
        said.append(is_in)
        if len(said) == count:
            everything.set()

    for number in range(count):
        assert writer.put(SHARD, PendingEntry(Entry("a", b"%d" % number), 1, done))
    assert not writer.put(SHARD, PendingEntry(Entry("a", b"one too many"), 1, done))
    async with asyncio.timeout(PATIENCE):
        await everything.wait()
    await writer.close()
    found = await log.read(SHARD, Reading(), 1000)
    return [int(event.entry.value) for event in found.events], said


async def test_what_cannot_be_appended_is_tried_again_in_its_order() -> None:
    failures: list[Exception] = [StoreUnavailableError("away"), QuotaError("full"), StoreUnavailableError("away")]
    assert await written(failures, 30) == (list(range(30)), [True] * 30)


async def test_what_another_one_has_taken_over_is_given_up() -> None:
    found, said = await written([FencedError("later", 2)], 10)
    assert said == [False] * 7 + [True] * 3
    assert found == [7, 8, 9]


async def test_after_a_full_batch_the_next_one_is_waited_for_as_well() -> None:
    sizes: list[int] = []

    class Counting(MemoryEventLog):
        async def append(
            self,
            shard: Shard,
            entries: Sequence[Entry],
            epoch: int | None = None,
            batch: BatchId | CallId | None = None,
        ) -> Position:
            sizes.append(len(entries))
            return await super().append(shard, entries, epoch, batch)

    log = Counting(Plan([NamedDatabase("events", DAY)], [], 1).databases, ManualClock())
    an_hour = timedelta(hours=1)
    writer = EventWriter(
        log, name="w", flush_interval=an_hour, max_items=2, bound=9, admit=lambda _database: None, counters=Counter()
    )
    appended = asyncio.Semaphore(0)
    for _ in range(3):
        for number in range(2):
            assert writer.put(SHARD, PendingEntry(Entry("a", b"%d" % number), 1, lambda _is_in: appended.release()))
            for _ in range(10):  # whatever would be appended without waiting
                await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            await appended.acquire()
            await appended.acquire()
    await writer.close()
    assert sizes == [2, 2, 2]
