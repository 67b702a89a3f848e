"""The parts of a page, and the scales that place marks. Numbers only: the markup is in page.html.j2.

Marks are drawn in a square of 1000 × 1000 that the page stretches to the room there is; text is not in it, so that it
keeps its size. Positions are from 0 to 1; those of ticks, labels and tips in percent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from app.analysis.report.text import day, duration


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
    tips: Sequence[Tip] = ()
    keys: Sequence[Key] = ()
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
    kind: str = field(default="rows", init=False)


@dataclass(frozen=True, slots=True)
class DataTable(Block):
    """A table of texts; the first cell of a row is its head, and a cell may be a text and what stands small below."""

    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str | tuple[str, str]]] = ()
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    id: str
    title: str
    lead: str = ""
    blocks: Sequence[Block] = ()


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
        middle = math.sqrt(low * high)
        low, high = middle / 2, middle * 2
    return Scale(low / 1.15, high * 1.15, log=True)


def linear_scale(values: Iterable[float]) -> Scale:
    """From 0 to the next of 1, 1.5, 2, 3, 4, 5, 6, 8, 10 times a power of ten."""
    top = max(values, default=0.0) or 1.0
    power = 10.0 ** math.floor(math.log10(top))
    steps = (step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8))
    return Scale(0.0, next((step for step in steps if step >= top * 0.9999), 10 * power))


def duration_ticks(scale: Scale, *, upwards: bool) -> list[Tick]:
    """Ticks of an axis of microseconds; `upwards` when it is the vertical one."""
    places = [(100 * scale(value), duration(value, trim=True)) for value in scale.ticks()]
    return [Tick(round(100 - at if upwards else at, 2), text) for at, text in places]


_STEPS_H: Final = (1, 2, 3, 6, 12, 24, 48, 72, 168, 336, 672, 1344, 2688)
_MOST_TICKS: Final = 9


def hour_ticks(begin: datetime, end: datetime) -> list[Tick]:
    """Round hours and days between two instants; every other one is minor."""
    hours = (end - begin).total_seconds() / 3600
    step = next((step for step in _STEPS_H if hours / step <= _MOST_TICKS), _STEPS_H[-1])
    ticks: list[Tick] = []
    at = begin.replace(hour=0)
    while at <= end:
        if at >= begin:
            text = day(at) if at.hour == 0 else f"{at:%H:%M}"
            if not ticks and at.hour and at.date() == end.date():
                text = f"{day(at)} {text}"  # there will be no midnight
            where = round(100 * (at - begin).total_seconds() / 3600 / hours, 2) if hours else 0.0
            ticks.append(Tick(where, text, minor=len(ticks) % 2 == 1))
        at += timedelta(hours=step)
    return ticks


def points(value: float) -> str:
    """A coordinate, from 0 … 1."""
    return f"{value * 1000:.1f}".rstrip("0").rstrip(".")


def box(left: float, top: float, right: float, bottom: float) -> str:
    """The path of a rectangle."""
    return f"M{points(left)} {points(top)}H{points(right)}V{points(bottom)}H{points(left)}Z"


def dot(x: float) -> str:
    """A line without length: its round caps are the dot, and stay round however the square is stretched."""
    return f"M{points(x)} 500h0"


def rule(x0: float, x1: float) -> str:
    """A horizontal line."""
    return f"M{points(x0)} 500H{points(x1)}"


def upright(x: float) -> str:
    """A vertical line."""
    return f"M{points(x)} 100V900"


@dataclass(frozen=True, slots=True)
class Step:
    """Two values, y upwards, between which a band lies from one x to the next."""

    begin: float
    end: float
    value: float
    base: float = 0.0


def runs(steps: Iterable[Step]) -> list[list[Step]]:
    """Steps in order; where one does not go on from the one before, a new run begins."""
    found: list[list[Step]] = []
    for step in steps:
        if not found or abs(found[-1][-1].end - step.begin) > 1e-9:  # noqa: PLR2004 - rounding
            found.append([])
        found[-1].append(step)
    return found


def stairs(steps: Iterable[Step]) -> str:
    """The path of a line in steps."""
    parts = []
    for run in runs(steps):
        moves = [f"V{points(1 - step.value)}H{points(step.end)}" for step in run]
        parts.append(f"M{points(run[0].begin)} {points(1 - run[0].value)}{''.join(moves)}")
    return "".join(parts)


def band(steps: Iterable[Step]) -> str:
    """The path of the area between value and base of each step."""
    parts = []
    for run in runs(steps):
        there = "".join(f"V{points(1 - step.value)}H{points(step.end)}" for step in run)
        back = "".join(f"V{points(1 - step.base)}H{points(step.begin)}" for step in reversed(run))
        parts.append(f"M{points(run[0].begin)} {points(1 - run[0].base)}{there}{back}Z")
    return "".join(parts)
