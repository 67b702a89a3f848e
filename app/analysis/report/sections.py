"""The sections of the page: what a person on duty asks, each made of the rows of a few tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median_low
from typing import Any, Final

from app.analysis.contracts import TABLES
from app.analysis.lake import Row, Rows
from app.analysis.report.plots import (
    HOUR,
    Axis,
    Block,
    Mark,
    PlotRow,
    Section,
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
from app.analysis.report.text import clean, count, day, duration, known, minute, ratio, share, with_unit

Label = tuple[str, ...]
"""A name, and what stands small below it."""
_UNITS: Final = {table.name: table.units for table in TABLES}
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


def over_time(summary: Row, rows: Rows) -> Section:
    """Latency, and what did not succeed, on one time axis."""
    axis = Axis.of(rows["latency_by_hour"], MOST_STEPS)
    bins = axis.bins(rows["latency_by_hour"]) if axis else {}
    return Section("time", "Over time", (_latency(summary, axis, bins), _endings(axis, bins)))


def _middle(values: Iterable[Any]) -> Any:  # noqa: ANN401 - a number or None
    """The lower median of the numbers among them."""
    numbers = [value for value in values if known(value)]
    return median_low(numbers) if numbers else None


def _latency(summary: Row, axis: Axis | None, bins: dict[datetime, list[Row]]) -> Block:
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


def _endings(axis: Axis | None, bins: dict[datetime, list[Row]]) -> Block:
    """Shares of what did not succeed, one on the other."""
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


def heat_map(_summary: Row, rows: Rows) -> Section:
    """One strip per method; each cell is as dark as the hour was slow or fast for the method."""
    title, table = "Hours and methods", "latency_by_hour_method"
    found = [row for row in rows[table] if known(row["p50_us"]) and row["p50_us"] > 0]
    axis = Axis.of(found, MOST_CELLS)
    if axis is None:
        return Section("heat", title, (Block("rows", "heat-map", title, table, empty="No command was answered."),))
    measure = "p99_us" if (_middle(row["answered"] for row in found) or 0) >= FEW else "p50_us"
    methods: dict[Label, list[Row]] = {}
    for row in found:
        methods.setdefault(_method(row), []).append(row)
    busiest = sorted(methods, key=lambda name: -sum(row["answered"] for row in methods[name]))[:MOST_ROWS]
    left_out = f" The {MOST_ROWS} busiest of {len(methods)} methods." if len(methods) > MOST_ROWS else ""
    block = Block(
        "rows",
        "heat-map",
        f"The {'99th percentile' if measure == 'p99_us' else 'median'} by hour and method",
        table,
        caption=f"Against the usual one of the same method: the middle one of its cells.{left_out} Times are UTC.",
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
    return Section("heat", title, (block,))


def _heat(axis: Axis, name: Label, rows: list[Row], measure: str) -> PlotRow:
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


def stages(_summary: Row, rows: Rows) -> Section:
    """Stacks of mean times: all commands, and each method."""
    groups: dict[str, list[Row]] = {"all commands": rows["stages"]} if rows["stages"] else {}
    for row in rows["stages_by_method"]:
        groups.setdefault(f"{clean(row['method'])} ({clean(row['profile'])})", []).append(row)
    device = next((row["share"] for row in rows["stages"] if row["stage"] == "device"), None)
    lead = f"The device and the way to it take {share(device)} of the time." if known(device) else ""
    what = ("rows", "stages-whole", "Mean time by stage", "stages_by_method")
    if not groups:
        empty = Block(*what, empty="No stage was measured in this period.")
        return Section("stages", "Where the time goes", (empty,), lead)
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
    block = Block(
        *what,
        caption="Mean of each stage of answered commands.",
        alt="Mean time by stage",
        rows=plotted,
        heads=("", "Time", "Sum"),
        x_ticks=duration_ticks(scale),
        keys=[Mark(f"stage stage-{stage}", title=stage) for stage in sorted(shown, key=lambda stage: shown[stage])],
    )
    return Section("stages", "Where the time goes", (block,), lead)


def _named(*columns: str) -> Callable[[Row], Label]:
    return lambda row: tuple(clean(row[column]) for column in columns)


_method: Final = _named("method", "profile")


def _table(
    id_: str, title: str, table: str, rows: Sequence[Row], label: Callable[[Row], Label], columns: str, **heads: str
) -> Block:
    """The first rows of a table: these columns, by their units, with their names or others as heads."""
    units, names = _UNITS[table], columns.split()
    return Block(
        "table",
        id_,
        title,
        table,
        caption=f"{MOST_ROWS} of {len(rows):,}." if len(rows) > MOST_ROWS else "",
        heads=("", *(heads.get(name, name.removesuffix("_us").replace("_", " ")) for name in names)),
        rows=[[label(row), *(with_unit(row[name], units[name]) for name in names)] for row in rows[:MOST_ROWS]],
        empty="" if rows else "There is nothing to show.",
    )


def methods(_summary: Row, rows: Rows) -> Section:
    """Percentiles and outcomes by method, the busiest first."""
    found = sorted(rows["latency_by_method"], key=lambda row: (-row["commands"], str(row["method"])))
    columns = "commands p50_us p90_us p99_us max_us failed_share timed_out_share"
    block = _table("methods-table", "Latency and outcomes", "latency_by_method", found, _method, columns)
    return Section("methods", "Methods", (block,))


def nodes(_summary: Row, rows: Rows) -> Section:
    """Load, capacity, and what forwarding costs."""
    load = "commands commands_share received forwarded_in late duplicates p50_us p99_us"
    capacity = "arrivals_mean arrivals_peak in_flight_mean in_flight_peak max_pending headroom"
    heads = {"arrivals_mean": "arrivals", "arrivals_peak": "in the busiest 10 s", "in_flight_peak": "most in flight"}
    heads["max_pending"] = "limit"
    ways = [{**row, "way": "forwarded" if row["forwarded"] else "local"} for row in rows["hops"]]
    hops = "commands share hop_p50_us hop_p99_us total_p50_us total_p99_us"
    blocks = (
        _table("nodes-table", "Load", "nodes", rows["nodes"], _named("node"), load),
        _table("capacity-table", "Commands in flight", "capacity", rows["capacity"], _named("node"), capacity, **heads),
        _table("hops-table", "What forwarding costs", "hops", ways, _named("way"), hops),
    )
    return Section("nodes", "Nodes", blocks)


def devices(_summary: Row, rows: Rows) -> Section:
    """The slowest and the flakiest as intervals, and the groups as a table."""
    flakiest = sorted(rows["device_groups"], key=lambda row: -(row["flaky_low"] or 0))
    slowness = "How many times longer its answers take than those of all devices to the same methods."
    flaky = "Share of its commands that failed or timed out."
    group = _named("device_group", "profile")
    columns = "devices commands flaky_share flaky_low slowness slowness_low"
    heads = {"flaky_share": "failed or timed out", "flaky_low": "at least", "slowness_low": "at least"}
    blocks = (
        _intervals("slowest-devices", "Slowest devices", slowness, rows["devices"], "slow", "slowness", ratio),
        _intervals("flakiest-devices", "Flakiest devices", flaky, rows["devices"], "flaky", "flaky_share", share),
        _table("device-groups", "Groups of devices", "device_groups", flakiest, group, columns, **heads),
    )
    lead = "Ranked by the sure end of the 95 % interval: a device with few commands must be much worse to be listed."
    return Section("devices", "Devices", blocks, lead)


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


def deadlines(_summary: Row, rows: Rows) -> Section:
    """What timeout each method should have, and how that would have gone."""
    whole = next((row for row in rows["deadlines_test"] if row["method"] is None), None)
    lead = ""
    if whole is not None and whole["responses"]:
        lead = (
            f"On the hours held out, at most {share(whole['wrong_share'])} of the responses would have come after the "
            f"learned timeout (after the one in force: {share(whole['wrong_logged_share'])}), and callers would have "
            f"waited {duration(abs(whole['saved_s']) * 1e6)} {'less' if whole['saved_s'] >= 0 else 'more'} in all."
        )
    found = [row for row in rows["deadlines"] if row["device_group"] is None]
    found = sorted(found, key=lambda row: (-row["responses"], str(row["method"])))
    columns = "responses late never_answered_share quantile_us logged_timeout_us timeout_us"
    heads = {"never_answered_share": "never answered", "logged_timeout_us": "in force", "timeout_us": "learned"}
    block = _table("learned", "Timeout of each method", "deadlines", found, _method, columns, **heads)
    return Section("deadlines", "Learned deadlines", (block,), lead)


def events(_summary: Row, rows: Rows) -> Section:
    """What devices said unasked, and who fell silent."""
    said, silent = (
        [{**row, "kind": row["kind"] or "of no profile"} for row in rows[name]] for name in ("events", "silent_devices")
    )
    silent.sort(key=lambda row: -row["silent_us"])
    columns = "events per_second devices silent mean_bytes largest longest_gap_us"
    of_silent = "silent_us longest_gap_us events"
    heads = {"silent_us": "silent for", "longest_gap_us": "longest gap before"}
    device = _named("device_id", "kind")
    blocks = (
        _table("events-table", "What devices said unasked", "events", said, _named("kind", "db"), columns),
        _table("silent-table", "Devices that fell silent", "silent_devices", silent, device, of_silent, **heads),
    )
    return Section("events", "Events", blocks)


def change(_summary: Row, rows: Rows) -> Section:
    """What moved notably."""
    found = sorted((row for row in rows["change"] if row["notable"]), key=lambda row: (row["q"], str(row["method"])))
    shown = [
        {**row, **{side: (duration if row["test"] == "median" else share)(row[side]) for side in ("before", "after")}}
        for row in found
    ]

    def label(row: Row) -> Label:
        return clean(row["method"] or row["node"] or "all commands"), clean(row["profile"] or "")

    columns = "test before after ratio after_records"
    block = _table("change-table", "Notable changes", "change", shown, label, columns)
    return Section("change", "Change against the period before", (block,))


def quality(summary: Row, _rows: Rows) -> Section:
    """What was left out, and which hours are missing."""
    missing = summary["log"]["missing_hours"]
    lead = f"Percentiles are within {share(summary['relative_error'], trim=True)} of the exact ones, or 1 µs."
    if missing:
        lead = f"Hours without any record ({count(len(missing))}): {', '.join(map(minute, missing[:12]))} UTC. {lead}"

    def label(row: Row) -> Label:
        return clean(row["reason"]), clean(row["meaning"], 300)

    found, columns = summary["quarantined"], "files records example"
    block = _table("quarantine-table", "What was not used", "quarantine", found, label, columns)
    return Section("quality", "Quality of the data", (block,), lead)
