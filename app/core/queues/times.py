"""The two clocks of a store of queues that is one process: one that no step moves, and the one on the wall."""

from __future__ import annotations

from typing import NamedTuple

from app.core.clock import Clock, wall_us
from app.core.events.event import Position


class QueueStoreTime(NamedTuple):
    """A moment on both clocks. Loans, retries and consumers go by `now`, the ages of events and dates by `date`."""

    now: Position
    date: Position

    def shown(self, at: Position) -> Position:
        """An instant of the first clock as people read it, on the one on the wall; 0, which is never, stays 0."""
        return at and at + self.date - self.now


class QueueStoreClock:
    """`now` is the wall at the start, or the latest instant on record, and the monotonic clock from there."""

    def __init__(self, clock: Clock, not_before: Position = 0) -> None:
        self._clock = clock
        self._started_at = max(wall_us(clock), not_before)
        self._started = clock.monotonic()

    def time(self) -> QueueStoreTime:
        """Return this moment."""
        passed = round((self._clock.monotonic() - self._started) * 1_000_000)
        return QueueStoreTime(self._started_at + passed, wall_us(self._clock))
