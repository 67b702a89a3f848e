"""The parts of a plot, and the scales that place them. Numbers only: the markup is in macros.html.j2.

Marks are drawn in a square of 1000 × 1000 that the page stretches to the room there is; text is not in it, so that it
keeps its size. Positions of ticks, labels and tips are in percent of the square.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from app.analysis.report.text import day, duration

SIDE: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Mark:
    """A path with a class of the style sheet; `weight` in percent is how much of its colour it has."""

    css: str
    path: str
    title: str = ""
    weight: int | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid with its label. Minor ones go first where there is little room."""

    at: float
    text: str
    minor: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """The name of a line, at its end."""

    at: float
    text: str
    css: str


@dataclass(frozen=True, slots=True)
class Tip:
    """What is shown when a column of the plot is pointed at or touched."""

    left: float
    width: float
    head: str
    lines: tuple[tuple[str, str], ...]

    @property
    def side(self) -> str:
        """Where the text goes, so that it stays inside."""
        return "before" if self.left + self.width / 2 > 50 else "after"  # noqa: PLR2004 - the middle


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of the legend."""

    css: str
    text: str
    weight: int | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a sentence, and the anchor of the query that made it."""

    text: str
    query: str


Sentence = tuple[str | Number, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """What all blocks of a section have; `empty` says in a sentence why there is nothing to show."""

    id: str
    title: str
    query: str
    caption: str = ""
    alt: str = ""
    empty: str = ""


@dataclass(frozen=True, slots=True)
class TimePlot(Block):
    """Something over time."""

    marks: Sequence[Mark] = ()
    x_ticks: Sequence[Tick] = ()
    y_ticks: Sequence[Tick] = ()
    ends: Sequence[End] = ()
    tips: Sequence[Tip] = ()
    keys: Sequence[Key] = ()
    low: bool = False
    numbers: DataTable | None = None
    kind: str = field(default="time", init=False)


@dataclass(frozen=True, slots=True)
class PlotRow:
    """One row of a RowPlot: what it is about, its marks, and its value in words."""

    label: str
    marks: Sequence[Mark]
    value: str
    detail: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class RowPlot(Block):
    """One strip of marks per row on a common axis, with the values beside: a plot and a table in one."""

    rows: Sequence[PlotRow] = ()
    heads: tuple[str, str, str] = ("", "", "")
    ticks: Sequence[Tick] = ()
    keys: Sequence[Key] = ()
    dense: bool = False
    kind: str = field(default="rows", init=False)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table or matrix; `weight` in percent colours it."""

    text: str
    detail: str = ""
    weight: int | None = None
    css: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column; numbers are set flush right."""

    text: str
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class DataTable(Block):
    """A table; the first cell of a row is its head."""

    heads: Sequence[Head] = ()
    rows: Sequence[Sequence[Cell]] = ()
    matrix: bool = False
    keys: Sequence[Key] = ()
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    id: str
    title: str
    lead: Sequence[Sentence] = ()
    blocks: Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to 0 … 1."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Where the value lies; what is outside lies on the edge."""
        low, high, value = (self.low, self.high, value) if not self.log else self._logs(value)
        return 0.0 if high <= low else min(1.0, max(0.0, (value - low) / (high - low)))

    def _logs(self, value: float) -> tuple[float, float, float]:
        return math.log(self.low), math.log(self.high), math.log(max(value, self.low))

    def percent(self, value: float) -> float:
        """Where the value lies, in percent."""
        return round(100 * self(value), 2)


def log_scale(values: Iterable[float]) -> Scale:
    """A logarithmic scale with a little room on both sides."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive), max(positive)
    if high / low < 4:  # noqa: PLR2004 - else there would be one tick or none
        middle = math.sqrt(low * high)
        low, high = middle / 2, middle * 2
    return Scale(low / 1.15, high * 1.15, log=True)


def linear_scale(values: Iterable[float], least: float = 0.0) -> Scale:
    """From 0 to the next round number."""
    top = max([*values, least], default=0.0) or 1.0
    return Scale(0.0, ceiling(top))


def ceiling(value: float) -> float:
    """The next of 1, 1.5, 2, 3, 4, 5, 6, 8, 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8) if step * power >= value * 0.9999), 10 * power)


