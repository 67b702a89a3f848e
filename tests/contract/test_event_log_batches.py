"""A batch that is appended again, as its answer was lost, is in the log once: over every engine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from app.core.errors import CallMismatchError, DatabaseNotFoundError, FencedError, StoreUnavailableError
from app.core.events.batches import CALL_KNOWN_US, MOST_WRITERS, BatchId, CallId, ClaimedKeys, KnownCalls, call_of
from app.core.events.event import Entry, Position, Shard
from app.core.events.reading import Reading
from app.events.writer import EventWriter, PendingEntry
from app.store.events import EventStore
from tests.contract.event_places import EventPlace, RedisEvents
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


async def test_a_call_that_is_named_happens_once_in_its_shard(log: EventStore, event_place: EventPlace) -> None:
    first = await log.append(SHARD, said("1", "2"), None, CallId("order-17"))
    for batch in (None, BatchId("call:order-17", 1), BatchId("order-17", 1)):
        await log.append(SHARD, said("3"), None, batch)
    assert await log.append(SHARD, said("4"), None, CallId("order-17")) == first
    assert await log.append(SHARD, said("5"), None, CallId("order-18")) > first
    await log.append(OTHER, said("6"), None, CallId("order-17"))
    assert (await values(log), await values(log, OTHER)) == (["1", "2", "3", "3", "3", "5"], ["6"])
    await log.close()
    again = await event_place.open()
    if await values(again):  # not that in memory
        assert await again.append(SHARD, said("7"), None, CallId("order-17")) == first


async def test_a_key_stands_for_one_call(log: EventStore, event_place: EventPlace) -> None:
    another_node = await event_place.open() if isinstance(event_place, RedisEvents) else log
    call = call_of("ops", "order-17", "events", said("1", "2"))
    for _ in range(2):
        await log.claim("events", call)
    await log.claim("telemetry", call)
    for entries in (said("1"), said("2", "1"), said("12"), [Entry("b", b"1"), Entry("b", b"2")]):
        wrong = call_of("ops", "order-17", "events", entries)
        for node in (log, another_node):
            with pytest.raises(CallMismatchError, match="other events"):
                await node.claim("events", wrong)
    await log.claim("events", call_of("ops", "order-18", "events", said("1")))
    await log.claim("events", call_of("viewer", "order-17", "events", said("1")))
    with pytest.raises(DatabaseNotFoundError):
        await log.claim("nothing", call)


def test_what_a_node_adds_makes_no_other_call() -> None:
    here = Entry("a", b"1", device="dock-1", kind="x", id="1")
    assert call_of("", "k", "events", [here]) == call_of("", "k", "events", [Entry("a", b"1")])


def test_keys_are_claimed_for_two_minutes_and_bounded() -> None:
    claimed = ClaimedKeys(most=2)
    claimed.claim(CallId("one", "a"), 10)
    with pytest.raises(CallMismatchError):
        claimed.claim(CallId("other", "a"), 10 + CALL_KNOWN_US)
    claimed.claim(CallId("other", "a"), 11 + CALL_KNOWN_US)
    for key in "bc":
        claimed.claim(CallId("one", key), 11 + CALL_KNOWN_US)
    claimed.claim(CallId("one", "a"), 11 + CALL_KNOWN_US)  # forgotten


async def test_calls_at_once_with_one_name_are_in_once(log: EventStore) -> None:
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(log.append(SHARD, said(str(one)), None, CallId("same"))) for one in range(8)]
    assert len({one.result() for one in calls}) == 1
    assert len(await values(log)) == 1


def test_calls_are_known_for_two_minutes() -> None:
    calls = KnownCalls([("b", 20), ("a", 10)])
    assert calls.put(CallId("c"), 10 + CALL_KNOWN_US) == []
    assert calls.put(CallId("d"), 11 + CALL_KNOWN_US) == ["a"]
    assert calls.position_of(CallId("a")) is None
    assert calls.position_of(CallId("b")) == 20


def test_known_calls_are_bounded() -> None:
    calls = KnownCalls([("b", 20), ("c", 21), ("d", 22)], most=2)
    assert calls.put(CallId("e"), 23) == ["b", "c"]


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
