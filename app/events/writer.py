"""Appends what the intake brings: events of a shard in their order, several at once, and again until they are in.

Nothing is acknowledged before it is durable. While the log is away or full everything waits here, which is no more than
the broker sends ahead of PUBACK.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from app.core.errors import EventLogError, FencedError, QuotaError, UnavailableError
from app.core.events.batches import BatchId
from app.core.events.event import Entry, Shard
from app.events.spans import UNTRACED, EventSpans
from app.runtime.tasks import end
from app.runtime.telemetry import Counters, Fill
from app.store.events import EventLog

FIRST_PAUSE_SECONDS: Final = 0.02
LONGEST_PAUSE_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class PendingEntry(NamedTuple):
    """An entry, and what is to be called with whether it is in the log."""

    entry: Entry
    epoch: int | None
    done: Callable[[bool], None]


class EventWriter:
    """`admit` raises QuotaError while a database takes no more. No other writer ever has the same `name`."""

    def __init__(
        self,
        log: EventLog,
        *,
        name: str,
        flush_interval: timedelta,
        max_items: int,
        bound: int,
        admit: Callable[[str], None],
        counters: Counters,
        spans: EventSpans = UNTRACED,
        outrun: Callable[[int], None] = lambda _epoch: None,
    ) -> None:
        """`outrun` is called with the epoch of whoever shuts this writer out."""
        self._log = log
        self._name = name
        self._numbers: Counter[Shard] = Counter()
        self._flush_seconds = flush_interval.total_seconds()
        self._max_items = max_items
        self._bound = bound
        self._admit = admit
        self._counters = counters
        self._spans = spans
        self._outrun = outrun
        self._lanes: dict[Shard, _ShardLane] = {}
        self._size = 0

    def put(self, shard: Shard, waiting: PendingEntry) -> bool:
        """Append it soon; false, and nothing happens, when as many wait as may."""
        if self._size >= self._bound:
            return False
        self._size += 1
        lane = self._lanes.get(shard)
        if lane is None:
            lane = self._lanes[shard] = _ShardLane(self, shard)
        lane.put(waiting)
        return True

    def has_room(self) -> bool:
        """True if half of what may wait, or less, does."""
        return self._size <= self._bound // 2

    def fill(self) -> Fill:
        """The number of entries that wait, and its bound."""
        return Fill(self._size, self._bound)

    async def close(self) -> None:
        """Give up what waits: it has no PUBACK, so it comes again."""
        await end([lane.task for lane in self._lanes.values() if lane.task is not None])

    async def append(self, shard: Shard, batch: list[PendingEntry]) -> bool:
        """Append a batch, as often as it takes; whether it is in the log."""
        entries = [one.entry for one in batch]
        self._numbers[shard] += 1
        try:
            with self._spans.batch(shard, entries):
                await self._until_in(shard, entries, batch[0].epoch, BatchId(self._name, self._numbers[shard]))
        except FencedError as error:
            self._counters["events.fenced"] += len(batch)
            self._outrun(error.epoch)
            return False
        self._counters["events.appended"] += len(batch)
        return True

    async def _until_in(self, shard: Shard, entries: Sequence[Entry], epoch: int | None, batch: BatchId) -> None:
        """FencedError."""
        pause = FIRST_PAUSE_SECONDS
        failures = 0
        while True:
            try:
                self._admit(shard.database)
                with self._spans.append(shard, entries):
                    await self._log.append(shard, entries, epoch, batch)
            except FencedError:
                raise
            except (UnavailableError, EventLogError) as error:
                failures += 1
                self._counters["events.refused" if isinstance(error, QuotaError) else "events.retried"] += 1
                if failures == 1:
                    _log.warning("events_wait", shard=str(shard), reason=str(error))
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE_SECONDS, pause * 2)
            else:
                return

    async def serve(self, shard: Shard, waiting: deque[PendingEntry], full: asyncio.Event) -> None:
        """Append everything that waits for the shard, and what comes meanwhile."""
        while waiting:
            if len(waiting) < self._max_items:
                await self._gather(full)
            batch = _batch(waiting, self._max_items)
            if not self.is_full(waiting):
                full.clear()
            is_in = await self.append(shard, batch)
            self._size -= len(batch)
            for one in batch:
                one.done(is_in)

    async def _gather(self, full: asyncio.Event) -> None:
        """Wait for others, until a moment that all shards have in common: so what they write leaves together."""
        now, interval = asyncio.get_running_loop().time(), self._flush_seconds
        moment = (now // interval + 1) * interval if interval else now
        try:
            async with asyncio.timeout_at(moment):
                await full.wait()
        except TimeoutError:
            pass

    def is_full(self, waiting: deque[PendingEntry]) -> bool:
        """True if there is a whole batch."""
        return len(waiting) >= self._max_items


class _ShardLane:
    """The entries that wait for one shard, and the task that appends them while there are some."""

    def __init__(self, writer: EventWriter, shard: Shard) -> None:
        self.task: asyncio.Task[None] | None = None
        self._writer = writer
        self._shard = shard
        self._waiting: deque[PendingEntry] = deque()
        self._full = asyncio.Event()

    def put(self, waiting: PendingEntry) -> None:
        self._waiting.append(waiting)
        if self._writer.is_full(self._waiting):
            self._full.set()
        if self.task is None:
            self.task = asyncio.create_task(self._run(), name=f"events {self._shard}")

    async def _run(self) -> None:
        try:
            await self._writer.serve(self._shard, self._waiting, self._full)
        finally:
            self.task = None


def _batch(waiting: deque[PendingEntry], most: int) -> list[PendingEntry]:
    """The first ones, of one epoch."""
    batch = [waiting.popleft()]
    while waiting and len(batch) < most and waiting[0].epoch == batch[0].epoch:
        batch.append(waiting.popleft())
    return batch
