"""Live readers behind one tail: nothing is missed and nothing comes twice, however slow they are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.core.errors import CapacityError, StoreUnavailableError
from app.core.events.event import Entry, Event, Position, Shard
from app.core.events.plan import NamedDatabase, Plan
from app.core.events.reading import EVERYTHING, Cursor, Reading, Slice
from app.events.reader import EventsReader
from app.events.tail import EventBatch, TailLimits, Tails
from app.runtime.system import SystemClock
from app.runtime.telemetry import Counters
from app.store.memory.events import MemoryEventLog
from tests.waiting import PATIENCE, turns


class Stage:
    def __init__(self, shards: int = 3, **limits: Any) -> None:
        plan = Plan([NamedDatabase("events", timedelta(days=1))], [], shards)
        self.database = plan.databases[0]
        self.store = MemoryEventLog(plan.databases, SystemClock())
        self.counters: Counters = Counter()
        self.reader = EventsReader(self.store, plan)
        self.tails = Tails(self.store, self.reader, self.counters, SystemClock(), TailLimits(**limits))
        self.start = Cursor((0,) * shards)
        self.number = 0

    async def say(self, count: int, topic: str = "a", value: bytes = b"") -> None:
        for _ in range(count):
            self.number += 1
            shard = self.database.shard(f"device-{self.number % 11}")
            await self.store.append(shard, [Entry(topic, b"%d" % self.number + value)])

    async def take(self, batches: AsyncGenerator[EventBatch, None], count: int) -> list[Event]:
        """The next so many events."""
        found: list[Event] = []
        async with asyncio.timeout(PATIENCE):
            while len(found) < count:
                found += (await anext(batches)).events
        return found


def numbers(events: list[Event]) -> list[int]:
    return [int(event.entry.value[:6].strip()) for event in events]


async def test_a_follower_gets_what_there_was_and_then_what_comes() -> None:
    stage = Stage()
    await stage.say(1200)
    batches = stage.tails.follow("events", "#", stage.start)
    assert numbers(await stage.take(batches, 1200)) == list(range(1, 1201))
    waiting = asyncio.create_task(stage.take(batches, 60))
    await turns()
    await stage.say(60)
    assert sorted(numbers(await waiting)) == list(range(1201, 1261))
    await batches.aclose()
    assert stage.tails.fill().size == 0
    assert not stage.tails._tails, "nobody follows, so nobody reads"


async def test_many_followers_stand_behind_one_tail_each_with_its_filter() -> None:
    stage = Stage()
    followers = {name: stage.tails.follow("events", name, stage.start) for name in ("a", "b/+", "#")}
    tasks = {name: asyncio.create_task(stage.take(one, 40 if name == "#" else 20)) for name, one in followers.items()}
    await turns()
    for _ in range(20):
        await stage.say(1, "a")
        await stage.say(1, "b/x")
    found = {name: sorted(numbers(await task)) for name, task in tasks.items()}
    assert found == {"a": list(range(1, 41, 2)), "b/+": list(range(2, 41, 2)), "#": list(range(1, 41))}
    assert len(stage.tails._tails) == 1
    await stage.tails.close()


async def test_one_that_is_told_by_the_tail_hears_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    read = stage.store.read

    async def losing(shard: Shard, reading: Reading, limit: int) -> Slice:
        part = await read(shard, reading, limit)
        by_the_tail = reading.topic_filter == EVERYTHING and part.events
        return part._replace(events=[], lost=part.position) if by_the_tail else part

    batches = stage.tails.follow("events", "#", stage.start)
    assert (await anext(batches)).lost == 0
    live = asyncio.ensure_future(anext(batches))
    await turns()
    monkeypatch.setattr(stage.store, "read", losing)
    await stage.say(1)
    batch = await live
    assert (batch.events, batch.lost) == ([], max(batch.cursor.positions))
    monkeypatch.setattr(stage.store, "read", read)
    await stage.say(1)
    batch = await anext(batches)
    assert (len(batch.events), batch.lost) == (1, 0)
    await batches.aclose()


async def test_one_that_reads_too_slowly_goes_on_from_the_log() -> None:
    stage = Stage(waiting_bytes=2000)
    batches = stage.tails.follow("events", "#", stage.start)
    first = asyncio.create_task(stage.take(batches, 1))
    await turns()
    await stage.say(1)
    found = await first
    for _ in range(10):
        await stage.say(50, value=b" " * 100)
        await turns(5)
    found += await stage.take(batches, 501 - len(found))
    assert sorted(numbers(found)) == list(range(1, 502))
    assert stage.counters["events.follower_behind"] >= 1
    more = asyncio.create_task(stage.take(batches, 5))
    await turns()
    await stage.say(5)
    assert sorted(numbers(await more)) == list(range(502, 507))
    await stage.tails.close()


async def test_one_that_reads_too_slowly_is_told_what_was_dropped_before_it_came_there() -> None:
    stage = Stage(1)
    await stage.say(600)
    batches = stage.tails.follow("events", "#", stage.start)
    first = await anext(batches)
    assert (len(first.events), first.lost) == (500, 0)
    (old,) = await stage.store.generations("events")
    await stage.store.rotate("events", old.number)
    await stage.say(2)
    await stage.store.drop("events", old.number)  # its retention is over, or room is needed
    (new,) = await stage.store.generations("events")
    batch = await anext(batches)
    assert (numbers(list(batch.events)), batch.lost) == ([601, 602], new.first - 1)
    live = asyncio.create_task(anext(batches))
    await turns()
    await stage.say(1)
    batch = await live
    assert (numbers(list(batch.events)), batch.lost) == ([603], 0)
    await batches.aclose()
    await stage.tails.close()


async def test_what_was_dropped_while_the_log_was_away_is_told_to_those_who_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(1, again_seconds=0)
    batches = stage.tails.follow("events", "#", stage.start)
    first = asyncio.create_task(stage.take(batches, 1))
    await turns()
    await stage.say(1)
    await first
    live = asyncio.create_task(anext(batches))
    with monkeypatch.context() as patched:
        for call in ("wait", "read"):
            patched.setattr(stage.store, call, away)
        await stage.say(2)
        await turns()
        (old,) = await stage.store.generations("events")
        await stage.store.rotate("events", old.number)
        await stage.say(1)
        await stage.store.drop("events", old.number)
    (new,) = await stage.store.generations("events")
    batch = await live
    assert (numbers(list(batch.events)), batch.lost) == ([4], new.first - 1)
    await stage.say(1)
    batch = await anext(batches)
    assert (numbers(list(batch.events)), batch.lost) == ([5], 0)
    await batches.aclose()
    await stage.tails.close()


async def test_what_was_read_of_one_shard_comes_again_when_another_one_could_not_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(2, again_seconds=0)
    batches = stage.tails.follow("events", "#", stage.start)
    first = asyncio.create_task(stage.take(batches, 1))
    await turns()
    await stage.say(1)
    await first
    real, fails = stage.store.read, [StoreUnavailableError("Redis is away")]

    async def read(shard: Shard, reading: Reading, limit: int) -> Slice:
        if shard.number == 1 and fails:
            raise fails.pop()
        return await real(shard, reading, limit)

    monkeypatch.setattr(stage.store, "read", read)
    await stage.say(10)
    assert sorted(numbers(await stage.take(batches, 10))) == list(range(2, 12))
    await batches.aclose()
    await stage.tails.close()


async def test_a_shard_whose_server_is_away_delays_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there when somebody looked at where it ends, and not any more when it was read."""
    stage = Stage(2, again_seconds=0)
    batches = stage.tails.follow("events", "#", stage.start)
    first = asyncio.create_task(stage.take(batches, 1))
    await turns()
    await stage.say(1)
    (seen,) = await first
    here, there = (stage.database.all_shards()[number] for number in (seen.shard, 1 - seen.shard))
    read, wait, tried = stage.store.read, stage.store.wait, list[Shard]()

    async def read_some(shard: Shard, reading: Reading, limit: int) -> Slice:
        if shard == there:
            tried.append(shard)
            raise StoreUnavailableError("its server is away")
        return await read(shard, reading, limit)

    async def wait_for_some(database: str, after: Sequence[Position]) -> Sequence[Position]:
        known = list(after)
        if tried:
            known[there.number] = 1 << 62
        heads = list(await wait(database, known))
        if tried:
            heads[there.number] = after[there.number]
        return heads

    monkeypatch.setattr(stage.store, "read", read_some)
    monkeypatch.setattr(stage.store, "wait", wait_for_some)
    monkeypatch.setattr(stage.reader, "gap", away)
    await stage.store.append(there, [Entry("a", b"2")])
    await stage.store.append(here, [Entry("a", b"3")])
    assert numbers(await stage.take(batches, 1)) == [3]
    assert tried == [there]
    monkeypatch.undo()
    await stage.store.append(here, [Entry("a", b"4")])
    assert sorted(numbers(await stage.take(batches, 2))) == [2, 4]
    await batches.aclose()
    await stage.tails.close()


