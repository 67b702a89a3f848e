"""Live readers: all of a database stand behind one tail, which reads every event once, whoever wants it.

A follower first reads what there was, then takes what comes. One that reads too slowly loses its place at the tail and
nothing else: it goes on reading from the log where it is, until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from app.core.clock import Clock
from app.core.errors import CapacityError, HomingError, UnavailableError
from app.core.events.event import BEGINNING, Event, Position, Shard, size_of
from app.core.events.reading import EVERYTHING, Cursor, Reading, Slice
from app.core.filtertree import FilterTree, topic_pattern
from app.events.reader import Databases, EventsReader
from app.runtime.tasks import end
from app.runtime.telemetry import Bursts, Counters, Fill
from app.store.events import EventStore

STEP: Final = 500
"""Events that are read at once."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TailLimits:
    """The bounds of live reading on a node."""

    followers: int = 256
    """The number of readers that may follow."""
    waiting_bytes: int = 4 * 1024 * 1024
    """The bytes that may wait for one reader before it has to go on from the log."""
    again_seconds: float = 0.5
    """The pause after a failed attempt to read."""


DEFAULT_LIMITS: Final = TailLimits()


class EventBatch(NamedTuple):
    """Events in order, and the cursor behind them. Up to `lost` something cannot be read any more; 0: all can."""

    events: Sequence[Event]
    cursor: Cursor
    lost: Position = BEGINNING


class Tails:
    """The tails of a node: one for each database that somebody follows, as long as somebody does."""

    def __init__(
        self,
        store: EventStore,
        reader: EventsReader,
        counters: Counters,
        clock: Clock,
        limits: TailLimits = DEFAULT_LIMITS,
    ) -> None:
        self._store = store
        self._limits = limits
        self._reader = reader
        self._counters = counters
        self._bursts = Bursts(clock)
        self._tails: dict[str, _Tail] = {}
        self._followers = 0

    def fill(self) -> Fill:
        """The number of followers, and its bound."""
        return Fill(self._followers, self._limits.followers)

    async def follow(self, databases: Databases, topic_filter: str, cursor: Cursor) -> AsyncGenerator[EventBatch, None]:
        """Everything behind the cursor that fits, without end. CapacityError when as many follow as may.

        What was there already comes in the order of all databases; then each comes as it is said.
        """
        shards = self._reader.shards(databases)
        if self._followers >= self._limits.followers:
            raise CapacityError(f"{self._limits.followers} readers follow events on this node already")
        self._followers += 1
        log = _LogReading(self._reader, databases, topic_filter, cursor)
        names = tuple(dict.fromkeys(one.database for one in shards))
        follower = _TailFollower(
            topic_filter, {name: _first(shards, name) for name in names}, self._limits.waiting_bytes
        )
        try:
            await log.begin()
            while True:
                yield await log.batch()
                if log.more:
                    continue
                follower.begin()
                for name in names:
                    await self._join(name, follower)
                # What came between the last page and the tail's place is in the log, and maybe in the tail as well.
                log.more = True
                while log.more:
                    batch = await log.batch()
                    if batch.events or batch.lost:
                        yield batch
                async for batch in follower.batches(log.cursor):
                    log.cursor = batch.cursor
                    yield batch
                self._counters["events.follower_behind"] += 1
                for tail in [self._tails[name] for name in names if name in self._tails]:
                    tail.leave(follower)
        finally:
            self._followers -= 1
            await self._leave(names, follower)

    async def close(self) -> None:
        """End all tails."""
        await end([tail.task for tail in self._tails.values()])

    async def _join(self, database: str, follower: _TailFollower) -> None:
        tail = self._tails.get(database)
        if tail is None:
            heads = await self._reader.heads(database)
            tail = self._tails.get(database)  # another one may have made it meanwhile
            if tail is None:
                again = self._limits.again_seconds
                tail = _Tail(self._store, self._reader, database, heads, again, self._failed)
                self._tails[database] = tail
        tail.join(follower)

    def _failed(self, database: str, error: Exception) -> None:
        """Count and say what keeps a tail from reading: the log is away, or Homing has a mistake."""
        known = isinstance(error, HomingError)
        reason = "away" if known else "mistake"
        self._counters[f"events.tail_failed.{reason}"] += 1
        count = self._bursts.count(reason)
        if count and known:
            _log.warning("tail_waits", database=database, reason=str(error), count=count)
        elif count:
            _log.error("tail_failed", database=database, count=count, exc_info=error)

    async def _leave(self, names: Sequence[str], follower: _TailFollower) -> None:
        left = [name for name in names if name in self._tails and self._tails[name].leave(follower) == 0]
        await end([self._tails.pop(name).task for name in left])


def _first(shards: Sequence[Shard], database: str) -> int:
    """The place of a database's first shard among all that are read."""
    return next(number for number, shard in enumerate(shards) if shard.database == database)


