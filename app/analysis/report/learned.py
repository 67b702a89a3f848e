"""Learned deadlines: what timeout each method should have, and how it would have done on hours held out."""

from __future__ import annotations

from typing import Final

from app.analysis.report.data import Output, Row
from app.analysis.report.plots import (
    Block,
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
    dot,
    log_scale,
    log_values,
    rule,
    upright,
)
from app.analysis.report.text import NOTHING, clean, count, duration, known, sample, share

TABLE: Final = "deadlines"
TEST: Final = "deadlines_test"
MOST_METHODS: Final = 30
MOST_GROUPS: Final = 60


def learned_deadlines(output: Output) -> Section:
    """Nothing when none were learned."""
    title = "Learned deadlines"
    if not output.has(TABLE):
        return Section("deadlines", title)
    rows = output.rows(TABLE)
    tests = sorted(output.rows(TEST), key=lambda row: (row.get("grain") != "all", str(row.get("method"))))
    blocks: tuple[Block, ...] = (_methods([row for row in rows if not row.get("device_group")]),)
    groups = [row for row in rows if row.get("device_group")]
    if groups:
        blocks = (*blocks, _groups(groups))
    return Section("deadlines", title, _lead(tests), (*blocks, _tests(tests)))


def _lead(tests: list[Row]) -> list[Sentence]:
    whole = next((row for row in tests if row.get("grain") == "all"), None)
    if whole is None or not whole.get("responses"):
        return []
    saved = whole.get("saved_s") or 0
    return [
        (
            "On the hours held out, at most ",
            Number(share(whole.get("wrong_share")), TEST),
            " of the responses would have come after the learned timeout (after the one in force: ",
            Number(share(whole.get("wrong_logged_share")), TEST),
            "), and callers would have waited ",
            Number(_waiting(abs(saved)), TEST),
            f" {'less' if saved >= 0 else 'more'} in all (",
            Number(share(abs(whole.get("saved_share") or 0)), TEST),
            ").",
        )
    ]


def _waiting(seconds: float | None) -> str:
    return duration(seconds * 1e6) if seconds is not None and known(seconds) else NOTHING


def _methods(rows: list[Row]) -> RowPlot:
    title = "Timeout of each method"
    times = [
        row[name] for row in rows for name in ("quantile_us", "timeout_us", "logged_timeout_us") if known(row.get(name))
    ]
    if not any(known(row.get("timeout_us")) for row in rows):
        return RowPlot("learned-timeouts", title, TABLE, empty="No method had enough responses to learn from.")
    scale = log_scale(times)
    busiest = sorted(rows, key=lambda row: (-(row.get("responses") or 0), str(row.get("method"))))
    left_out = f" The {MOST_METHODS} busiest of {len(rows)} methods." if len(rows) > MOST_METHODS else ""
    return RowPlot(
        "learned-timeouts",
        title,
        TABLE,
        caption="From the quantile of the time to the response, with a margin, to the recommended timeout; on a log "
        f"scale. For commands whose caller gives none.{left_out}",
        alt=f"Quantile, recommended timeout and timeout in force of {min(len(rows), MOST_METHODS)} methods.",
        rows=[_method(scale, row) for row in busiest[:MOST_METHODS]],
        heads=("Method", "Time", "In force → learned"),
        ticks=[Tick(scale.percent(value), duration(value, trim=True)) for value in log_values(scale)],
        keys=[
            Key("interval", "from the quantile"),
            Key("dot", "to the learned timeout"),
            Key("reference", "timeout in force (mean)"),
        ],
    )


def _method(scale: Scale, row: Row) -> PlotRow:
    marks = []
    if known(row.get("logged_timeout_us")):
        marks.append(Mark("reference", upright(scale(row["logged_timeout_us"]), 0.1, 0.9), "timeout in force"))
    if known(row.get("timeout_us")) and known(row.get("quantile_us")):
        marks.append(Mark("interval", rule(*sorted((scale(row["quantile_us"]), scale(row["timeout_us"]))))))
        marks.append(Mark("dot", dot(scale(row["timeout_us"]))))
    detail = clean(row["why_not"], 200) if row.get("why_not") else sample(row.get("responses"))
    before, after = duration(row.get("logged_timeout_us"), trim=True), duration(row.get("timeout_us"), trim=True)
    return PlotRow(clean(row.get("method")), marks, f"{before} → {after}", detail, clean(row.get("profile")))


def _groups(groups: list[Row]) -> DataTable:
    learned = [row for row in groups if known(row.get("timeout_us"))]
    rows = sorted(
        learned, key=lambda row: (-(row.get("responses") or 0), str(row.get("method")), str(row.get("device_group")))
    )
    few = len(groups) - len(learned)
    heads = [Head("Method", numeric=False), Head("group", numeric=False), Head("responses"), Head("late")]
    heads += [Head("never answered"), Head("own quantile"), Head("weight"), Head("drawn to method"), Head("timeout")]
    cells = [
        [
            Cell(clean(row.get("method")), clean(row.get("profile"))),
            Cell(clean(row.get("device_group"))),
            Cell(count(row.get("responses"))),
            Cell(count(row.get("late"))),
            Cell(share(row.get("never_answered_share"))),
            Cell(duration(row.get("quantile_us"))),
            Cell(f"{row['weight']:.2f}" if known(row.get("weight")) else NOTHING),
            Cell(duration(row.get("shrunk_us"))),
            Cell(duration(row.get("timeout_us"))),
        ]
        for row in rows[:MOST_GROUPS]
    ]
    return DataTable(
        "learned-groups",
        "Timeouts of groups of devices",
        TABLE,
        caption="The weight is how much the group’s own quantile counts against that of the whole method."
        + (f" The {MOST_GROUPS} busiest of {len(rows)} groups." if len(rows) > MOST_GROUPS else "")
        + (f" {few} more have too few responses; they get the timeout of their method." if few else ""),
        heads=heads,
        rows=cells,
        empty="" if cells else "No group had enough responses to learn from; all get the timeout of their method.",
    )


def _tests(rows: list[Row]) -> DataTable:
    heads = [Head("Commands", numeric=False), Head("responses"), Head("too late"), Head("in force"), Head("waiting")]
    heads += [Head("in force"), Head("saved"), Head("share")]
    cells = [
        [
            Cell("all" if row.get("grain") == "all" else clean(row.get("method")), clean(row.get("profile") or "")),
            Cell(count(row.get("responses"))),
            Cell(share(row.get("wrong_share")), count(row.get("wrong"))),
            Cell(share(row.get("wrong_logged_share")), count(row.get("wrong_logged"))),
            Cell(_waiting(row.get("waited_s"))),
            Cell(_waiting(row.get("waited_logged_s"))),
            Cell(_waiting(row.get("saved_s"))),
            Cell(share(row.get("saved_share"))),
        ]
        for row in rows
    ]
    return DataTable(
        "learned-test",
        "Tested on hours held out",
        TEST,
        caption="Responses that would have come after the learned timeout (an upper bound), and after the one in "
        "force; the time that callers would have waited, and did.",
        heads=heads,
        rows=cells,
        empty="" if cells else "No hours were held out.",
    )