async def away(*_: object) -> None:
    raise StoreUnavailableError("Redis is away")


async def test_a_cursor_of_any_batch_goes_on_without_gap_and_without_repetition() -> None:
    stage = Stage()
    await stage.say(30)
    cursor = stage.start
    found: list[Event] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < 80:
            batches = stage.tails.follow("events", "#", cursor)
            saying = asyncio.create_task(stage.say(10 if stage.number < 80 else 0))
            async for batch in batches:
                found += batch.events
                cursor = batch.cursor
                if batch.events:
                    break
            await saying
            await batches.aclose()
    assert sorted(numbers(found)) == list(range(1, 81))


async def test_followers_are_bounded() -> None:
    stage = Stage(followers=1)
    await stage.say(1)
    first = stage.tails.follow("events", "#", stage.start)
    await stage.take(first, 1)
    with pytest.raises(CapacityError, match="1 readers follow events on this node already"):
        await anext(stage.tails.follow("events", "#", stage.start))
    await first.aclose()
    await stage.take(stage.tails.follow("events", "#", stage.start), 1)
    await stage.tails.close()


async def test_a_gap_is_known() -> None:
    stage = Stage(1)
    await stage.say(3)
    page = await stage.reader.page("events", "#", stage.start, 2)
    await stage.store.rotate("events", 1)
    assert await stage.reader.gap("events", page.cursor) is None
    await stage.say(2)
    await stage.store.drop("events", 1)
    gone = await stage.reader.gap("events", page.cursor)
    assert gone is not None
    assert gone > max(page.cursor.positions)
    rest = await stage.reader.page("events", "#", page.cursor, 10)
    assert await stage.reader.gap("events", rest.cursor) is None


