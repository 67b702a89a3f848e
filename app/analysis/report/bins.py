"""The hours of the period, put together where there are more of them than a plot has room for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median_low
from typing import Any, Final

from app.analysis.report.data import Output, Row
from app.analysis.report.plots import Step
from app.analysis.report.text import instant, known

HOUR: Final = timedelta(hours=1)
_OUTCOMES: Final = ("commands", "answered", "succeeded", "failed", "timed_out", "cancelled", "unsent")
PERCENTILES: Final = ("p50_us", "p90_us", "p99_us", "p999_us", "max_us")


@dataclass(frozen=True, slots=True)
class Axis:
    """The period in bins of whole hours."""

    begin: datetime
    end: datetime
    hours: int
    """In one bin."""

    @property
    def bins(self) -> int:
        """How many; the last may reach over the end."""
        return max(1, -(-round((self.end - self.begin) / HOUR) // self.hours))

    def index(self, at: datetime) -> int:
        """Of the bin."""
        return int((at - self.begin) / HOUR) // self.hours

    def edge(self, index: int) -> float:
        """Where the bin begins, from 0 … 1."""
        return min(1.0, index * self.hours * HOUR / (self.end - self.begin))

    def instant(self, index: int) -> datetime:
        """When the bin begins."""
        return self.begin + index * self.hours * HOUR

    def place(self, at: datetime) -> float:
        """Where an instant lies, from 0 … 1."""
        return min(1.0, max(0.0, (at - self.begin) / (self.end - self.begin)))


def axis_of(output: Output, rows: Sequence[Row], most: int) -> Axis | None:
    """From the first to the last hour of the period with at most so many bins; None without any hour."""
    hours = [at for row in rows if (at := instant(row.get("hour")))]
    if not hours:
        return None
    period = output.section("period")
    begin = min([*hours, *([low] if (low := instant(period.get("from"))) else [])])
    end = max([max(hours) + HOUR, *([high] if (high := instant(period.get("to"))) else [])])
    begin = begin.replace(minute=0, second=0, microsecond=0)
    count = -int((begin - end) // HOUR)
    width = next((width for width in (1, 2, 3, 4, 6, 8, 12) if count <= width * most), 0)
    width = width or 24 * -(-count // (24 * most))
    return Axis(begin, begin + count * HOUR, width)


def binned(axis: Axis, rows: Iterable[Row]) -> dict[int, Row]:
    """Bin -> what happened in it. Counts are sums; a percentile is the middle one of those of the hours."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        if at := instant(row.get("hour")):
            found.setdefault(axis.index(at), []).append(row)
    return {index: _together(hours) for index, hours in sorted(found.items())}


def _together(hours: Sequence[Row]) -> Row:
    row: Row = {name: sum(hour.get(name) or 0 for hour in hours) for name in _OUTCOMES}
    for name in PERCENTILES:
        values = [hour[name] for hour in hours if known(hour.get(name))]
        row[name] = median_low(values) if values else None
    return row


def runs(axis: Axis, values: dict[int, tuple[float, float]]) -> list[list[Step]]:
    """Steps of bin -> (value, base), from 0 … 1; a bin without one ends a run."""
    found: list[list[Step]] = []
    last: int | None = None
    for index, (value, base) in sorted(values.items()):
        if last is None or index != last + 1:
            found.append([])
        found[-1].append(Step(axis.edge(index), axis.edge(index + 1), value, base))
        last = index
    return found


def middle(values: Iterable[Any]) -> float | None:
    """The lower median of the numbers among them."""
    numbers = [value for value in values if known(value)]
    return median_low(numbers) if numbers else None
