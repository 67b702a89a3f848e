"""The plots of the page, each made of the rows of a table, and the sentences that lead into sections."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import pairwise
from statistics import median_low
from typing import Any, Final

from app.analysis.lake import Row, Rows
from app.analysis.report.plots import (
    HOUR,
    Axis,
    Block,
    Mark,
    PlotRow,
    Tick,
    band,
    box,
    duration_ticks,
    hour_ticks,
    interval,
    linear_scale,
    log_scale,
)
from app.analysis.report.tables import TOP
from app.analysis.report.text import clean, count, day, duration, known, minute, ratio, share

MOST_STEPS: Final = 372
"""In a plot over time; a month has 744 hours."""
MOST_CELLS: Final = 56
MOST_ROWS: Final = 24
FEW: Final = 100
"""Of fewer answers a 99th percentile says little."""
FULL: Final = 4.0
"""So many times the usual has the full colour."""
_PERCENTILES: Final = ("p50", "p90", "p99", "p999")
_ENDINGS: Final = (
    ("failed", "failed: the device refused", "failed"),
    ("timed_out", "timed out: no answer by the deadline", "timed-out"),
    ("other", "cancelled or never sent", "other"),
)


def _bins(rows: Rows) -> tuple[Axis | None, dict[datetime, list[Row]]]:
    axis = Axis.of(rows["latency_by_hour"], MOST_STEPS)
    return axis, axis.bins(rows["latency_by_hour"]) if axis else {}


def _middle(values: Iterable[Any]) -> Any:  # noqa: ANN401 - a number or None
    """The lower median of the numbers among them."""
    numbers = [value for value in values if known(value)]
    return median_low(numbers) if numbers else None


def latency(summary: Row, rows: Rows) -> Block:
    """Percentiles by hour."""
    axis, bins = _bins(rows)
    what = ("time", "latency-over-time", "Latency", "latency_by_hour")
    values = {at: [_middle(row[f"{name}_us"] for row in found) for name in _PERCENTILES] for at, found in bins.items()}
    values = {at: row for at, row in values.items() if all(map(known, row))}
    if axis is None or not values:
        return Block(*what, empty="No command was answered.")
    scale = log_scale([value for row in values.values() for value in row])
    flagged = [datetime.fromisoformat(str(one["since"])) for one in summary["anomalies"] if one["kind"] == "hour"]
    marks = [Mark("flagged", box(axis.place(at), 0, axis.place(at + HOUR), 1), "flagged") for at in flagged]
    for number, (low, high) in enumerate(pairwise(range(4)), 1):
        steps = (axis.step(at, scale(row[high]), scale(row[low])) for at, row in values.items())
        marks.append(Mark(f"band band-{number}", band(steps)))
    for number, name in enumerate(_PERCENTILES):
        steps = (axis.step(at, scale(row[number])) for at, row in values.items())
        marks.append(Mark(f"line line-{name}", band(steps, line=True)))
    several = "; each step shows the middle one of the percentiles of its hours" if axis.hours > 1 else ""
    return Block(
        *what,
        caption=f"Answered commands, in steps of {axis.width}, on a logarithmic scale{several}. Times are UTC.",
        alt=f"Percentiles of the latency in steps of {axis.width}.",
        marks=marks,
        x_ticks=hour_ticks(axis.begin, axis.end),
        y_ticks=duration_ticks(scale, upwards=True),
        tips=[axis.tip(at, zip(_PERCENTILES, map(duration, row), strict=True)) for at, row in values.items()],
        keys=[
            *(Mark(f"band band-{at}", title=text) for at, text in ((1, "p50 to p90"), (2, "to p99"), (3, "to p99.9"))),
            *([Mark("flagged", title="flagged hour")] if flagged else []),
        ],
    )


def endings(_summary: Row, rows: Rows) -> Block:
    """Shares of what did not succeed, one on the other."""
    axis, bins = _bins(rows)
    what = ("time", "outcomes-over-time", "Outcomes other than success", "latency_by_hour")
    shares = {}
    for at, found in bins.items():
        commands = sum(row["commands"] for row in found)
        other = sum(row["cancelled"] + row["unsent"] for row in found)
        parts = (sum(row["failed"] for row in found), sum(row["timed_out"] for row in found), other)
        shares[at] = (commands, [part / commands for part in parts])
    # The share of a few timeouts after the last command would dwarf all others.
    enough = min(FEW, 0.05 * (_middle(commands for commands, _ in shares.values()) or 0))
    shares = {at: one for at, one in shares.items() if one[0] >= enough}
    highest = max((sum(parts) for _, parts in shares.values()), default=0)
    if axis is None or highest == 0:
        return Block(*what, empty="Every command in this period succeeded.")
    scale = linear_scale([highest])
    marks = []
    for place, (_, _, css) in enumerate(_ENDINGS):
        steps = (
            axis.step(at, scale(sum(parts[: place + 1])), scale(sum(parts[:place])))
            for at, (_, parts) in shares.items()
        )
        marks.append(Mark(f"area area-{css}", band(steps)))
    names = [name for name, _, _ in _ENDINGS]
    return Block(
        *what,
        caption=f"Shares of the commands in steps of {axis.width}, stacked.",
        alt=f"Shares of the outcomes other than success; together at most {share(highest)}.",
        marks=marks,
        x_ticks=hour_ticks(axis.begin, axis.end),
        y_ticks=[Tick(100 - 100 * scale(value), share(value, trim=True)) for value in scale.ticks()],
        tips=[
            axis.tip(at, [*zip(names, map(share, parts), strict=True), ("of", count(n))])
            for at, (n, parts) in shares.items()
        ],
        keys=[Mark(f"area area-{css}", title=text) for _, text, css in _ENDINGS],
    )


def heat_map(_summary: Row, rows: Rows) -> Block:
    """One strip per method; each cell is as dark as the hour was slow or fast for the method."""
    what = ("rows", "heat-map", "Latency by hour and method", "latency_by_hour_method")
    found = [row for row in rows["latency_by_hour_method"] if known(row["p50_us"]) and row["p50_us"] > 0]
    axis = Axis.of(found, MOST_CELLS)
    if axis is None:
        return Block(*what, empty="No command was answered.")
    measure = "p99_us" if (_middle(row["answered"] for row in found) or 0) >= FEW else "p50_us"
    methods: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        methods.setdefault((clean(row["method"]), clean(row["profile"])), []).append(row)
    busiest = sorted(methods, key=lambda name: -sum(row["answered"] for row in methods[name]))[:MOST_ROWS]
    left_out = f" The {MOST_ROWS} busiest of {len(methods)} methods." if len(methods) > MOST_ROWS else ""
    which = "99th percentile" if measure == "p99_us" else "median"
    return Block(
        *what,
        caption=f"The {which} against the usual one of the method, the middle one of its cells.{left_out} In UTC.",
        alt=f"Heat map of {len(methods)} methods by hour.",
        rows=[_heat(axis, name, methods[name], measure) for name in sorted(busiest)],
        heads=("Method", "Hour", "Usual"),
        x_ticks=hour_ticks(axis.begin, axis.end),
        keys=[
            Mark(css, title=text, weight=weight)
            for css, text, weight in (
                ("cool", "half", 50),
                ("even", "usual", None),
                ("hot", "twice", 50),
                ("hot", "four times", 100),
            )
        ],
    )


def _heat(axis: Axis, name: tuple[str, str], rows: list[Row], measure: str) -> PlotRow:
    slowest = {at: max(found, key=lambda row: row[measure]) for at, found in axis.bins(rows).items()}
    usual = _middle(row[measure] for row in slowest.values()) or 1
    marks = []
    for at, row in slowest.items():
        times = max(row[measure], 1) / usual
        weight = round(100 * min(1.0, abs(math.log(times)) / math.log(FULL)))
        css = "even" if weight < 8 else "hot" if times > 1 else "cool"  # noqa: PLR2004 - not to be seen
        title = f"{day(at)} {at:%H:%M}: {duration(row[measure])}, {ratio(times)} the usual, {count(row['answered'])}"
        marks.append(Mark(f"cell {css}", box(axis.place(at), 0.04, axis.place(at, 1), 0.96), title, weight or None))
    return PlotRow(name[0], marks, duration(usual), note=name[1])


def stages(_summary: Row, rows: Rows) -> Block:
    """Stacks of mean times: all commands, and each method."""
    groups: dict[str, list[Row]] = {"all commands": rows["stages"]} if rows["stages"] else {}
    for row in rows["stages_by_method"]:
        groups.setdefault(f"{clean(row['method'])} ({clean(row['profile'])})", []).append(row)
    what = ("rows", "stages-whole", "Mean time by stage", "stages_by_method")
    if not groups:
        return Block(*what, empty="No stage was measured in this period.")
    sums = {label: sum(row["mean_us"] for row in found) for label, found in groups.items()}
    scale = linear_scale(sums.values())
    plotted = []
    for label in sorted(groups, key=lambda label: -sums[label])[:MOST_ROWS]:
        marks, left = [], 0.0
        for row in sorted(groups[label], key=lambda row: row["position"]):
            right = left + scale(row["mean_us"])
            title = f"{row['stage']}: {duration(row['mean_us'])}"
            marks.append(Mark(f"stage stage-{row['stage']}", box(left, 0.15, right, 0.85), title))
            left = right
        plotted.append(PlotRow(label, marks, duration(sums[label])))
    shown = {row["stage"]: row["position"] for found in groups.values() for row in found}
    return Block(
        *what,
        caption="Mean of each stage of answered commands.",
        alt="Mean time by stage",
        rows=plotted,
        heads=("", "Time", "Sum"),
        x_ticks=duration_ticks(scale),
        keys=[Mark(f"stage stage-{stage}", title=stage) for stage in sorted(shown, key=lambda stage: shown[stage])],
    )


def slowest(_summary: Row, rows: Rows) -> Block:
    """Devices whose answers take the longest."""
    caption = "How many times longer its answers take than those of all devices to the same methods."
    return _intervals("slowest-devices", "Slowest devices", caption, rows["devices"], "slow", "slowness", ratio)


def flakiest(_summary: Row, rows: Rows) -> Block:
    """Devices that fail the most."""
    caption = "Share of its commands that failed or timed out."
    return _intervals("flakiest-devices", "Flakiest devices", caption, rows["devices"], "flaky", "flaky_share", share)


def _intervals(
    id_: str, title: str, caption: str, rows: list[Row], rank: str, value: str, show: Callable[[Any], str]
) -> Block:
    prefix = value.removesuffix("_share")
    columns = (f"{prefix}_low", f"{prefix}_high", value)
    rows = [row for row in rows if (row[f"{rank}_rank"] or TOP + 1) <= TOP and all(known(row[one]) for one in columns)]
    if not rows:
        return Block("rows", id_, title, "devices", empty="No device had enough commands.")
    rows = sorted(rows, key=lambda row: row[f"{rank}_rank"])
    ends = [row[column] for row in rows for column in columns]
    scale = log_scale([1.0, *ends]) if show is ratio else linear_scale(ends)
    plotted = [
        PlotRow(
            clean(row["device_id"]),
            interval(*(scale(row[column]) for column in columns)),
            show(row[value]),
            f"{show(row[columns[0]])} to {show(row[columns[1]])}, n\u00a0=\u00a0{count(row['commands'])}",
            f"{clean(row['profile'])}; p50 {duration(row['p50_us'])}",
        )
        for row in rows
    ]
    return Block(
        "rows",
        id_,
        title,
        "devices",
        caption=caption,
        alt=f"{title} with 95 % intervals; the worst is {clean(rows[0]['device_id'])}.",
        rows=plotted,
        heads=("Device", "", "95 %, sample"),
        x_ticks=[Tick(round(100 * scale(one), 2), show(one)) for one in scale.ticks()],
        keys=[Mark("interval", title="95 % interval")],
    )


def leads(summary: Row, rows: Rows) -> dict[str, str]:
    """Section -> what leads into it."""
    found = {
        "devices": "Ranked by the sure end of the 95 % interval: "
        "a device with few commands must be much worse to be listed.",
        "quality": f"Percentiles are within {share(summary['relative_error'], trim=True)} of the exact ones, or 1 µs.",
    }
    if missing := summary["log"]["missing_hours"]:
        hours = ", ".join(map(minute, missing[:12]))
        found["quality"] = f"Hours without any record ({count(len(missing))}): {hours} UTC. {found['quality']}"
    device = next((row["share"] for row in rows["stages"] if row["stage"] == "device"), None)
    if known(device):
        found["stages"] = f"The device and the way to it take {share(device)} of the time."
    whole = next((row for row in rows["deadlines_test"] if row["method"] is None), None)
    if whole is not None and whole["responses"]:
        found["deadlines"] = (
            f"On the hours held out, at most {share(whole['wrong_share'])} of the responses would have come after the "
            f"learned timeout (after the one in force: {share(whole['wrong_logged_share'])}), and callers would have "
            f"waited {duration(abs(whole['saved_s']) * 1e6)} {'less' if whole['saved_s'] >= 0 else 'more'} in all."
        )
    return found