@pytest.mark.parametrize(
    ("error", "reason", "said"),
    [(StoreUnavailableError("Redis is away"), "away", "tail_waits"), (ValueError("no"), "mistake", "tail_failed")],
)
async def test_what_keeps_a_tail_from_reading_is_counted_and_said_once_and_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str, said: str
) -> None:
    stage = Stage(again_seconds=0)
    batches = stage.tails.follow("events", "#", stage.start)
    first = asyncio.create_task(stage.take(batches, 1))
    await turns()
    await stage.say(1)
    await first
    real, fails = stage.store.wait, [error] * 3

    async def wait(database: str, after: Sequence[Position]) -> Sequence[Position]:
        if fails:
            raise fails.pop()
        return await real(database, after)

    monkeypatch.setattr(stage.store, "wait", wait)
    with capture_logs() as logs:
        more = asyncio.create_task(stage.take(batches, 2))
        await stage.say(2)
        assert sorted(numbers(await more)) == [2, 3]
        await stage.say(1)
        assert numbers(await stage.take(batches, 1)) == [4]
    assert stage.counters[f"events.tail_failed.{reason}"] == 3
    assert [(one["event"], one["database"], one["count"]) for one in logs] == [(said, "events", 1)]
    await batches.aclose()


async def test_one_that_leaves_takes_nothing_from_one_with_the_same_filter() -> None:
    stage = Stage()
    readers = [stage.tails.follow("events", "a/+", stage.start) for _ in range(2)]
    taking = [asyncio.create_task(stage.take(one, 1)) for one in readers]
    await turns()
    await stage.say(1, "a/x")
    assert [numbers(await one) for one in taking] == [[1], [1]]
    await readers[0].aclose()
    await stage.say(1, "b")
    await stage.say(1, "a/y")
    assert numbers(await stage.take(readers[1], 1)) == [3]
    await readers[1].aclose()
    await stage.tails.close()
