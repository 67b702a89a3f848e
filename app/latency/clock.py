"""The store's clock, as this node can tell it from its own."""

from __future__ import annotations

from math import inf
from typing import Final

WINDOW_SECONDS: Final = 15.0
"""A sample counts for one to two of these."""


class StoreClock:
    """Learns from replies of the store that carry its time, as NTP does: a reply is made between sending and receipt.

    The middle of both is wrong by half the round trip at most, so the sample with the shortest one counts, of this
    window and the one before.
    """

    def __init__(self) -> None:
        self.offset: float | None = None
        """Microseconds on the store's clock at 0 on the monotonic clock; None as long as nothing was learned."""
        self.began = -inf
        """The instant at which this window began, on the monotonic clock: with a sample."""
        self._best = inf, 0.0
        """Round trip and offset of this window's best sample."""
        self._before = inf

    def learn(self, sent_at: float, received_at: float, store_us: int) -> None:
        """Take a sample: the store's clock showed `store_us` at some moment between the two instants."""
        if received_at >= self.began + WINDOW_SECONDS:
            self._turn(received_at)
        elif received_at < self.began:
            return  # of a command that took long: an older window
        round_trip = received_at - sent_at
        if round_trip < self._best[0]:
            self._best = round_trip, store_us - (sent_at + received_at) / 2 * 1e6
            if round_trip <= self._before:
                self.offset = self._best[1]

    def store_time(self, at: float) -> int | None:
        """An instant of the monotonic clock in microseconds on the store's; None as long as nothing was learned."""
        return None if self.offset is None else round(self.offset + at * 1e6)

    def _turn(self, now: float) -> None:
        """Begin the next window. What was learned before the last one counts no more."""
        self._before = inf
        if self._best[0] < inf and now < self.began + 2 * WINDOW_SECONDS:
            self._before, self.offset = self._best
        self._best = inf, 0.0
        self.began = now
