"""The rest of the page: methods, stages, nodes, devices, deadlines, and how good the data is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from app.analysis.report.plots import (
    DataTable,
    Key,
    Mark,
    PlotRow,
    RowPlot,
    Section,
    Tick,
    box,
    dot,
    duration_ticks,
    linear_scale,
    log_scale,
    rule,
    upright,
)
from app.analysis.report.text import clean, count, digits, duration, known, minute, per_second, ratio, sample, share
from app.analysis.report.times import MOST_METHODS, Row, Rows

MOST_ROWS: Final = 24
Columns = Sequence[tuple[str, str, Callable[[Any], str]]]


def table(
    id_: str, title: str, name: str, rows: Sequence[Row], head: str, label: Callable[[Row], Any], columns: Columns
) -> DataTable:
    """The first rows of a table; a column is its head, its name and how its values read."""
    return DataTable(
        id_,
        title,
        name,
        caption=f"{MOST_ROWS} of {len(rows):,}." if len(rows) > MOST_ROWS else "",
        heads=(head, *(text for text, _, _ in columns)),
        rows=[[label(row), *(show(row[column]) for _, column, show in columns)] for row in rows[:MOST_ROWS]],
        empty="" if rows else "There is nothing to show.",
    )


def _node(row: Row) -> str:
    return clean(row["node"])


def _way(row: Row) -> str:
    return "forwarded" if row["forwarded"] else "local"


def methods(_summary: Row, rows: Rows) -> Section:
    """Percentiles and outcomes by method, the busiest first."""
    found = sorted(rows["latency_by_method"], key=lambda row: (-row["commands"], str(row["method"])))
    columns: Columns = (
        ("commands", "commands", count),
        ("p50", "p50_us", duration),
        ("p90", "p90_us", duration),
        ("p99", "p99_us", duration),
        ("max", "max_us", duration),
        ("failed", "failed_share", share),
        ("timed out", "timed_out_share", share),
    )
    block = table("methods-table", "Latency and outcomes", "latency_by_method", found, "Method", named, columns)
    return Section("methods", "Methods", blocks=(block,))


def named(row: Row) -> tuple[str, str]:
    """A method with its profile."""
    return clean(row["method"]), clean(row["profile"])


def stages(_summary: Row, rows: Rows) -> Section:
    """Stacks: all commands, each method, and each node's own work."""
    groups: dict[str, list[Row]] = {"all commands": rows["stages"]}
    for row in rows["stages_by_method"]:
        groups.setdefault(f"{clean(row['method'])} ({clean(row['profile'])})", []).append(row)
    own: dict[str, list[Row]] = {}
    for row in rows["stages_by_node"]:
        if row["stage"] != "device":
            own.setdefault(clean(row["node"]), []).append(row)
    device = next((row["share"] for row in rows["stages"] if row["stage"] == "device"), None)
    lead = f"The device and the way to it take {share(device)} of the time." if known(device) else ""
    blocks = (
        _stacks("stages-whole", "Mean time by stage", "stages_by_method", groups),
        _stacks("stages-own", "Homing’s own part, by the node that did it", "stages_by_node", own),
    )
    return Section("stages", "Where the time goes", lead, blocks)


def _stacks(id_: str, title: str, query: str, groups: dict[str, list[Row]]) -> RowPlot:
    groups = {label: sorted(found, key=lambda row: row["position"]) for label, found in groups.items() if found}
    if not groups:
        return RowPlot(id_, title, query, empty="No stage was measured in this period.")
    sums = {label: sum(row["mean_us"] for row in found) for label, found in groups.items()}
    scale = linear_scale(sums.values())
    plotted = []
    for label in sorted(groups, key=lambda label: -sums[label])[:MOST_ROWS]:
        marks, left = [], 0.0
        for row in groups[label]:
            right = left + scale(row["mean_us"])
            title_ = f"{row['stage']}: {duration(row['mean_us'])}"
            marks.append(Mark(f"stage stage-{row['stage']}", box(left, 0.15, right, 0.85), title_))
            left = right
        plotted.append(PlotRow(label, marks, duration(sums[label])))
    shown = {row["stage"]: row["position"] for found in groups.values() for row in found}
    return RowPlot(
        id_,
        title,
        query,
        caption="Mean of each stage of answered commands.",
        alt=title,
        rows=plotted,
        heads=("", "Time", "Sum"),
        ticks=duration_ticks(scale, upwards=False),
        keys=[Key(f"stage stage-{stage}", stage) for stage in sorted(shown, key=lambda stage: shown[stage])],
    )


