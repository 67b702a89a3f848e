"""Learned deadlines: what timeout each method, and each group of devices within it, should have; see tables.sql.

How long a command takes is from its registration to its response on record, both store time: what its deadline is
compared with. A command that timed out is censored at its deadline; when its response came late, the late record tells
how long it really took, and it counts with that. One that was never answered has no such time at all: it is left out of
the quantile and counted beside it, as no timeout, however long, would have helped it.

The timeout of a method is the quantile of these times, plus a margin. That of a group of devices is drawn towards its
method's on the scale of logarithms: `ln q = z ln q(group) + (1 - z) ln q(method)`, with Bühlmann's credibility weight
z = n / (n + k) ("Experience Rating and Credibility", ASTIN Bulletin 4, 1967). k is the number of records of which
TAIL_FOR_HALF are expected beyond the quantile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Final

from app.core.errors import ConfigurationError

TAIL_FOR_HALF: Final = 10
"""Records expected beyond a group's quantile with which the group counts half."""
MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class DeadlineOptions:
    """How timeouts are learned."""

    quantile: float = 0.999
    margin: float = 0.25
    """What is added to the quantile, as a share of it."""
    shortest: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(hours=1)
    held_out: float = 0.2
    """Share of the hours, the latest, on which the back-test judges what was learned from the others."""

    def as_json(self) -> dict[str, float]:
        """For summary.json, and for tables.sql; durations in microseconds."""
        micro = timedelta(microseconds=1)
        return {
            "quantile": self.quantile,
            "margin": self.margin,
            # Responses that a method or group must have: with fewer the quantile would be the longest time seen.
            "least_responses": math.ceil(round(1 / (1 - self.quantile), 6)),
            "half": TAIL_FOR_HALF / (1 - self.quantile),
            "shortest_us": self.shortest // micro,
            "longest_us": self.longest // micro,
            "held_out": self.held_out,
        }

    def check(self) -> None:
        """ConfigurationError names the option that is wrong and what is allowed."""
        for name, value, low, high in (
            ("--timeout-quantile", self.quantile, 0.5, 0.99999),
            ("--timeout-margin", self.margin, 0.0, 10.0),
            ("--held-out", self.held_out, 0.0, 0.9),
        ):
            if not low <= value <= high:
                raise ConfigurationError(f"{name} is {value:g}; allowed: {low:g} to {high:g}")
        if not timedelta(milliseconds=1) <= self.shortest <= self.longest <= timedelta(days=30):
            raise ConfigurationError("--timeout-min, --timeout-max: allowed: 1ms to 720h, in this order")


def cut_of(first: datetime, last: datetime, held_out: float) -> datetime:
    """Where the held-out hours begin: `first` and `last` are the begins of the first and last hour of the log."""
    hours = round((last - first) / timedelta(hours=1)) + 1
    kept_back = min(hours - 1, max(1, round(hours * held_out))) if held_out else 0
    return first + timedelta(hours=hours - kept_back)


class End(IntEnum):
    """How a command ended, as far as its time is concerned."""

    ANSWERED = 0
    LATE = 1
    """Timed out; the response came after all."""
    NEVER = 2
    """Timed out; no response on record. `bucket` and `sum_us` of the cell are null and 0."""
    CANCELLED = 3
    """Cancelled; the response came after all. Tells how long it took, but not how long anybody would have waited."""
