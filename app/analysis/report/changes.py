"""What changed against the period before."""

from __future__ import annotations

import math
from typing import Any, Final

from app.analysis.report.data import Output, Row
from app.analysis.report.plots import (
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
from app.analysis.report.text import clean, count, digits, duration, known, probability, ratio, sample, share, span

MOST_ROWS: Final = 24
MOST_QUIET: Final = 8
"""Rows that are not notable."""
_TESTS: Final = {"unanswered": "share timed out", "median": "median latency", "tail": "share over the old p99"}


def change(output: Output) -> Section:
    """The ratio of each value to that of the period before, the notable ones first."""
    title = "Change against the period before"
    compared = output.section("period").get("compared")
    rows = sorted(output.rows("change"), key=_importance)
    if not isinstance(compared, dict) or not rows:
        why = output.section("period").get("why_not")
        sentence = f"There is no period before to compare with{f': {clean(why, 300)}' if why else ''}."
        return Section("change", title, blocks=(RowPlot("change-plot", title, "change", empty=sentence),))
    notable = sum(bool(row.get("notable")) for row in rows)
    lead: Sentence = (
        f"{_span(compared.get('after'))}, compared with {_span(compared.get('before'))}: ",
        Number(count(notable), "change"),
        " of ",
        Number(count(len(rows)), "change"),
        " values changed notably.",
    )
    shown = rows[: min(MOST_ROWS, notable + MOST_QUIET)]
    return Section("change", title, (lead,), (_plot(shown, len(rows)),))


def _span(period: object) -> str:
    return span(period.get("from"), period.get("to")) if isinstance(period, dict) else "no period"


def _importance(row: Row) -> tuple[Any, ...]:
    times = row.get("ratio")
    distance = abs(math.log(times)) if times is not None and known(times) and times > 0 else 0.0
    return (not row.get("notable"), not row.get("significant"), -distance, str(row.get("method")), str(row.get("test")))


def _plot(rows: list[Row], total: int) -> RowPlot:
    scale = log_scale([1.0, *(row["ratio"] for row in rows if known(row.get("ratio")))])
    left_out = f" The first {len(rows)} of {total}." if total > len(rows) else ""
    return RowPlot(
        "change-plot",
        "Now against before",
        "change",
        caption="The ratio of now to before, logarithmic; on the right of the dashed line it grew. Notable: sure (the "
        f"q-value, which allows for the number of tests, is under the level) and large enough to matter.{left_out}",
        alt=f"Ratio of now to before of {len(rows)} values, the notable ones first.",
        rows=[_row(scale, row) for row in rows],
        heads=("What", "Ratio", "Before → now"),
        ticks=[Tick(scale.percent(value), f"{digits(value, trim=True)} ×") for value in log_values(scale)],
        keys=[Key("dot dot-notable", "notable"), Key("dot dot-quiet", "not notable"), Key("reference", "no change")],
    )


def _row(scale: Scale, row: Row) -> PlotRow:
    show = duration if row.get("test") == "median" else share
    marks = [Mark("reference", upright(scale(1)))]
    if known(row.get("ratio")):
        css = "notable" if row.get("notable") else "quiet"
        marks.append(Mark(f"stem stem-{css}", rule(*sorted((scale(1), scale(row["ratio"]))))))
        marks.append(Mark(f"dot dot-{css}", dot(scale(row["ratio"]))))
    what = row.get("method") or row.get("node") or "all commands"
    profile = f" ({clean(row['profile'])})" if row.get("profile") else ""
    return PlotRow(
        f"{clean(what)}{profile}",
        marks,
        f"{show(row.get('before'))} → {show(row.get('after'))}",
        f"{ratio(row.get('ratio'))}, q = {probability(row.get('q'))}, {sample(row.get('after_records'))}".replace(
            "q = <", "q <"
        ),
        note=_TESTS.get(str(row.get("test")), clean(row.get("test"))),
    )