def log_values(scale: Scale) -> list[float]:
    """Round values on a logarithmic scale: 1, 2, 5 when they are few, else powers of ten."""
    powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    found: list[float] = []
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [
            step * 10.0**power for power in powers for step in steps if scale.low <= step * 10.0**power <= scale.high
        ]
        if len(found) <= 6:  # noqa: PLR2004 - more would be crowded
            return found
    return found[:: -(-len(found) // 6)]


def duration_ticks(scale: Scale, *, upwards: bool = True) -> list[Tick]:
    """Ticks of a logarithmic axis of microseconds; `upwards` when it is the vertical one."""
    return [
        Tick(round(100 - scale.percent(value), 2) if upwards else scale.percent(value), duration(value, trim=True))
        for value in log_values(scale)
    ]


_STEPS_H: Final = (1, 2, 3, 6, 12, 24, 48, 72, 168, 336, 672, 1344, 2688)
_MOST_TICKS: Final = 9


def hour_ticks(begin: datetime, end: datetime) -> list[Tick]:
    """Round hours and days between two instants; every other one is minor."""
    hours = (end - begin).total_seconds() / 3600
    step = next((step for step in _STEPS_H if hours / step <= _MOST_TICKS), _STEPS_H[-1])
    origin = datetime(begin.year, begin.month, begin.day, tzinfo=UTC)
    ticks: list[Tick] = []
    at, index = origin, 0
    while at <= end:
        if at >= begin:
            where = round(100 * (at - begin).total_seconds() / 3600 / hours, 2) if hours else 0.0
            text = day(at) if at.hour == 0 else f"{at:%H:%M}"
            if not ticks and at.hour and at.date() == end.date():
                text = f"{day(at)} {text}"  # there will be no midnight
            ticks.append(Tick(where, text, minor=bool(ticks) and index % 2 == 1))
        at, index = at + timedelta(hours=step), index + 1
    return ticks


def points(value: float) -> str:
    """A coordinate, from 0 … 1."""
    return f"{value * SIDE:.1f}".rstrip("0").rstrip(".")


def box(left: float, top: float, right: float, bottom: float) -> str:
    """The path of a rectangle, from 0 … 1."""
    return f"M{points(left)} {points(top)}H{points(right)}V{points(bottom)}H{points(left)}Z"


def dot(x: float, y: float = 0.5) -> str:
    """A line without length: its round caps are the dot, and stay round however the square is stretched."""
    return f"M{points(x)} {points(y)}h0"


def rule(x0: float, x1: float, y: float = 0.5) -> str:
    """A horizontal line."""
    return f"M{points(x0)} {points(y)}H{points(x1)}"


def upright(x: float, top: float = 0.0, bottom: float = 1.0) -> str:
    """A vertical line."""
    return f"M{points(x)} {points(top)}V{points(bottom)}"


@dataclass(frozen=True, slots=True)
class Step:
    """A value, or two between which a band lies, that holds from one x to the next; all from 0 … 1, y upwards."""

    begin: float
    end: float
    value: float
    base: float = 0.0


def stairs(runs: Iterable[Sequence[Step]]) -> str:
    """The path of a line in steps; each run is without gaps."""
    parts = []
    for run in runs:
        moves = [f"V{points(1 - step.value)}H{points(step.end)}" for step in run]
        parts.append(f"M{points(run[0].begin)} {points(1 - run[0].value)}{''.join(moves)}")
    return "".join(parts)


def band(runs: Iterable[Sequence[Step]]) -> str:
    """The path of the area between value and base of each step."""
    parts = []
    for run in runs:
        there = "".join(f"V{points(1 - step.value)}H{points(step.end)}" for step in run)
        back = "".join(f"V{points(1 - step.base)}H{points(step.begin)}" for step in reversed(run))
        parts.append(f"M{points(run[0].begin)} {points(1 - run[0].base)}{there}{back}Z")
    return "".join(parts)


def apart(ends: Sequence[End], gap: float) -> list[End]:
    """Names at the ends of lines, moved so that none covers another."""
    placed: list[End] = []
    for end in sorted(ends, key=lambda one: one.at):
        at = max(end.at, placed[-1].at + gap) if placed else end.at
        placed.append(End(round(at, 2), end.text, end.css))
    over = max(0.0, placed[-1].at - 100) if placed else 0.0
    return [End(round(end.at - over, 2), end.text, end.css) for end in placed]
