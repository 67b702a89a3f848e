"""The latency log of a node: takes records on the event loop, and has them written in the background."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

import structlog

from app.core.clock import Clock
from app.core.errors import HomingError
from app.latency.clock import WINDOW_SECONDS, StoreClock
from app.latency.record import Closed, Row, WriteError
from app.runtime.telemetry import Counters, Fill
from app.runtime.worker import Worker

CHUNK: Final = 2048
"""Records that are handed to the background at once: taking them apart holds the event loop up for a millisecond."""
TICK_SECONDS: Final = 1.0
"""The time for which a smaller number waits."""
LONGEST_PAUSE: Final = 600.0
"""Seconds without an attempt to write, after failures."""
ROW_SHARE: Final = 4
"""Late and duplicate responses may take one part in so many of the buffer: a burst of them must not push others out."""


_Result = TypeVar("_Result")


class IntervalResult(NamedTuple):
    """The result of the end of an interval."""

    files: int
    records: int


class Writer(Protocol):
    """See app/latency/writer.py; its methods are called in the background, one at a time."""

    def add(self, closed: Sequence[Closed], rows: Sequence[Row], offset: float | None) -> int:
        """Take records; how many wait in memory."""

    def finish(self) -> IntervalResult:
        """End the open files."""


class LatencyLog:
    """Bounded and harmless: what cannot be written is dropped and counted, and the node goes on."""

    def __init__(
        self,
        writer: Writer,
        *,
        clock: Clock,
        store_now: Callable[[], Awaitable[int]],
        interval: timedelta,
        buffer: int,
        counters: Counters,
        tick: float = TICK_SECONDS,
    ) -> None:
        """`buffer` is how many records may wait in memory, all in all. `store_now` tells the store's time.

        `tick`: after how many seconds a number of records that fills no chunk is handed over.
        """
        self.store_clock = StoreClock()
        self._writer = writer
        self._clock = clock
        self._store_now = store_now
        self._interval = interval.total_seconds()
        self._buffer = buffer
        self._tick = tick
        self._counters = counters
        self._closed: list[Closed] = []
        self._rows: list[Row] = []
        self._away = 0
        """Records that the background has in memory."""
        self._chunk = min(CHUNK, buffer)
        self._enough = asyncio.Event()
        self._worker = Worker("latency-log")
        self._since: float | None = None
        """The instant at which the open interval began: with its first record."""
        self._retry_at = 0.0
        self._failures = 0
        self._log = structlog.get_logger()

    def fills(self) -> dict[str, Fill]:
        """The number of records that wait in memory."""
        return {"latency_records": Fill(len(self._closed) + len(self._rows) + self._away, self._buffer)}

    def closed(self, closed: Closed) -> None:
        """Take the outcome of a command of this node. On the way of every command, so it does next to nothing."""
        waiting = len(self._closed)
        if waiting + len(self._rows) + self._away >= self._buffer:
            self._counters["latency.dropped_full_buffer"] += 1
            return
        self._closed.append(closed)
        if waiting + 1 >= self._chunk:
            self._enough.set()

    def row(self, row: Row) -> None:
        """Take another record."""
        waiting = len(self._rows)
        if waiting >= self._buffer // ROW_SHARE or len(self._closed) + waiting + self._away >= self._buffer:
            self._counters["latency.dropped_full_buffer"] += 1
            return
        self._rows.append(row)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._keep_time()
        while True:
            try:
                async with asyncio.timeout(self._tick):
                    await self._enough.wait()
            except TimeoutError:
                await self._keep_time()
            await self._hand_over()
            over = self._clock.monotonic() - self._interval
            if self._since is not None and (self._since <= over or self._away >= self._buffer // 2):
                await self._finish()

    async def close(self) -> None:
        """Write what there is, the open interval included, and end the background. Cancelled, it gives up on that."""
        try:
            await self._hand_over()
            await self._finish()
        finally:
            self._worker.stop()

    async def _keep_time(self) -> None:
        """Ask for the time where no reply has told it lately."""
        sent_at = self._clock.monotonic()
        if sent_at < self.store_clock.began + WINDOW_SECONDS:
            return
        try:
            store_us = await self._store_now()
        except HomingError:
            return
        self.store_clock.learn(sent_at, self._clock.monotonic(), store_us)

    async def _hand_over(self) -> None:
        closed, self._closed = self._closed, []
        rows, self._rows = self._rows, []
        self._enough.clear()
        count = len(closed) + len(rows)
        if not count:
            return
        now = self._clock.monotonic()
        if now < self._retry_at:
            self._counters["latency.dropped_write_failed"] += count
            return
        if self._since is None:
            self._since = now
        self._learn(closed)
        self._away += count
        waiting = await self._do(partial(self._writer.add, closed, rows, self.store_clock.offset), count)
        self._away = waiting or 0

    def _learn(self, closed: Sequence[Closed]) -> None:
        """Let the quickest registration among them tell the store's time."""
        began, best, shortest = self.store_clock.began, None, math.inf
        for one in closed:
            registered_at = one.registered_at
            if registered_at is not None and registered_at - one.opened_at < shortest and registered_at >= began:
                best, shortest = one, registered_at - one.opened_at
        if best is not None and best.registered_at is not None:
            self.store_clock.learn(best.opened_at, best.registered_at, best.created_us)

    async def _finish(self) -> None:
        if self._since is None:
            return
        finished = await self._do(self._writer.finish, 0)
        self._since = None
        self._away = 0
        if finished is not None:
            self._counters["latency.files"] += finished.files
            self._counters["latency.records"] += finished.records
            if self._failures:
                self._failures = 0
                self._log.info("latency_log_resumed")

    async def _do(self, work: Callable[[], _Result], count: int) -> _Result | None:
        """Return the result of the background's work; None when it failed, which stops the log for a while."""
        try:
            return await self._worker.do(work)
        except Exception as error:  # noqa: BLE001 - whatever it is, the node does not go down with its log
            lost = error.records if isinstance(error, WriteError) else count
            self._failures += 1
            pause = min(self._interval * 2 ** min(self._failures - 1, 16), LONGEST_PAUSE)
            self._retry_at = self._clock.monotonic() + pause
            self._since = None
            self._counters["latency.write_failures"] += 1
            self._counters["latency.dropped_write_failed"] += lost
            self._log.warning("latency_log_stopped", reason=str(error), records_lost=lost, next_try_in=pause)
            return None
