"""Histograms of durations and amounts: plain counting that costs next to nothing where commands pass.

`app/metrics.py` reads it when somebody asks for `/metrics`. Durations are in seconds, of one node's monotonic clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final

SECONDS: Final = (
    *(0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0),
)
"""Upper bounds of buckets for durations, three to a decade: from a round trip to a store near by to a long timeout."""
CALLS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
"""The same for calls in one round trip to the store; 128 is the most."""


class Histogram:
    """Counts values by bucket; a bucket has what is at most its bound. Not for threads."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """The counts by bucket, not added up; the last one is of values beyond all bounds."""
        self.total = 0.0
        """The sum of all values."""

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulated(self) -> list[int]:
        """The number of values that are at most each bound, then the number of all values."""
        return list(accumulate(self.counts))


class StoreMeasures:
    """The round trips of the store's combiner."""

    def __init__(self) -> None:
        self.batch = Histogram(CALLS)
        """Calls in one round trip."""
        self.wait = Histogram()
        """The time that the first call of each round trip has waited for its turn: the longest wait in it."""
        self.round_trip = Histogram()
        """The times from sending a batch to its last reply."""
        self.last_round_trip = 0.0
        self.primaries: Callable[[], Mapping[str, bool]] = dict
        """The primaries of a Redis Cluster, and whether each answers; nothing where there is one server."""

    def exchanged(self, calls: int, waited: float, seconds: float) -> None:
        """A round trip is over."""
        self.batch.observe(calls)
        self.wait.observe(waited)
        self.round_trip.observe(seconds)
        self.last_round_trip = seconds
