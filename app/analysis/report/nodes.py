"""Load and skew of the nodes, capacity, and responses that came too late or twice."""

from __future__ import annotations

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
    Section,
    Sentence,
    Tick,
    box,
    linear_scale,
    upright,
)
from app.analysis.report.text import (
    NOTHING,
    clean,
    count,
    day,
    digits,
    duration,
    instant,
    known,
    minute,
    per_second,
    ratio,
    share,
)

MOST_NODES: Final = 30
ALL: Final = "all"


def load_and_capacity(output: Output) -> Section:
    """Who did how much, and how much more would have gone."""
    nodes = output.rows("nodes")
    capacity = sorted(output.rows("capacity"), key=lambda row: (row.get("node") != ALL, str(row.get("node"))))
    whole = next((row for row in capacity if row.get("node") == ALL), {})
    lead: list[Sentence] = []
    if known(whole.get("in_flight_peak")):
        lead.append(
            (
                "At the busiest moment ",
                Number(count(whole["in_flight_peak"]), "capacity"),
                " commands were in flight, of at most ",
                Number(count(whole.get("max_pending")), "capacity"),
                "; on average ",
                Number(digits(whole.get("in_flight_mean") or 0), "capacity"),
                ".",
            )
        )
    return Section("capacity", "Nodes and capacity", lead, (_skew(nodes), _load(nodes), _capacity(capacity)))


def _skew(nodes: list[Row]) -> RowPlot:
    rows = [row for row in nodes if known(row.get("commands_share")) and known(row.get("received_share"))]
    if not rows:
        return RowPlot("node-shares", "Shares of the nodes", "nodes", empty="There are no commands in this period.")
    scale = linear_scale([row[name] for row in rows for name in ("commands_share", "received_share")])
    fair = Mark("reference", upright(scale(1 / len(rows))), f"an equal share: {share(1 / len(rows))}")
    plotted = [
        PlotRow(
            clean(row["node"]),
            [
                Mark("bar bar-home", box(0, 0.2, scale(row["commands_share"]), 0.48), "commands registered"),
                Mark("bar bar-receiving", box(0, 0.52, scale(row["received_share"]), 0.8), "responses received"),
                fair,
            ],
            f"{share(row['commands_share'])} / {share(row['received_share'])}",
            f"skew {row.get('commands_skew') or 0:.2f} / {row.get('received_skew') or 0:.2f}",
        )
        for row in rows[:MOST_NODES]
    ]
    return RowPlot(
        "node-shares",
        "Shares of the nodes",
        "nodes",
        caption="Commands that each node registered as their home, and responses that the broker gave to it. The "
        "dashed line is an equal share.",
        alt=f"Shares of {len(rows)} nodes in the commands and in the responses.",
        rows=plotted,
        heads=("Node", "Share", "Home / receiving"),
        ticks=[Tick(50 * part, share(scale.high * part / 2, trim=True)) for part in range(3)],
        keys=[
            Key("bar bar-home", "commands registered (home)"),
            Key("bar bar-receiving", "responses received"),
            Key("reference", "equal share"),
        ],
    )


def _load(nodes: list[Row]) -> DataTable:
    columns = (
        ("commands", "commands", count),
        ("received", "responses", count),
        ("forwarded_in", "forwarded in", count),
        ("forwarded_out", "forwarded out", count),
        ("late", "late", count),
        ("duplicates", "duplicate", count),
        ("p50_us", "p50", duration),
        ("p99_us", "p99", duration),
    )
    return DataTable(
        "node-load",
        "Load of the nodes",
        "nodes",
        heads=[Head("Node", numeric=False), *(Head(title) for _, title, _ in columns)],
        rows=[
            [Cell(clean(row.get("node"))), *(Cell(show(row.get(name))) for name, _, show in columns)] for row in nodes
        ],
        empty="" if nodes else "There are no commands in this period.",
    )


def _capacity(rows: list[Row]) -> DataTable:
    heads = [Head("Node", numeric=False), Head("arrivals"), Head("busiest 10 s"), Head("in flight"), Head("most")]
    heads += [Head("limit"), Head("used"), Head("headroom"), Head("sustainable")]
    cells = [
        [
            Cell("all nodes" if row.get("node") == ALL else clean(row.get("node"))),
            Cell(per_second(row.get("arrivals_mean"))),
            Cell(per_second(row.get("arrivals_peak")), minute(row.get("arrivals_peak_at"))),
            Cell(digits(row["in_flight_mean"]) if known(row.get("in_flight_mean")) else NOTHING),
            Cell(count(row.get("in_flight_peak")), minute(row.get("in_flight_peak_at"))),
            Cell(count(row.get("max_pending"))),
            Cell(share(row.get("used_peak"))),
            Cell(ratio(row.get("headroom"))),
            Cell(per_second(row.get("sustainable"))),
        ]
        for row in rows
    ]
    return DataTable(
        "capacity-table",
        "Capacity",
        "capacity",
        caption="In flight on average by Little’s law: arrivals × mean time. Headroom: the limit over the most in "
        "flight. Sustainable: arrivals at which the limit is reached at the mean time. Times are UTC.",
        heads=heads,
        rows=cells,
        empty="" if cells else "There are no commands in this period.",
    )


def _worst_hour(row: Row) -> str:
    at = instant(row.get("hour"))
    return f"worst hour {day(at)} {at:%H:%M}: {count(row.get('responses'))}" if at else ""


def late_responses(output: Output) -> Section:
    """By kind and receiving node."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in output.rows("late"):
        found.setdefault((clean(row.get("kind")), clean(row.get("receiving_node"))), []).append(row)
    most = max((sum(row["responses"] or 0 for row in rows) for rows in found.values()), default=0)
    plotted = []
    for (kind, node), rows in sorted(found.items()):
        total = sum(row["responses"] or 0 for row in rows)
        worst = max(rows, key=lambda row: row["responses"] or 0)
        plotted.append(
            PlotRow(
                node,
                [Mark(f"bar bar-{'late' if kind == 'late' else 'duplicate'}", box(0, 0.2, total / (most or 1), 0.8))],
                count(total),
                _worst_hour(worst),
                note=kind,
            )
        )
    block = RowPlot(
        "late-responses",
        "By receiving node",
        "late",
        caption="Late: its command had ended without it. Duplicate: its command had its "
        "response already. Neither changed an outcome. Times are UTC.",
        alt="Number of late and of duplicate responses by receiving node.",
        rows=plotted,
        heads=("Receiving node", "Responses", "Number"),
        ticks=[Tick(0, "0"), Tick(100, count(most))],
        keys=[Key("bar bar-late", "late"), Key("bar bar-duplicate", "duplicate")],
        empty="" if plotted else "No response came late or twice in this period.",
    )
    return Section("late", "Late and duplicate responses", blocks=(block,))
