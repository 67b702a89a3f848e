"""What one wants to know first: the headline numbers, what is flagged, and the methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from app.analysis.report.data import Output
from app.analysis.report.plots import Cell, DataTable, Head, Section
from app.analysis.report.text import clean, code, count, duration, instant, share, span, with_unit

MOST_FLAGS: Final = 30
MOST_METHODS: Final = 60
MOST_FIGURES: Final = 60


@dataclass(frozen=True, slots=True)
class Figure:
    """A headline number and the query that made it."""

    anchor: str
    title: str
    value: str
    table: str
    query: str


@dataclass(frozen=True, slots=True)
class Flag:
    """Something that is not as it should be."""

    sentence: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Title:
    """The head of the page."""

    period: str
    facts: tuple[str, ...]


def title(output: Output) -> Title:
    """What was analysed."""
    log, period = output.section("log"), output.section("period")
    begin, end = period.get("from") or log.get("from"), period.get("to") or log.get("to")
    facts = [f"{with_unit(log.get('records'), 'records')} records", f"{with_unit(log.get('files'), '')} files"]
    if log.get("location"):
        facts.append(f"from {clean(log['location'], 200)}")
    when = span(begin, end) if instant(begin) and instant(end) else "An empty log"
    return Title(when, tuple(facts))


def figures(output: Output) -> list[Figure]:
    """The headline numbers of the summary, in its order."""
    found: list[Figure] = []
    for entry in output.listed("figures")[:MOST_FIGURES]:
        table, name = clean(entry.get("table") or ""), clean(entry.get("name") or "")
        where = entry.get("where")
        query = " ".join(
            ("SELECT", str(entry.get("column") or name), "FROM", table, *(("WHERE", str(where)) if where else ()))
        )
        value = with_unit(entry.get("value"), str(entry.get("unit") or ""))
        found.append(Figure(f"figure-{len(found) + 1}", clean(entry.get("title") or name), value, table, code(query)))
    return found


def flags(output: Output) -> list[Flag]:
    """The anomalies, the most certain first."""
    found = []
    for row in output.listed("anomalies")[:MOST_FLAGS]:
        sentence = clean(row.get("sentence") or f"{row.get('subject')}: {row.get('measure')}", 400)
        found.append(Flag(sentence, f"on {count(row.get('records'))} records"))
    return found


_COLUMNS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("commands", "commands", count),
    ("p50_us", "p50", duration),
    ("p90_us", "p90", duration),
    ("p99_us", "p99", duration),
    ("p999_us", "p99.9", duration),
    ("max_us", "max", duration),
    ("failed_share", "failed", share),
    ("timed_out_share", "timed out", share),
)


def methods(output: Output) -> Section:
    """Percentiles and outcomes by method, the busiest first."""
    rows = sorted(
        output.rows("latency", "method"), key=lambda row: (-(row.get("commands") or 0), str(row.get("method")))
    )
    cells = []
    for row in rows[:MOST_METHODS]:
        values = [Cell(show(row.get(name))) for name, _, show in _COLUMNS]
        sure = f"{duration(row.get('p99_low_us'))} to {duration(row.get('p99_high_us'))}"
        values[3] = Cell(values[3].text, sure)
        cells.append([Cell(clean(row.get("method")), clean(row.get("profile"))), *values])
    block = DataTable(
        "methods-table",
        "Latency and outcomes by method",
        "latency",
        caption="Percentiles are of answered commands; under the p99 is its 95 % interval. The busiest method first."
        + (f" {MOST_METHODS} of {len(rows)} methods." if len(rows) > MOST_METHODS else ""),
        heads=[Head("Method", numeric=False), *(Head(head) for _, head, _ in _COLUMNS)],
        rows=cells,
        empty="" if cells else "There are no commands in this period.",
    )
    return Section("methods", "Methods", blocks=(block,))
