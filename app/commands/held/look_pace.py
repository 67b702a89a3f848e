"""The pace at which a node looks at devices that come back together: it gives way to what else the node has to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.core.clock import Clock

TICK_SECONDS: Final = 0.25
"""The time between two judgements of whether the node keeps up."""
LATE_SECONDS: Final = 0.05
"""A loop that is so late has too much to do."""
HALF_TAKEN: Final = 0.5
"""The share of the window of publishes from which the broker has too much to do."""
GROWTH: Final = 0.1
"""The part of the highest rate that a second without such a sign gives back."""
LEAST_SHARE: Final = 1 / 16
"""The part of it that is left in any case: where others take the processor, looking less does not mend it."""
BURST_SECONDS: Final = 0.1
"""The time whose looks may be made at once, after nobody has looked."""


class LookPace:
    """At most `most` looks a second. `window` tells which share of the window of publishes is taken."""

    def __init__(self, clock: Clock, most: float, window: Callable[[], float]) -> None:
        self._now = clock.monotonic
        self._most: Final = most
        self._window = window
        self._saved = 1.0
        self._counted_at = clock.monotonic()
        self.rate = most
        """The looks a second that are allowed now."""

    def take(self) -> bool:
        """True if one may look now, which counts as done."""
        self._count()
        if self._saved < 1:
            return False
        self._saved -= 1
        return True

    def give_back(self) -> None:
        """Nobody was there to be looked at."""
        self._saved += 1

    @property
    def seconds_to_next(self) -> float:
        """The time until one may look."""
        self._count()
        return max(0.0, (1 - self._saved) / self.rate)

    def tended(self, late: float) -> None:
        """Judge by how late the loop was in the last tick, and by how much the broker has to confirm."""
        self._count()
        if late > LATE_SECONDS or self._window() > HALF_TAKEN:
            self.rate = max(self.rate / 2, self._most * LEAST_SHARE)
        else:
            self.rate = min(self._most, self.rate + self._most * GROWTH * TICK_SECONDS)

    def _count(self) -> None:
        now = self._now()
        self._saved = min(max(1.0, self.rate * BURST_SECONDS), self._saved + (now - self._counted_at) * self.rate)
        self._counted_at = now
