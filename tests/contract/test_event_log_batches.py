"""A batch that is appended again, as its answer was lost, is in the log once: over every engine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from app.core.errors import FencedError, StoreUnavailableError
from app.core.events.batches import MOST_WRITERS, BatchId
from app.core.events.event import Entry, Position, Shard
from app.core.events.reading import Reading
from app.events.writer import EventWriter, PendingEntry
from app.store.events import EventStore
from tests.contract.event_places import EventPlace
from tests.waiting import PATIENCE

SHARD = Shard("events", 2)
OTHER = Shard("events", 0)


@pytest.fixture
async def log(event_place: EventPlace) -> EventStore:
    return await event_place.open()


def said(*values: str) -> list[Entry]:
    return [Entry("a", value.encode()) for value in values]


async def values(log: EventStore, shard: Shard = SHARD) -> list[str]:
    return [event.entry.value.decode() for event in (await log.read(shard, Reading(), 1000)).events]


async def test_what_comes_again_is_answered_as_the_first_time(log: EventStore) -> None:
    first = await log.append(SHARD, said("1", "2"), None, BatchId("one", 1))
    assert await log.append(SHARD, said("1", "2"), None, BatchId("one", 1)) == first
    other = await log.append(SHARD, said("3"), None, BatchId("other", 1))
    assert await log.append(SHARD, said("1", "2"), None, BatchId("one", 1)) == first
    second = await log.append(SHARD, said("4"), None, BatchId("one", 2))
    assert first < other < second
    await log.append(SHARD, said("1", "2"), None, BatchId("one", 1))  # much too late
    assert await values(log) == ["1", "2", "3", "4"]
    (about,) = await log.generations("events")
    assert about.count == 4


async def test_without_a_number_it_is_another_one(log: EventStore) -> None:
    for _ in range(2):
        await log.append(SHARD, said("1"), 3)
    assert await values(log) == ["1", "1"]


async def test_each_shard_has_numbers_of_its_own(log: EventStore) -> None:
    await log.append(SHARD, said("1"), None, BatchId("one", 7))
    await log.append(OTHER, said("2"), None, BatchId("one", 1))
    assert (await values(log), await values(log, OTHER)) == (["1"], ["2"])


async def test_it_is_known_wherever_it_lies_now(log: EventStore) -> None:
    position = await log.append(SHARD, said("1"), None, BatchId("one", 1))
    await log.rotate("events", 1)
    assert await log.append(SHARD, said("1"), None, BatchId("one", 1)) == position
    await log.drop("events", 1)
    assert await log.append(SHARD, said("1"), None, BatchId("one", 1)) == position
    assert await values(log) == []


async def test_what_is_in_is_said_to_be_in_and_what_is_fenced_is_not_remembered(log: EventStore) -> None:
    position = await log.append(SHARD, said("1"), 1, BatchId("one", 1))
    await log.append(SHARD, said("2"), 2, BatchId("other", 1))
    assert await log.append(SHARD, said("1"), 1, BatchId("one", 1)) == position
    for _ in range(2):
        with pytest.raises(FencedError):
            await log.append(SHARD, said("3"), 1, BatchId("one", 2))
    assert await values(log) == ["1", "2"]


async def test_the_writers_that_appended_last_are_known(log: EventStore) -> None:
    for number in range(MOST_WRITERS):
        await log.append(SHARD, said(str(number)), None, BatchId(f"writer {number}", 1))
    await log.append(SHARD, said("again"), None, BatchId("writer 0", 2))
    await log.append(SHARD, said("one more"), None, BatchId("one more", 1))  # in place of writer 1
    for name, number in (("writer 0", 2), ("one more", 1), ("writer 2", 1), (f"writer {MOST_WRITERS - 1}", 1)):
        await log.append(SHARD, said("twice"), None, BatchId(name, number))
    assert "twice" not in await values(log)
    await log.append(SHARD, said("forgotten"), None, BatchId("writer 1", 1))
    assert (await values(log))[-1] == "forgotten"


class Mute:
    """A log that does all, and whose answers are lost."""

    def __init__(self, log: EventStore, lost: int) -> None:
        self._log = log
        self.lost = lost

    async def append(
        self, shard: Shard, entries: Sequence[Entry], epoch: int | None = None, batch: BatchId | None = None
    ) -> Position:
        position = await self._log.append(shard, entries, epoch, batch)
        if self.lost:
            self.lost -= 1
            raise StoreUnavailableError("the answer is lost")
        return position


@pytest.mark.parametrize("epoch", [None, 5])
async def test_a_writer_that_gets_no_answer_writes_once(log: EventStore, epoch: int | None) -> None:
    counters: Counter[str] = Counter()
    writer = EventWriter(
        Mute(log, 3),  # type: ignore[arg-type]  # a writer does nothing else
        name="w",
        flush_interval=timedelta(0),
        max_items=4,
        bound=10,
        admit=lambda _database: None,
        counters=counters,
    )
    done: asyncio.Queue[bool] = asyncio.Queue()
    for number in range(10):
        assert writer.put(SHARD, PendingEntry(Entry("a", b"%d" % number), epoch, done.put_nowait))
    async with asyncio.timeout(PATIENCE):
        assert [await done.get() for _ in range(10)] == [True] * 10
    await writer.close()
    assert await values(log) == [str(number) for number in range(10)]
    assert (counters["events.retried"], counters["events.appended"]) == (3, 10)
