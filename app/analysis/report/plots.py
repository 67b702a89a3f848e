"""The parts of a page, and the scales that place marks. Numbers only: the markup is in page.html.j2.

Marks are drawn in a square of 1000 × 1000 that the page stretches to the room there is; text is not in it, so that it
keeps its size. Positions are from 0 to 1; those of ticks and tips in percent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.analysis.lake import Row
from app.analysis.report.text import day, duration

HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Mark:
    """A path with a class of the style sheet, or without one an entry of the legend; `weight` (%) is of its colour."""

    css: str
    path: str = ""
    title: str = ""
    weight: int | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid with its label."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Tip:
    """What is shown when a column of the plot is pointed at or touched."""

    left: float
    width: float
    head: str
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PlotRow:
    """One strip: what it is about, its marks, and its value in words."""

    label: str
    marks: Sequence[Mark]
    value: str
    detail: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A plot over time (`time`), or strips of marks on one axis with their values (`rows`).

    `empty` says in a sentence why there is nothing to show.
    """

    kind: str
    id: str
    title: str
    query: str
    caption: str = ""
    alt: str = ""
    empty: str = ""
    marks: Sequence[Mark] = ()
    keys: Sequence[Mark] = ()
    x_ticks: Sequence[Tick] = ()
    y_ticks: Sequence[Tick] = ()
    tips: Sequence[Tip] = ()
    heads: Sequence[str] = ()
    rows: Sequence[PlotRow] = ()


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to 0 … 1; what is outside lies on the edge."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Where the value lies."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return 0.0 if high <= low else min(1.0, max(0.0, (value - low) / (high - low)))

    def ticks(self) -> list[float]:
        """Round values: of a logarithmic scale 1, 2, 5 when they are few, else powers of ten."""
        if not self.log:
            return [self.high * part / 2 for part in range(3)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found: list[float] = []
        for steps in ((1, 2, 5), (1, 3), (1,)):
            values = (step * 10.0**power for power in powers for step in steps)
            found = [value for value in values if self.low <= value <= self.high]
            if len(found) <= 6:  # noqa: PLR2004 - more would be crowded
                return found
        return found[:: -(-len(found) // 6)]


def log_scale(values: Iterable[float]) -> Scale:
    """A logarithmic scale with a little room on both sides."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive), max(positive)
    if high / low < 4:  # noqa: PLR2004 - else there would be one tick or none
        low, high = math.sqrt(low * high) / 2, math.sqrt(low * high) * 2
    return Scale(low / 1.15, high * 1.15, log=True)


def linear_scale(values: Iterable[float]) -> Scale:
    """From 0 to the next round number."""
    top = max(values, default=0.0) or 1.0
    power = 10.0 ** math.floor(math.log10(top))
    return Scale(0.0, next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= top * 0.9999))


def duration_ticks(scale: Scale, *, upwards: bool = False) -> list[Tick]:
    """Ticks of an axis of microseconds; `upwards` when it is the vertical one."""
    places = [(100 * scale(value), duration(value, trim=True)) for value in scale.ticks()]
    return [Tick(round(100 - at if upwards else at, 2), text) for at, text in places]


_STEPS_H: Final = (1, 2, 3, 6, 12, 24, 48, 72, 168, 336, 672, 1344, 2688)


def hour_ticks(begin: datetime, end: datetime) -> list[Tick]:
    """At most five round hours and days between two instants."""
    hours = (end - begin) / timedelta(hours=1)
    step = next((step for step in _STEPS_H if hours / step <= 5), _STEPS_H[-1])  # noqa: PLR2004 - a phone is narrow
    ticks: list[Tick] = []
    at = begin.replace(hour=0)
    while at <= end:
        if at >= begin:
            text = f"{at:%H:%M}" if at.hour else day(at)
            text = f"{day(at)} {text}" if at.hour and not ticks and at.date() == end.date() else text  # no midnight
            ticks.append(Tick(round(100 * ((at - begin) / (end - begin)), 2), text))
        at += timedelta(hours=step)
    return ticks


def points(value: float) -> str:
    """A coordinate, from 0 … 1."""
    return f"{value * 1000:.1f}".rstrip("0").rstrip(".")


def box(left: float, top: float, right: float, bottom: float) -> str:
    """The path of a rectangle."""
    return f"M{points(left)} {points(top)}H{points(right)}V{points(bottom)}H{points(left)}Z"


def interval(low: float, high: float, value: float) -> list[Mark]:
    """A line, and a dot on it: one without length, whose round caps stay round however the square is stretched."""
    return [Mark("interval", f"M{points(low)} 500H{points(high)}"), Mark("dot", f"M{points(value)} 500h0")]


@dataclass(frozen=True, slots=True)
class Step:
    """Two values, y upwards, between which a band lies from one x to the next."""

    begin: float
    end: float
    value: float
    base: float = 0.0


def band(steps: Iterable[Step], *, line: bool = False) -> str:
    """The path of the area between value and base of each step, or of the line of values; gaps stay gaps."""
    runs: list[list[Step]] = []
    for step in steps:
        if not runs or abs(runs[-1][-1].end - step.begin) > 1e-9:  # noqa: PLR2004 - rounding
            runs.append([])
        runs[-1].append(step)
    parts = []
    for run in runs:
        there = "".join(f"V{points(1 - step.value)}H{points(step.end)}" for step in run)
        back = "".join(f"V{points(1 - step.base)}H{points(step.begin)}" for step in reversed(run))
        begin = run[0].value if line else run[0].base
        parts.append(f"M{points(run[0].begin)} {points(1 - begin)}{there}{'' if line else f'{back}Z'}")
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class Axis:
    """The period in bins of whole hours."""

    begin: datetime
    end: datetime
    hours: int

    @classmethod
    def of(cls, rows: Sequence[Row], most: int) -> Axis | None:
        """From the first to the last hour with at most so many bins; None without any hour."""
        if not rows:
            return None
        first, last = min(row["hour"] for row in rows), max(row["hour"] for row in rows)
        length = (last - first) // HOUR + 1
        width = next((width for width in (1, 2, 3, 4, 6, 8, 12) if length <= width * most), 0)
        return cls(first, last + HOUR, width or 24 * -(-length // (24 * most)))

    def place(self, at: datetime, bins: int = 0) -> float:
        """Where an instant lies, or so many bins after it."""
        return min(1.0, max(0.0, (at + bins * self.hours * HOUR - self.begin) / (self.end - self.begin)))

    def bins(self, rows: Iterable[Row]) -> dict[datetime, list[Row]]:
        """Begin of the bin -> what happened in it."""
        found: dict[datetime, list[Row]] = {}
        for row in sorted(rows, key=lambda row: row["hour"]):
            number = (row["hour"] - self.begin) // HOUR // self.hours
            found.setdefault(self.begin + number * self.hours * HOUR, []).append(row)
        return found

    def step(self, at: datetime, value: float, base: float = 0.0) -> Step:
        """A bin in a plot."""
        return Step(self.place(at), self.place(at, 1), value, base)

    def tip(self, at: datetime, lines: Iterable[tuple[str, str]]) -> Tip:
        """What is shown of a bin."""
        left, right = self.place(at), self.place(at, 1)
        return Tip(round(100 * left, 2), round(100 * (right - left), 2), f"{day(at)} {at:%H:%M}", tuple(lines))

    @property
    def width(self) -> str:
        """Of a bin, in words."""
        days, hours = divmod(self.hours, 24)
        return f"{days} days" if days else "an hour" if hours == 1 else f"{hours} hours"
