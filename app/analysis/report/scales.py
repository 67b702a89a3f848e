"""The scales of plots: values and times as places between 0 and 1, and the round ones that are written beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from app.analysis.lake import Row
from app.analysis.report.text import count, day

HOUR: Final = timedelta(hours=1)
MOST_TAIL: Final = 0.75
"""A tail is cut off when it leaves no more of the time than this share."""
Ticks = Sequence[tuple[float, str]]


class Scale(NamedTuple):
    """Maps values to 0 … 1; a value outside lies on the edge."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of the value, between 0 and 1."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def ticks(self, show: Callable[..., str]) -> Ticks:
        """At most six round values: of a logarithmic scale 1, 2, 5 when they are few, else powers of ten of one."""
        values = [0.0, self.high / 2, self.high]
        if self.log:
            found = [step * 10.0**power for power in range(-2, 15) for step in (1, 2, 5)]
            found = [value for value in found if self.low <= value <= self.high]
            values = next(found[::every] for every in (1, 3, 6, 9, 12) if len(found[::every]) <= 6)  # noqa: PLR2004
        return [(round(100 * self(value), 2), show(value, trim=True)) for value in values]


def log_scale(values: Iterable[float]) -> Scale:
    """A logarithmic scale with a little room on both sides, and with two ticks at least."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive), max(positive)
    middle = math.sqrt(low * high)
    return Scale(min(low, middle / 2) / 1.15, max(high, middle * 2) * 1.15, log=True)


def linear_scale(values: Iterable[float]) -> Scale:
    """Reaches from 0 to the next round number."""
    top = max(values, default=0.0) or 1.0
    power = 10.0 ** math.floor(math.log10(top))
    return Scale(0.0, next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= top * 0.9999))


def _step(hours: float, most: int) -> int:
    """Whole hours that divide a day, or whole days, of which there are at most so many."""
    return next((step for step in (1, 2, 3, 4, 6, 8, 12) if hours <= step * most), 24 * math.ceil(hours / 24 / most))


def _without_tails(counts: Sequence[tuple[datetime, int]]) -> Sequence[tuple[datetime, int]]:
    """Hours and their commands without those at both ends that have a thousandth of the commands at most."""
    least, upto = sum(n for _, n in counts) / 1000, [0, *accumulate(n for _, n in counts)]
    kept = [at for at, past in enumerate(pairwise(upto)) if past[1] > least and past[0] < upto[-1] - least]
    return counts[kept[0] : kept[-1] + 1] if kept else counts


class Axis(NamedTuple):
    """The period in bins of whole hours; so many commands are outside."""

    begin: datetime
    end: datetime
    hours: int
    outside: int = 0

    @classmethod
    def of(cls, rows: Sequence[Row], most: int) -> Axis:
        """Reaches from the first to the last hour with at most so many bins, but for a long tail of few commands."""
        counts = sorted((row["hour"], row["commands"]) for row in rows) or [(datetime(1970, 1, 1, tzinfo=UTC), 0)]
        within = _without_tails(counts)
        if (within[-1][0] - within[0][0] + HOUR) > MOST_TAIL * (counts[-1][0] - counts[0][0] + HOUR):
            within = counts
        outside = sum(n for _, n in counts) - sum(n for _, n in within)
        begin, end = within[0][0], within[-1][0] + HOUR
        return cls(begin, end, _step((end - begin) / HOUR, most), outside)

    @property
    def note(self) -> str:
        """A note about what the scale does not show, in words."""
        return f"Commands before or after it, which are not drawn: {count(self.outside)}." if self.outside else ""

    def place(self, at: datetime, bins: int = 0) -> float:
        """The place of an instant, or of so many bins after it, between 0 and 1."""
        return min(1.0, max(0.0, (at + bins * self.hours * HOUR - self.begin) / (self.end - self.begin)))

    def bins(self, rows: Iterable[Row]) -> dict[datetime, list[Row]]:
        """Begin of the bin -> what happened in it."""
        found: dict[datetime, list[Row]] = {}
        for row in sorted((row for row in rows if self.begin <= row["hour"] < self.end), key=lambda row: row["hour"]):
            number = (row["hour"] - self.begin) // HOUR // self.hours
            found.setdefault(self.begin + number * self.hours * HOUR, []).append(row)
        return found

    def ticks(self) -> Ticks:
        """At most five round hours and days, as a phone is narrow."""
        first, step = self.begin.replace(hour=0), _step((self.end - self.begin) / HOUR, 5)
        places = [first + number * HOUR for number in range(0, (self.end - first) // HOUR + 1, step)]
        places = [at for at in places if at >= self.begin]
        texts = [f"{at:%H:%M}" if at.hour else day(at) for at in places]
        return [(round(100 * self.place(at), 2), text) for at, text in zip(places, texts, strict=True)]
