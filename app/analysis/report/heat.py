"""The heat map: every method in every hour, against what is usual for the method."""

from __future__ import annotations

import math
from typing import Final

from app.analysis.report.bins import Axis, axis_of, middle
from app.analysis.report.data import Output, Row
from app.analysis.report.plots import Key, Mark, PlotRow, RowPlot, Section, box, hour_ticks
from app.analysis.report.text import clean, count, day, duration, instant, known, ratio

MOST_COLUMNS: Final = 56
MOST_METHODS: Final = 40
FEW_FOR: Final = {"p99_us": 100, "p50_us": 10}
"""Of fewer answers the percentile says little."""
FULL: Final = 4.0
"""So many times the usual has the full colour."""

_QUERY: Final = "latency"
_TITLE: Final = "Hours and methods"
_MEASURES: Final = {"p99_us": "99th percentile", "p50_us": "median"}


def heat_map(output: Output) -> Section:
    """One strip per method; each cell is as dark as the hour was slow or fast for the method."""
    rows = [row for row in output.rows("latency", "hour_method") if known(row.get("p50_us"))]
    axis = axis_of(output, rows, MOST_COLUMNS)
    if axis is None:
        empty = RowPlot("heat-map", _TITLE, _QUERY, empty="No command was answered in this period.")
        return Section("methods-by-hour", _TITLE, blocks=(empty,))
    usual_size = middle(row.get("answered") for row in rows) or 0
    measure = "p99_us" if usual_size >= FEW_FOR["p99_us"] else "p50_us"
    rows = [row for row in rows if known(row.get(measure)) and row[measure] > 0]
    methods: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        methods.setdefault((clean(row.get("profile")), clean(row.get("method"))), []).append(row)
    busiest = sorted(methods, key=lambda name: -sum(row["answered"] or 0 for row in methods[name]))
    shown = sorted(busiest[:MOST_METHODS])
    name = _MEASURES[measure]
    left_out = f" The {MOST_METHODS} busiest of {len(methods)} methods." if len(methods) > MOST_METHODS else ""
    several = f"; {axis.hours} hours share a cell, which shows the slowest of them" if axis.hours > 1 else ""
    why = (
        ""
        if measure == "p99_us"
        else f" (most hours have under {FEW_FOR['p99_us']} answers, too few for a 99th percentile)"
    )
    block = RowPlot(
        "heat-map",
        f"{name[0].upper()}{name[1:]} by hour and method",
        _QUERY,
        caption=f"The {name} of each hour{why}, against the usual one of the same method: the middle one of its "
        f"cells{several}. Pale cells have few answers. Times are UTC.{left_out}",
        alt=f"Heat map of {len(shown)} methods by hour: how far the {name} of each hour is from the method's usual.",
        rows=[_method(axis, name, methods[name], measure) for name in shown],
        heads=("Method", "Hour", "Usual"),
        dense=True,
        ticks=hour_ticks(axis.begin, axis.end),
        keys=[
            Key("cool", "a quarter of the usual, or less", 100),
            Key("cool", "half", 50),
            Key("even", "usual"),
            Key("hot", "twice", 50),
            Key("hot", "four times, or more", 100),
        ],
    )
    return Section("methods-by-hour", _TITLE, blocks=(block,))


def _method(axis: Axis, name: tuple[str, str], rows: list[Row], measure: str) -> PlotRow:
    cells: dict[int, Row] = {}
    for row in rows:
        at = instant(row.get("hour"))
        if at is None:
            continue
        index = axis.index(at)
        if index not in cells or row[measure] > cells[index][measure]:
            cells[index] = row
    usual = middle(row[measure] for row in cells.values()) or 1
    marks = [_cell(axis, index, row, measure, usual) for index, row in sorted(cells.items())]
    return PlotRow(name[1], marks, duration(usual), note=name[0])


def _cell(axis: Axis, index: int, row: Row, measure: str, usual: float) -> Mark:
    times = row[measure] / usual
    weight = round(100 * min(1.0, abs(math.log(times)) / math.log(FULL)))
    css = "even" if weight < 8 else "hot" if times > 1 else "cool"  # noqa: PLR2004 - not to be seen
    answered = row.get("answered") or 0
    few = " few" if answered < FEW_FOR[measure] else ""
    at = instant(row.get("hour")) or axis.begin
    title = f"{day(at)} {at:%H:%M}: {duration(row[measure])}, {ratio(times)} the usual, {count(answered)} answers"
    return Mark(f"cell {css}{few}", box(axis.edge(index), 0.04, axis.edge(index + 1), 0.96), title, weight or None)