def nodes(_summary: Row, rows: Rows) -> Section:
    """Load, capacity, and what forwarding costs."""
    load: Columns = (
        ("commands", "commands", count),
        ("share", "commands_share", share),
        ("received", "received", count),
        ("forwarded in", "forwarded_in", count),
        ("late", "late", count),
        ("duplicates", "duplicates", count),
        ("p50", "p50_us", duration),
        ("p99", "p99_us", duration),
    )
    capacity: Columns = (
        ("per second", "arrivals_mean", per_second),
        ("busiest 10 s", "arrivals_peak", per_second),
        ("in flight", "in_flight_mean", digits),
        ("most", "in_flight_peak", digits),
        ("limit", "max_pending", count),
        ("headroom", "headroom", ratio),
    )
    hops: Columns = (
        ("commands", "commands", count),
        ("share", "share", share),
        ("hop p50", "hop_p50_us", duration),
        ("hop p99", "hop_p99_us", duration),
        ("total p50", "total_p50_us", duration),
        ("total p99", "total_p99_us", duration),
    )
    blocks = (
        table("nodes-table", "Load", "nodes", rows["nodes"], "Node", _node, load),
        table("capacity-table", "Commands in flight", "capacity", rows["capacity"], "Node", _node, capacity),
        table("hops-table", "What forwarding costs", "hops", rows["hops"], "Answers", _way, hops),
    )
    return Section("nodes", "Nodes", blocks=blocks)


def devices(summary: Row, rows: Rows) -> Section:
    """Both lists as intervals, and the groups as a table."""
    top = summary["options"]["top"]
    ranked = {
        rank: sorted(
            (row for row in rows["devices"] if known(row[rank]) and row[rank] <= top), key=lambda row: row[rank]
        )
        for rank in ("slow_rank", "flaky_rank")
    }
    groups: Columns = (
        ("devices", "devices", count),
        ("commands", "commands", count),
        ("failed or timed out", "flaky_share", share),
        ("at least", "flaky_low", share),
        ("slowness", "slowness", ratio),
        ("at least", "slowness_low", ratio),
    )
    flakiest = sorted(rows["device_groups"], key=lambda row: -(row["flaky_low"] or 0))

    def label(row: Row) -> tuple[str, str]:
        return clean(row["device_group"]), clean(row["profile"])

    blocks = (
        _intervals("slowest-devices", "Slowest devices", ranked["slow_rank"], "slowness", ratio),
        _intervals("flakiest-devices", "Flakiest devices", ranked["flaky_rank"], "flaky", share),
        table("device-groups", "Groups of devices", "device_groups", flakiest, "Group", label, groups),
    )
    lead = "Ranked by the sure end of the 95 % interval: a device with few commands must be much worse to be listed."
    return Section("devices", "Devices", lead, blocks)


def _intervals(id_: str, title: str, rows: list[Row], name: str, show: Callable[[Any], str]) -> RowPlot:
    value, low, high = (name if name == "slowness" else f"{name}_share", f"{name}_low", f"{name}_high")
    rows = [row for row in rows if all(known(row[column]) for column in (value, low, high))]
    if not rows:
        return RowPlot(id_, title, "devices", empty="No device had enough commands.")
    ends = [row[column] for row in rows for column in (value, low, high)]
    scale = log_scale([1.0, *ends]) if name == "slowness" else linear_scale(ends)
    plotted = [
        PlotRow(
            clean(row["device_id"]),
            [Mark("interval", rule(scale(row[low]), scale(row[high]))), Mark("dot", dot(scale(row[value])))],
            show(row[value]),
            f"{show(row[low])} to {show(row[high])}, {sample(row['commands'])}",
            f"{clean(row['profile'])}; p50 {duration(row['p50_us'])}",
        )
        for row in rows
    ]
    caption = {
        "slowness": "How many times longer its answers take than those of all devices to the same methods.",
        "flaky": "Share of its commands that failed or timed out.",
    }[name]
    return RowPlot(
        id_,
        title,
        "devices",
        caption=caption,
        alt=f"{title} with 95 % intervals; the worst is {clean(rows[0]['device_id'])}.",
        rows=plotted,
        heads=("Device", "", "95 %, sample"),
        ticks=[Tick(round(100 * scale(one), 2), show(one)) for one in scale.ticks()],
        keys=[Key("interval", "95 % interval")],
    )


