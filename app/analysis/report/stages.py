"""Where the time goes, and what forwarding costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from app.analysis.report.data import Output, Row
from app.analysis.report.plots import (
    Cell,
    DataTable,
    Head,
    Key,
    Mark,
    Number,
    PlotRow,
    RowPlot,
    Scale,
    Section,
    Sentence,
    Tick,
    box,
    linear_scale,
)
from app.analysis.report.text import NOTHING, clean, count, duration, known, ratio, share

STAGES: Final = {
    "register": "register: put the callback on record",
    "publish": "publish: hand the command to the broker",
    "device": "device: broker, network and device",
    "record": "record: put the response on record",
    "wake": "wake: tell the home node",
    "deliver": "deliver: hand over to the caller",
}
"""In the order of a command's life."""
MOST_ROWS: Final = 24
MOST_NODES: Final = 16
_GRAINS: Final = ("all", "node", "method")


def where_time_goes(output: Output) -> Section:
    """Two stacks: everything, and our own part without the device."""
    grains = {grain: _grouped(output.rows("stages", grain)) for grain in _GRAINS}
    everything = grains["all"].get("all commands", {})
    lead: list[Sentence] = []
    device = everything.get("device", {}).get("share")
    if known(device):
        own = sum(row["mean_us"] or 0 for stage, row in everything.items() if stage != "device")
        lead.append(
            (
                "The device and the way to it take ",
                Number(share(device), "stages"),
                " of the time; Homing itself takes ",
                Number(duration(own), "stages"),
                " of a command on average.",
            )
        )
    whole = {**grains["all"], **grains["method"]}
    own_part = {**grains["all"], **grains["node"]}
    return Section("stages", "Where the time goes", lead, (_whole(whole), _own(own_part)))


