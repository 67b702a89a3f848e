"""What happened when: latency, outcomes and load over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.analysis.report.bins import HOUR, PERCENTILES, Axis, axis_of, binned, middle, runs
from app.analysis.report.data import Output, Row
from app.analysis.report.plots import (
    Cell,
    DataTable,
    End,
    Head,
    Key,
    Mark,
    Number,
    Section,
    Tick,
    TimePlot,
    Tip,
    apart,
    band,
    box,
    duration_ticks,
    hour_ticks,
    linear_scale,
    log_scale,
    stairs,
)
from app.analysis.report.text import count, day, duration, instant, known, minute, share

MOST_STEPS: Final = 372
"""In a plot over time; a month has 744 hours."""
MOST_NUMBERS: Final = 400
"""Rows of the table behind it."""

FEW: Final = 100
FEW_SHARE: Final = 0.05
"""Of the usual number of commands. The share of a few timeouts after the last command would dwarf all others."""

_QUERY: Final = "latency"
_LINES: Final = (("p50_us", "p50"), ("p90_us", "p90"), ("p99_us", "p99"), ("p999_us", "p999"))
_NAMES: Final = {"p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9"}
_BANDS: Final = (
    ("p99_us", "p999_us", "band band-3"),
    ("p90_us", "p99_us", "band band-2"),
    ("p50_us", "p90_us", "band band-1"),
)
_ENDINGS: Final = (
    ("failed", "failed: the device refused", "failed"),
    ("timed_out", "timed out: no answer by the deadline", "timed-out"),
    ("other", "cancelled or never sent", "other"),
)


def over_time(output: Output) -> Section:
    """Latency, what did not succeed, and load, on one time axis."""
    rows = output.rows("latency", "hour")
    axis = axis_of(output, rows, MOST_STEPS)
    bins = binned(axis, rows) if axis else {}
    total = next(iter(output.rows("latency", "all")), {})
    lead: list[tuple[str | Number, ...]] = []
    if known(total.get("p50_us")):
        lead.append(
            (
                "Half of all answered commands took at most ",
                Number(duration(total["p50_us"]), _QUERY),
                ", nine in ten at most ",
                Number(duration(total.get("p90_us")), _QUERY),
                "; one in a hundred took longer than ",
                Number(duration(total.get("p99_us")), _QUERY),
                ", the slowest ",
                Number(duration(total.get("max_us")), _QUERY),
                ".",
            )
        )
    blocks = (_latency(output, axis, bins), _endings(axis, bins), _load(axis, bins))
    return Section("time", "Over time", lead, blocks)


def _width(axis: Axis) -> str:
    return "an hour" if axis.hours == 1 else f"{axis.hours} hours" if axis.hours < 24 else f"{axis.hours // 24} days"  # noqa: PLR2004


def _when(axis: Axis, index: int) -> str:
    at = axis.instant(index)
    return f"{day(at)} {at:%H:%M}"


def _latency(output: Output, axis: Axis | None, bins: dict[int, Row]) -> TimePlot:
    answered = {index: row for index, row in bins.items() if all(known(row[name]) for name, _ in _LINES)}
    if axis is None or not answered:
        return TimePlot("latency-over-time", "Latency", _QUERY, empty="No command was answered in this period.")
    scale = log_scale([row[name] for row in answered.values() for name, _ in _LINES])
    flagged = _flagged(output, axis)
    bands = [
        Mark(css, band(runs(axis, {index: (scale(row[high]), scale(row[low])) for index, row in answered.items()})))
        for low, high, css in _BANDS
    ]
    lines = [
        Mark(
            f"line line-{css}", stairs(runs(axis, {index: (scale(row[name]), 0.0) for index, row in answered.items()}))
        )
        for name, css in _LINES
    ]
    last = answered[max(answered)]
    ends = [End(100 - scale.percent(last[name]), _NAMES[css], f"end-{css}") for name, css in _LINES]
    keys = [Key("band band-1", "p50 to p90"), Key("band band-2", "p90 to p99"), Key("band band-3", "p99 to p99.9")]
    tails = [row["p99_us"] for row in answered.values()]
    return TimePlot(
        "latency-over-time",
        "Latency",
        _QUERY,
        caption=f"Answered commands, in steps of {_width(axis)}, on a logarithmic scale. {_combined(axis)}"
        "Times are UTC.",
        alt=f"Percentiles of the latency in steps of {_width(axis)}. The 99th percentile lies between "
        f"{duration(min(tails))} and {duration(max(tails))}.",
        marks=[*flagged, *bands, *lines],
        x_ticks=hour_ticks(axis.begin, axis.end),
        y_ticks=duration_ticks(scale),
        ends=apart(ends, 7.5),
        tips=_tips(axis, answered, _latency_lines),
        keys=[*keys, Key("flagged", "flagged hour")] if flagged else keys,
        numbers=_numbers(axis, bins),
    )


def _combined(axis: Axis) -> str:
    return "" if axis.hours == 1 else "Each step shows the middle one of the percentiles of its hours. "


def _flagged(output: Output, axis: Axis) -> list[Mark]:
    hours = [instant(row.get("since")) for row in output.listed("anomalies") if row.get("kind") == "hour"]
    return [
        Mark("flagged", box(axis.place(at), 0, axis.place(at + HOUR), 1), f"flagged: {minute(at)} UTC")
        for at in sorted({at for at in hours if at and axis.begin <= at < axis.end})
    ]


def _latency_lines(row: Row) -> tuple[tuple[str, str], ...]:
    lines = [(_NAMES[css], duration(row[name])) for name, css in reversed(_LINES)]
    return (*lines, ("answered", count(row["answered"])))


def _tips(axis: Axis, bins: dict[int, Row], lines: Callable[[Row], tuple[tuple[str, str], ...]]) -> list[Tip]:
    tips = []
    for index, row in bins.items():
        left, right = axis.edge(index), axis.edge(index + 1)
        tips.append(Tip(round(100 * left, 2), round(100 * (right - left), 2), _when(axis, index), lines(row)))
    return tips


def _numbers(axis: Axis, bins: dict[int, Row]) -> DataTable:
    heads = [Head("Begin, UTC", numeric=False), Head("commands"), *(Head(_NAMES[css]) for _, css in _LINES)]
    heads += [Head("max"), Head("failed"), Head("timed out"), Head("other")]
    rows = []
    for index, row in list(bins.items())[-MOST_NUMBERS:]:
        times = [Cell(duration(row[name])) for name in PERCENTILES]
        parts = [Cell(share(_part(row, name))) for name, _, _ in _ENDINGS]
        rows.append([Cell(minute(axis.instant(index))), Cell(count(row["commands"])), *times, *parts])
    return DataTable("numbers-over-time", "The numbers", _QUERY, heads=heads, rows=rows)


def _part(row: Row, name: str) -> float:
    amount = row["cancelled"] + row["unsent"] if name == "other" else row[name]
    return float(amount / row["commands"]) if row["commands"] else 0.0


def _endings(axis: Axis | None, bins: dict[int, Row]) -> TimePlot:
    """Shares of what did not succeed, one on the other."""
    title = "Outcomes other than success"
    enough = min(FEW, FEW_SHARE * (middle(row["commands"] for row in bins.values()) or 0))
    shares = {
        index: [_part(row, name) for name, _, _ in _ENDINGS]
        for index, row in bins.items()
        if row["commands"] and row["commands"] >= enough
    }
    left_out = f" Steps with under {enough:.0f} commands are left out." if len(shares) < len(bins) else ""
    if axis is None or not shares:
        return TimePlot("outcomes-over-time", title, _QUERY, empty="There are no commands in this period.")
    highest = max(sum(parts) for parts in shares.values())
    if highest == 0:
        return TimePlot("outcomes-over-time", title, _QUERY, empty="Every command in this period succeeded.")
    scale = linear_scale([highest])
    marks = []
    for position, (_, _, css) in enumerate(_ENDINGS):
        levels = {index: (sum(parts[: position + 1]), sum(parts[:position])) for index, parts in shares.items()}
        steps = runs(axis, {index: (scale(top), scale(base)) for index, (top, base) in levels.items()})
        if any(top > base for top, base in levels.values()):
            marks.append(Mark(f"area area-{css}", band(steps)))
    total = {index: bins[index] for index in shares}
    return TimePlot(
        "outcomes-over-time",
        title,
        _QUERY,
        caption=f"Shares of the commands in steps of {_width(axis)}, stacked.{left_out}",
        alt=f"Shares of the outcomes other than success in steps of {_width(axis)}; together at most {share(highest)}.",
        marks=marks,
        x_ticks=hour_ticks(axis.begin, axis.end),
        y_ticks=[Tick(100 - 50 * part, share(scale.high * part / 2, trim=True)) for part in range(3)],
        tips=_tips(axis, total, _ending_lines),
        keys=[Key(f"area area-{css}", text) for _, text, css in _ENDINGS],
        low=True,
    )


def _ending_lines(row: Row) -> tuple[tuple[str, str], ...]:
    lines = [(text.partition(":")[0], share(_part(row, name))) for name, text, _ in reversed(_ENDINGS)]
    return (*lines, ("commands", count(row["commands"])))


def _load(axis: Axis | None, bins: dict[int, Row]) -> TimePlot:
    if axis is None or not bins:
        return TimePlot("load-over-time", "Load", _QUERY, empty="There are no commands in this period.")
    scale = linear_scale([row["commands"] for row in bins.values()])
    steps = runs(axis, {index: (scale(row["commands"]), 0.0) for index, row in bins.items()})
    return TimePlot(
        "load-over-time",
        "Load",
        _QUERY,
        caption=f"Commands that had their outcome, in steps of {_width(axis)}.",
        alt=f"Commands in steps of {_width(axis)}: {count(min(row['commands'] for row in bins.values()))} to "
        f"{count(max(row['commands'] for row in bins.values()))}.",
        marks=[Mark("area area-load", band(steps))],
        x_ticks=hour_ticks(axis.begin, axis.end),
        y_ticks=[Tick(100 - 50 * part, count(scale.high * part / 2)) for part in range(3)],
        tips=_tips(axis, bins, lambda row: (("commands", count(row["commands"])),)),
        low=True,
    )
