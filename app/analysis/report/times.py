"""What happened when: latency and outcomes over time, and every method in every hour."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median_low
from typing import Any, Final

from app.analysis.report.plots import (
    Key,
    Mark,
    PlotRow,
    RowPlot,
    Section,
    Step,
    Tick,
    TimePlot,
    Tip,
    band,
    box,
    duration_ticks,
    hour_ticks,
    linear_scale,
    log_scale,
    stairs,
)
from app.analysis.report.text import clean, count, day, duration, known, ratio, share

Row = dict[str, Any]
Rows = dict[str, list[Row]]

HOUR: Final = timedelta(hours=1)
MOST_STEPS: Final = 372
"""In a plot over time; a month has 744 hours."""
MOST_CELLS: Final = 56
MOST_METHODS: Final = 30
FEW: Final = 100
"""Of fewer answers a 99th percentile says little."""
FULL: Final = 4.0
"""So many times the usual has the full colour."""
_LINES: Final = (
    ("p999_us", "p99.9", "p999"),
    ("p99_us", "p99", "p99"),
    ("p90_us", "p90", "p90"),
    ("p50_us", "p50", "p50"),
)
_BANDS: Final = (("p99_us", "p999_us", 3), ("p90_us", "p99_us", 2), ("p50_us", "p90_us", 1))
_ENDINGS: Final = (
    ("failed", "failed: the device refused", "failed"),
    ("timed_out", "timed out: no answer by the deadline", "timed-out"),
    ("other", "cancelled or never sent", "other"),
)


@dataclass(frozen=True, slots=True)
class Axis:
    """The period in bins of whole hours."""

    begin: datetime
    end: datetime
    hours: int

    @classmethod
    def of(cls, rows: Sequence[Row], most: int) -> Axis | None:
        """From the first to the last hour with at most so many bins; None without any hour."""
        found = sorted({row["hour"] for row in rows})
        if not found:
            return None
        length = (found[-1] - found[0]) // HOUR + 1
        width = next((width for width in (1, 2, 3, 4, 6, 8, 12) if length <= width * most), 0)
        return cls(found[0], found[-1] + HOUR, width or 24 * -(-length // (24 * most)))

    def place(self, at: datetime) -> float:
        """Where an instant lies."""
        return min(1.0, max(0.0, (at - self.begin) / (self.end - self.begin)))

    def bins(self, rows: Iterable[Row]) -> dict[datetime, list[Row]]:
        """Begin of the bin -> what happened in it."""
        found: dict[datetime, list[Row]] = {}
        for row in sorted(rows, key=lambda row: row["hour"]):
            number = (row["hour"] - self.begin) // HOUR // self.hours
            found.setdefault(self.begin + number * self.hours * HOUR, []).append(row)
        return found

    def step(self, at: datetime, value: float, base: float = 0.0) -> Step:
        """A bin in a plot."""
        return Step(self.place(at), self.place(at + self.hours * HOUR), value, base)

    def tip(self, at: datetime, lines: Iterable[tuple[str, str]]) -> Tip:
        """What is shown of a bin."""
        left, right = self.place(at), self.place(at + self.hours * HOUR)
        return Tip(round(100 * left, 2), round(100 * (right - left), 2), f"{day(at)} {at:%H:%M}", tuple(lines))

    @property
    def width(self) -> str:
        """Of a bin, in words."""
        days, hours = divmod(self.hours, 24)
        return f"{days} days" if days else "an hour" if hours == 1 else f"{hours} hours"


def over_time(summary: Row, rows: Rows) -> Section:
    """Latency, and what did not succeed, on one time axis."""
    axis = Axis.of(rows["latency_by_hour"], MOST_STEPS)
    total = next(iter(rows["latency"]), {})
    lead = ""
    if known(total.get("p50_us")):
        lead = (
            f"Half of all answered commands took at most {duration(total['p50_us'])}, nine in ten at most "
            f"{duration(total['p90_us'])}; one in a hundred took longer than {duration(total['p99_us'])}, the slowest "
            f"{duration(total['max_us'])}."
        )
    bins = axis.bins(rows["latency_by_hour"]) if axis else {}
    return Section("time", "Over time", lead, (_latency(summary, axis, bins), _endings(axis, bins)))


def middle(values: Iterable[Any]) -> Any:  # noqa: ANN401 - a number or None
    """The lower median of the numbers among them."""
    numbers = [value for value in values if known(value)]
    return median_low(numbers) if numbers else None


def _latency(summary: Row, axis: Axis | None, bins: dict[datetime, list[Row]]) -> TimePlot:
    values = {at: {name: middle(row[name] for row in found) for name, _, _ in _LINES} for at, found in bins.items()}
    values = {at: row for at, row in values.items() if all(known(value) for value in row.values())}
    if axis is None or not values:
        return TimePlot("latency-over-time", "Latency", "latency_by_hour", empty="No command was answered.")
    scale = log_scale([value for row in values.values() for value in row.values()])
    flagged = [datetime.fromisoformat(str(one["since"])) for one in summary["anomalies"] if one["kind"] == "hour"]
    marks = [Mark("flagged", box(axis.place(at), 0, axis.place(at + HOUR), 1), "flagged") for at in flagged]
    for low, high, number in _BANDS:
        steps = (axis.step(at, scale(row[high]), scale(row[low])) for at, row in values.items())
        marks.append(Mark(f"band band-{number}", band(steps)))
    for name, _, css in _LINES:
        marks.append(Mark(f"line line-{css}", stairs(axis.step(at, scale(row[name])) for at, row in values.items())))
    several = "; each step shows the middle one of the percentiles of its hours" if axis.hours > 1 else ""
    return TimePlot(
        "latency-over-time",
        "Latency",
        "latency_by_hour",
        caption=f"Answered commands, in steps of {axis.width}, on a logarithmic scale{several}. Times are UTC.",
        alt=f"Percentiles of the latency in steps of {axis.width}.",
        marks=marks,
        x_ticks=hour_ticks(axis.begin, axis.end),
        y_ticks=duration_ticks(scale, upwards=True),
        tips=[axis.tip(at, ((text, duration(row[name])) for name, text, _ in _LINES)) for at, row in values.items()],
        keys=[
            *(Key(f"band band-{number}", text) for number, text in ((1, "p50 to p90"), (2, "to p99"), (3, "to p99.9"))),
            *([Key("flagged", "flagged hour")] if flagged else []),
        ],
    )


def _endings(axis: Axis | None, bins: dict[datetime, list[Row]]) -> TimePlot:
    """Shares of what did not succeed, one on the other."""
    title, table = "Outcomes other than success", "latency_by_hour"
    shares = {}
    for at, found in bins.items():
        commands = sum(row["commands"] for row in found)
        other = sum(row["cancelled"] + row["unsent"] for row in found)
        parts = (sum(row["failed"] for row in found), sum(row["timed_out"] for row in found), other)
        shares[at] = (commands, [part / commands for part in parts])
    # The share of a few timeouts after the last command would dwarf all others.
    enough = min(FEW, 0.05 * (middle(commands for commands, _ in shares.values()) or 0))
    shares = {at: one for at, one in shares.items() if one[0] >= enough}
    highest = max((sum(parts) for _, parts in shares.values()), default=0)
    if axis is None or highest == 0:
        return TimePlot("outcomes-over-time", title, table, empty="Every command in this period succeeded.")
    scale = linear_scale([highest])
    marks = []
    for place, (_, _, css) in enumerate(_ENDINGS):
        steps = (
            axis.step(at, scale(sum(parts[: place + 1])), scale(sum(parts[:place])))
            for at, (_, parts) in shares.items()
        )
        marks.append(Mark(f"area area-{css}", band(steps)))
    return TimePlot(
        "outcomes-over-time",
        title,
        table,
        caption=f"Shares of the commands in steps of {axis.width}, stacked.",
        alt=f"Shares of the outcomes other than success; together at most {share(highest)}.",
        marks=marks,
        x_ticks=hour_ticks(axis.begin, axis.end),
        y_ticks=[Tick(100 - 100 * scale(value), share(value, trim=True)) for value in scale.ticks()],
        tips=[
            axis.tip(at, [*zip((name for name, _, _ in _ENDINGS), map(share, parts), strict=True), ("of", count(n))])
            for at, (n, parts) in shares.items()
        ],
        keys=[Key(f"area area-{css}", text) for _, text, css in _ENDINGS],
    )


def heat_map(_summary: Row, rows: Rows) -> Section:
    """One strip per method; each cell is as dark as the hour was slow or fast for the method."""
    title, table = "Hours and methods", "latency_by_hour_method"
    found = [row for row in rows[table] if known(row["p50_us"]) and row["p50_us"] > 0]
    axis = Axis.of(found, MOST_CELLS)
    if axis is None:
        return Section("heat", title, blocks=(RowPlot("heat-map", title, table, empty="No command was answered."),))
    measure = "p99_us" if (middle(row["answered"] for row in found) or 0) >= FEW else "p50_us"
    methods: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        methods.setdefault((clean(row["profile"]), clean(row["method"])), []).append(row)
    busiest = sorted(methods, key=lambda name: -sum(row["answered"] for row in methods[name]))
    left_out = f" The {MOST_METHODS} busiest of {len(methods)} methods." if len(methods) > MOST_METHODS else ""
    named = {"p99_us": "99th percentile", "p50_us": "median"}[measure]
    block = RowPlot(
        "heat-map",
        f"The {named} by hour and method",
        table,
        caption=f"Against the usual one of the same method: the middle one of its cells.{left_out} Times are UTC.",
        alt=f"Heat map of {len(methods)} methods by hour.",
        rows=[_method(axis, name, methods[name], measure) for name in sorted(busiest[:MOST_METHODS])],
        heads=("Method", "Hour", "Usual"),
        ticks=hour_ticks(axis.begin, axis.end),
        keys=[Key("cool", "half", 50), Key("even", "usual"), Key("hot", "twice", 50), Key("hot", "four times", 100)],
    )
    return Section("heat", title, blocks=(block,))


def _method(axis: Axis, name: tuple[str, str], rows: list[Row], measure: str) -> PlotRow:
    slowest = {at: max(found, key=lambda row: row[measure]) for at, found in axis.bins(rows).items()}
    usual = middle(row[measure] for row in slowest.values()) or 1
    marks = []
    for at, row in slowest.items():
        times = max(row[measure], 1) / usual
        weight = round(100 * min(1.0, abs(math.log(times)) / math.log(FULL)))
        css = "even" if weight < 8 else "hot" if times > 1 else "cool"  # noqa: PLR2004 - not to be seen
        title = f"{day(at)} {at:%H:%M}: {duration(row[measure])}, {ratio(times)} the usual, {count(row['answered'])}"
        place = box(axis.place(at), 0.04, axis.place(at + axis.hours * HOUR), 0.96)
        marks.append(Mark(f"cell {css}", place, title, weight or None))
    return PlotRow(name[1], marks, duration(usual), note=name[0])