class _LogReading:
    """One reader's way through the log, up to its end. What is dropped before it gets there is lost, and it is told."""

    def __init__(self, reader: EventsReader, databases: Databases, topic_filter: str, cursor: Cursor) -> None:
        self.cursor = cursor
        self.more = True
        """True if there may be more right now."""
        self._reader = reader
        self._databases = databases
        self._topic_filter = topic_filter
        self._gone = BEGINNING
        """The position up to which something is known to be gone."""

    async def begin(self) -> None:
        """Take note of what is gone already, which is no news to whoever begins here."""
        self._gone = await self._reader.gap(self._databases, self.cursor) or BEGINNING

    async def batch(self) -> EventBatch:
        """Read the next page. It is compared afterwards, as its events may be dropped while it is read."""
        before = self.cursor
        page = await self._reader.page(self._databases, self._topic_filter, before, STEP)
        self.cursor, self.more, lost = page.cursor, page.more, page.lost
        gone = await self._reader.gap(self._databases, before) or BEGINNING
        if self._gone < gone <= max(page.cursor.positions):
            self._gone, lost = gone, max(lost, gone)
        return EventBatch(page.events, page.cursor, lost)


class _TailFollower:
    """The events that wait for one reader; `first` says where the shards of each database begin among those read."""

    def __init__(self, topic_filter: str, first: Mapping[str, int], most_waiting: int) -> None:
        self.topic_filter = topic_filter
        self._most_waiting = most_waiting
        self._first = first
        self._waiting: deque[tuple[int, Sequence[Event], tuple[Position, ...], tuple[Position, ...]]] = deque()
        self._size = 0
        self._there = asyncio.Event()
        self._behind = False

    def begin(self) -> None:
        self._waiting.clear()
        self._size = 0
        self._behind = False
        self._there.clear()

    def put(
        self, database: str, events: Sequence[Event], positions: tuple[Position, ...], lost: tuple[Position, ...]
    ) -> bool:
        """Put the events; True if the follower still has its place. `positions` and `lost` are by shard."""
        self._size += sum([size_of(event.entry) for event in events])
        if self._size > self._most_waiting:
            self._behind = True
            self._waiting.clear()
        else:
            self._waiting.append((self._first[database], events, positions, lost))
        self._there.set()
        return not self._behind

    async def batches(self, cursor: Cursor) -> AsyncIterator[EventBatch]:
        """Yield what the tail brings, until it is too much; what is before the cursor was read already."""
        at = list(cursor.positions)
        while not self._behind:
            await self._there.wait()
            self._there.clear()
            while self._waiting:
                first, events, positions, lost = self._waiting.popleft()
                self._size -= sum([size_of(event.entry) for event in events])
                if first:
                    events = [event._replace(shard=first + event.shard) for event in events]
                new = [event for event in events if event.position > at[event.shard]]
                read = at[first : first + len(positions)]
                missed = max(one if one > known else BEGINNING for one, known in zip(lost, read, strict=True))
                at[first : first + len(positions)] = map(max, read, positions)
                yield EventBatch(new, Cursor(tuple(at)), missed)


class _Tail:
    """Reads what comes to a database, once, and hands it to each follower whose filter fits."""

    def __init__(
        self,
        store: EventStore,
        reader: EventsReader,
        database: str,
        heads: Cursor,
        again: float,
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._store = store
        self._reader = reader
        self._again = again
        self._failed = failed
        self._was_away = False
        """True if it has failed since it read last: something may have been dropped meanwhile."""
        self._shards = reader.database(database).all_shards()
        self._database = database
        self._positions = heads.positions
        self._followers: dict[str, set[_TailFollower]] = {}  # by their filters
        self._filters: FilterTree[str] = FilterTree()
        self.task = asyncio.create_task(self._run(), name=f"tail of {database}")

    def join(self, follower: _TailFollower) -> None:
        wanted = follower.topic_filter
        if wanted not in self._followers:
            self._followers[wanted] = set()
            self._filters.add(topic_pattern(wanted), wanted)
        self._followers[wanted].add(follower)

    def leave(self, follower: _TailFollower) -> int:
        """Remove a follower; return how many filters are left that somebody wants.

        One that left before changes nothing.
        """
        wanted = follower.topic_filter
        same = self._followers.get(wanted, set())
        same.discard(follower)
        if not same and self._followers.pop(wanted, None) is not None:
            self._filters.remove(topic_pattern(wanted), wanted)
        return len(self._followers)

    async def _run(self) -> None:
        while True:
            try:
                heads = await self._store.wait(self._database, self._positions)
                await self._read(heads)
            except Exception as error:  # noqa: BLE001 - it is told, and those who follow must not wait for ever
                self._was_away = True
                self._failed(self._database, error)
                await asyncio.sleep(self._again)

    async def _read(self, heads: Sequence[Position]) -> None:
        """All shards that have more, or none: what was read of one comes again when another one cannot be read."""
        before = self._positions
        parts = [
            await self._store.read(shard, Reading(EVERYTHING, position), STEP)
            if head > position
            else Slice((), position, more=False)
            for shard, position, head in zip(self._shards, before, heads, strict=True)
        ]
        gone = BEGINNING
        if self._was_away:
            with suppress(UnavailableError):  # while a part of the log is away, nobody can say
                gone = await self._reader.gap(self._database, Cursor(before)) or BEGINNING
                self._was_away = False
        lost = tuple(max(part.lost, gone) for part in parts)
        self._positions = positions = tuple(part.position for part in parts)
        found = sorted(event for part in parts for event in part.events)
        fitting: dict[str, list[Event]] = {wanted: [] for wanted in self._followers}
        for event in found:
            for wanted in self._filters.match(event.entry.topic.split("/")):
                fitting[wanted].append(event)
        for wanted, events in fitting.items():
            for follower in tuple(self._followers[wanted]):
                if not follower.put(self._database, events, positions, lost):
                    self.leave(follower)