def _grouped(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Label -> stage -> row."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if known(row.get("mean_us")):
            label = f"node {row['node']}" if row.get("node") else row.get("method") or "all commands"
            profile = f" ({row['profile']})" if row.get("profile") else ""
            found.setdefault(f"{label}{profile}", {})[str(row.get("stage"))] = row
    return found


def _whole(groups: dict[str, dict[str, Row]]) -> RowPlot:
    title = "Mean time by stage"
    if not groups:
        return RowPlot("stages-whole", title, "stages", empty="No stage was measured in this period.")
    sums = {label: sum(row["mean_us"] for row in stages.values()) for label, stages in groups.items()}
    scale = linear_scale(sums.values())
    rows = [
        PlotRow(
            clean(label),
            _stack({stage: scale(row["mean_us"]) for stage, row in stages.items()}, stages),
            duration(sums[label]),
        )
        for label, stages in list(groups.items())[:MOST_ROWS]
    ]
    return RowPlot(
        "stages-whole",
        title,
        "stages",
        caption="Mean of each of the six stages of answered commands.",
        alt="Mean time of the six stages, for all commands and for each method.",
        rows=rows,
        heads=("Commands", "Time", "Sum"),
        ticks=_ticks(scale),
        keys=_keys(STAGES),
    )


def _own(groups: dict[str, dict[str, Row]]) -> RowPlot:
    title = "Homing’s own part"
    sums = {
        label: sum(row["mean_us"] for stage, row in stages.items() if stage != "device")
        for label, stages in groups.items()
    }
    if not any(sums.values()):
        return RowPlot("stages-own", title, "stages", empty="No stage of a node was measured in this period.")
    scale = linear_scale(sums.values())
    rows = []
    for label, stages in list(groups.items())[:MOST_ROWS]:
        own = {stage: scale(row["mean_us"]) for stage, row in stages.items() if stage != "device"}
        rows.append(PlotRow(clean(label), _stack(own, stages), duration(sums[label])))
    return RowPlot(
        "stages-own",
        title,
        "stages",
        caption="The stages without the device, mean of each. A node’s row is of the work that this node did.",
        alt="Mean time of the five stages that are not the device, for all commands and for each node.",
        rows=rows,
        heads=("Commands", "Time", "Sum"),
        ticks=_ticks(scale),
        keys=_keys(stage for stage in STAGES if stage != "device"),
    )


def _ticks(scale: Scale) -> list[Tick]:
    return [Tick(50 * part, duration(scale.high * part / 2, trim=True) if part else "0") for part in range(3)]


def _keys(stages: Iterable[str]) -> list[Key]:
    return [Key(f"stage stage-{stage}", STAGES[stage]) for stage in stages]


def _stack(parts: dict[str, float], rows: dict[str, Row]) -> list[Mark]:
    marks, left = [], 0.0
    for stage in STAGES:
        width = parts.get(stage, 0.0)
        if width > 0:
            title = f"{stage}: mean {duration(rows[stage]['mean_us'])}, p99 {duration(rows[stage].get('p99_us'))}"
            marks.append(Mark(f"stage stage-{stage}", box(left, 0.2, left + width, 0.8), title))
        left += width
    return marks


def forwarding(output: Output) -> Section:
    """Forwarded against local, and the matrix of nodes."""
    sides = {bool(row.get("forwarded")): row for row in output.rows("forwarding", "forwarded")}
    pairs = [row for row in output.rows("forwarding", "pair") if row.get("commands")]
    return Section("forwarding", "What forwarding costs", _compared(sides), (_matrix(pairs), _hops(sides)))


def _compared(sides: dict[bool, Row]) -> list[Sentence]:
    if True not in sides or not sides[True].get("commands"):
        return [("No response came in on another node than the one that waited for it.",)]
    hop = sides[True].get("hop_p50_us")
    sentence: list[str | Number] = [
        Number(share(sides[True].get("share")), "forwarding"),
        " of the responses came in on another node than the one that waited, and took ",
        Number(duration(hop), "forwarding"),
        " (median) from being on record to being known at home",
    ]
    local = sides.get(False, {}).get("hop_p50_us")
    if known(local):
        sentence += ["; local ones took ", Number(duration(local), "forwarding")]
    return [(*sentence, ".")]


def _matrix(pairs: list[Row]) -> DataTable:
    title = "From receiving node to home node"
    if not pairs:
        return DataTable("forwarding-matrix", title, "forwarding", empty="No command was answered in this period.")
    load: dict[str, int] = {}
    for row in pairs:
        for side in ("receiving_node", "home_node"):
            load[clean(row[side])] = load.get(clean(row[side]), 0) + row["commands"]
    nodes = sorted(sorted(load, key=lambda node: (-load[node], node))[:MOST_NODES])
    cells = {(clean(row["receiving_node"]), clean(row["home_node"])): row for row in pairs}
    slowest = max((row["hop_p99_us"] or 0 for row in pairs if known(row.get("hop_p99_us"))), default=0)
    rows = [[Cell(receiving), *(_pair(cells.get((receiving, home)), slowest) for home in nodes)] for receiving in nodes]
    left_out = f" The {MOST_NODES} busiest of {len(load)} nodes." if len(load) > MOST_NODES else ""
    return DataTable(
        "forwarding-matrix",
        title,
        "forwarding",
        caption="Share of the answered commands, and below it the p99 of the hop: from the response on record to home "
        f"knowing it. The stronger the colour, the longer the hop. Framed: not forwarded.{left_out}",
        alt=f"Matrix of {len(nodes)} receiving by {len(nodes)} home nodes.",
        heads=[Head("receiving ↓ home →", numeric=False), *(Head(node) for node in nodes)],
        rows=rows,
        matrix=True,
    )


def _pair(row: Row | None, slowest: float) -> Cell:
    if row is None:
        return Cell(NOTHING)
    hop = row.get("hop_p99_us")
    weight = round(100 * hop / slowest) if hop is not None and known(hop) and slowest else 0
    same = "same" if row["receiving_node"] == row["home_node"] else ""
    return Cell(share(row.get("share")), duration(hop), weight, same)


def _hops(sides: dict[bool, Row]) -> DataTable:
    heads = [Head("Responses", numeric=False), Head("commands"), Head("share")]
    heads += [Head(f"hop {name}") for name in ("p50", "p99", "p99.9")] + [
        Head(f"total {name}") for name in ("p50", "p99")
    ]
    rows = []
    for forwarded, row in sorted(sides.items()):
        columns = ("hop_p50_us", "hop_p99_us", "hop_p999_us", "total_p50_us", "total_p99_us")
        values = [Cell(duration(row.get(column))) for column in columns]
        label = "forwarded" if forwarded else "local"
        rows.append([Cell(label), Cell(count(row.get("commands"))), Cell(share(row.get("share"))), *values])
    if True in sides and False in sides and known(sides[False].get("total_p50_us")):
        compared = ("hop_p50_us", "hop_p99_us", "hop_p999_us", "total_p50_us", "total_p99_us")
        times = [Cell(_times(sides[True].get(name), sides[False].get(name))) for name in compared]
        rows.append([Cell("forwarded / local"), Cell(""), Cell(""), *times])
    return DataTable(
        "forwarding-hops",
        "Forwarded and local",
        "forwarding",
        heads=heads,
        rows=rows,
        empty="" if rows else "No command was answered in this period.",
    )


def _times(above: float | None, below: float | None) -> str:
    return ratio(above / below) if above is not None and below else NOTHING
