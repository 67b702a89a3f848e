"""The rate at which targets of a run get their turn: so many a second, minute or hour."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from app.core.clock import Clock
from app.core.errors import InvalidInputError
from app.core.fleets.fields import in_short

MOST_A_SECOND: Final = 2_000
_RATE: Final = re.compile(r"([1-9]\d{0,5})/([smh])", re.ASCII)
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class HandRate:
    """A rate as it was asked for, and what that is a second."""

    said: str
    a_second: float


def read_rate(value: object) -> HandRate:
    """The rate that a caller asks for; InvalidInputError."""
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found[1]) / _SECONDS[found[2]] > MOST_A_SECOND:
        raise InvalidInputError(
            "rate", f"{in_short(value)} is none; allowed: such as 100/s, 30/m or 200/h, up to {MOST_A_SECOND}/s"
        )
    return HandRate(found[0], int(found[1]) / _SECONDS[found[2]])


class HandAllowance:
    """The targets that may have their turn at a rate. Nothing is saved up beyond the targets of a second, or one.

    Whoever takes a run over begins with one target, so that a driver that dies again and again is no way around it.
    """

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._saved = 1.0
        self._counted_at = clock.monotonic()

    def room(self, rate: HandRate, most: int) -> int:
        """Return how many may have their turn now."""
        now = self._now()
        self._saved = min(max(1.0, rate.a_second), self._saved + (now - self._counted_at) * rate.a_second)
        self._counted_at = now
        return min(most, int(self._saved))

    def spend(self, count: int) -> None:
        """Note that so many have had it."""
        self._saved = max(0.0, self._saved - count)