def deadlines(_summary: Row, rows: Rows) -> Section:
    """What timeout each method should have, and how that would have gone."""
    whole = next((row for row in rows["deadlines_test"] if row["method"] is None), None)
    lead = ""
    if whole is not None and whole["responses"]:
        saved = whole["saved_s"]
        lead = (
            f"On the hours held out, at most {share(whole['wrong_share'])} of the responses would have come after the "
            f"learned timeout (after the one in force: {share(whole['wrong_logged_share'])}), and callers would have "
            f"waited {duration(abs(saved) * 1e6)} {'less' if saved >= 0 else 'more'} in all."
        )
    found = [row for row in rows["deadlines"] if row["device_group"] is None]
    found = sorted(found, key=lambda row: (-row["responses"], str(row["method"])))[:MOST_METHODS]
    title, columns = "Timeout of each method", ("quantile_us", "timeout_us", "logged_timeout_us")
    times = [row[name] for row in found for name in columns if known(row[name])]
    if not any(known(row["timeout_us"]) for row in found):
        empty = "No method had enough responses to learn from."
        return Section("deadlines", "Learned deadlines", lead, (RowPlot("learned", title, "deadlines", empty=empty),))
    scale = log_scale(times)
    block = RowPlot(
        "learned",
        title,
        "deadlines",
        caption="From the quantile of the time to the response, with a margin, to the timeout in timeouts.toml.",
        alt=f"Quantile, learned timeout and timeout in force of {len(found)} methods.",
        rows=[_learned(scale, row) for row in found],
        heads=("Method", "Time", "In force → learned"),
        ticks=duration_ticks(scale, upwards=False),
        keys=[
            Key("interval", "from the quantile"),
            Key("dot", "to the learned timeout"),
            Key("reference", "timeout in force (mean)"),
        ],
    )
    return Section("deadlines", "Learned deadlines", lead, (block,))


def _learned(scale: Callable[[float], float], row: Row) -> PlotRow:
    marks = []
    if known(row["logged_timeout_us"]):
        marks.append(Mark("reference", upright(scale(row["logged_timeout_us"]))))
    if known(row["timeout_us"]):
        ends = sorted((scale(row["quantile_us"]), scale(row["timeout_us"])))
        marks += [Mark("interval", rule(*ends)), Mark("dot", dot(scale(row["timeout_us"])))]
    before, after = (duration(row[name], trim=True) for name in ("logged_timeout_us", "timeout_us"))
    detail = clean(row["why_not"], 200) if row["why_not"] else sample(row["responses"])
    return PlotRow(clean(row["method"]), marks, f"{before} → {after}", detail, clean(row["profile"]))


def quality(summary: Row, _rows: Rows) -> Section:
    """What was left out, which hours are missing, what changed."""
    missing = summary["log"]["missing_hours"]
    lead = f"Percentiles are within {share(summary['relative_error'], trim=True)} of the exact ones, or 1 µs."
    if missing:
        lead = f"Hours without any record ({count(len(missing))}): {', '.join(map(minute, missing[:12]))} UTC. {lead}"
    columns: Columns = (
        ("files", "files", count),
        ("records", "records", count),
        ("for example", "example", lambda text: clean(text, 200)),
    )

    def label(row: Row) -> tuple[str, str]:
        return clean(row["reason"]), clean(row["meaning"], 300)

    block = table(
        "quarantine-table", "What was not used", "quarantine", summary["quarantined"], "Reason", label, columns
    )
    return Section("quality", "Quality of the data", lead, (block,))


def change(_summary: Row, rows: Rows) -> Section:
    """What moved notably."""
    found = sorted((row for row in rows["change"] if row["notable"]), key=lambda row: (row["q"], str(row["method"])))
    columns: Columns = (
        ("test", "test", clean),
        ("before", "before", lambda value: value),
        ("after", "after", lambda value: value),
        ("times", "ratio", ratio),
        ("records", "after_records", count),
    )
    shown = [
        {**row, **{side: (duration if row["test"] == "median" else share)(row[side]) for side in ("before", "after")}}
        for row in found
    ]

    def label(row: Row) -> tuple[str, str]:
        return clean(row["method"] or row["node"] or "all commands"), clean(row["profile"] or "")

    block = table("change-table", "Notable changes", "change", shown, "What", label, columns)
    return Section("change", "Change against the period before", blocks=(block,))
