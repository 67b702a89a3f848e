"""summary.json: what was read, what was left out, the headline numbers and where each comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from app.analysis.cells import Span
from app.analysis.judgement import Comparison
from app.analysis.log import Log
from app.analysis.options import AnalyzeOptions
from app.analysis.output import instant
from app.analysis.tables import RELATIVE_ERROR, SUMMARY_VERSION, TABLES, Unit

Rows = Callable[[str], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the summary is made of, besides the rows of the tables."""

    options: AnalyzeOptions
    log: Log
    span: Span
    compared: Comparison | None
    why_not: str | None
    queries: dict[str, str]
    views: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Figure:
    name: str
    title: str
    table: str
    column: str
    where: dict[str, Any]


_ALL: Final = {"grain": "all"}
_FORWARDED: Final = {"grain": "forwarded", "forwarded": True}
_LOCAL: Final = {"grain": "forwarded", "forwarded": False}
_FIGURES: Final = (
    _Figure("commands", "Finished callbacks", "latency", "commands", _ALL),
    _Figure("succeeded_share", "Succeeded", "latency", "succeeded_share", _ALL),
    _Figure("failed_share", "Failed", "latency", "failed_share", _ALL),
    _Figure("timed_out_share", "Timed out", "latency", "timed_out_share", _ALL),
    _Figure("p50_us", "Median latency", "latency", "p50_us", _ALL),
    _Figure("p90_us", "90th percentile", "latency", "p90_us", _ALL),
    _Figure("p99_us", "99th percentile", "latency", "p99_us", _ALL),
    _Figure("p999_us", "99.9th percentile", "latency", "p999_us", _ALL),
    _Figure("max_us", "Longest", "latency", "max_us", _ALL),
    _Figure("forwarded_share", "Responses forwarded", "forwarding", "share", _FORWARDED),
    _Figure("hop_forwarded_p50_us", "Median hop, forwarded", "forwarding", "hop_p50_us", _FORWARDED),
    _Figure("hop_local_p50_us", "Median hop, local", "forwarding", "hop_p50_us", _LOCAL),
    _Figure("arrivals_mean", "Commands per second", "capacity", "arrivals_mean", {"node": "all"}),
    _Figure("arrivals_peak", "Commands per second, busiest 10 s", "capacity", "arrivals_peak", {"node": "all"}),
    _Figure("in_flight_mean", "In flight on average", "capacity", "in_flight_mean", {"node": "all"}),
    _Figure("in_flight_peak", "Most in flight", "capacity", "in_flight_peak", {"node": "all"}),
    _Figure("headroom", "Limit over the most in flight", "capacity", "headroom", {"node": "all"}),
)


def summarize(facts: Facts, rows: Rows) -> dict[str, Any]:
    """The content of summary.json; see SUMMARY in app/analysis/tables.py."""
    content = {table.name: rows(table.name) for table in TABLES}
    options, span, log = facts.options, facts.span, facts.log
    hours = log.hours
    return {
        "version": SUMMARY_VERSION,
        "log": {
            "location": options.log,
            "from": instant(hours[0]),
            "to": instant(hours[-1]),
            "hours": len(hours),
            "missing_hours": [instant(hour) for hour in log.missing_hours],
            "files": len(log.files),
            "records": sum(file.records for file in log.files),
            "schema_versions": log.versions,
        },
        "period": {
            "from": instant(span.begin),
            "to": instant(span.end),
            "compared": _compared(facts.compared),
            "why_not": facts.why_not,
        },
        "options": {
            "from": options.begin and instant(options.begin),
            "to": options.end and instant(options.end),
            "compare_to": options.compare_to and instant(options.compare_to),
            "max_pending": options.max_pending,
            "top": options.top,
            "level": options.level,
            "device_group": options.device_group,
            "deadlines": options.deadlines.as_json(),
        },
        "relative_error": RELATIVE_ERROR,
        "quarantined": content["quarantine"],
        "figures": [figure for one in _FIGURES if (figure := _figure(one, content)) is not None],
        "anomalies": [{**row, "sentence": sentence(row)} for row in content["anomalies"]],
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "grain": table.grain,
                "rows": len(content[table.name]),
                "query": facts.queries.get(table.name, "-- what reading the log left out: app/analysis/log.py"),
                "columns": [
                    {"name": one.name, "type": one.type, "unit": one.unit, "meaning": one.meaning}
                    for one in table.columns
                ],
            }
            for table in TABLES
        ],
        "views": facts.views,
    }


def sentence(row: dict[str, Any]) -> str:
    """An anomaly in words."""
    seen, usual, times = row["value"], row["expected"], row["ratio"]
    if row["measure"] == "unanswered":
        what = "commands without success" if row["kind"] == "device_group" else "commands timed out"
        return f"{_who(row)}: {seen:.1%} of {row['records']:,} {what}, against {usual:.1%}"
    if row["kind"] == "node":
        return f"{_who(row)}: its own work takes {times:.1f} × as long as the other nodes'"
    if row["kind"] == "method":
        since = row["since"].strftime("%Y-%m-%d")
        return f"{_who(row)}: takes {times:.1f} × as long since {since} as before"
    against = "other groups of its profile" if row["kind"] == "device_group" else "the methods' median hour"
    return f"{_who(row)}: responses take {times:.1f} × as long as in {against}"


def _who(row: dict[str, Any]) -> str:
    kind = {"node": "Node", "hour": "Hour", "method": "Method", "device_group": "Device group"}[row["kind"]]
    return f"{kind} {row['subject']}"


def _compared(compared: Comparison | None) -> dict[str, Any] | None:
    if compared is None:
        return None
    return {
        "before": {"from": instant(compared.before[0]), "to": instant(compared.before[1])},
        "after": {"from": instant(compared.after[0]), "to": instant(compared.after[1])},
    }


def _figure(figure: _Figure, content: dict[str, list[dict[str, Any]]]) -> dict[str, Any] | None:
    for row in content[figure.table]:
        if all(row[name] == value for name, value in figure.where.items()):
            where = " AND ".join(f"{name} = {_literal(value)}" for name, value in figure.where.items())
            return {
                "name": figure.name,
                "title": figure.title,
                "value": row[figure.column],
                "unit": _unit(figure),
                "table": figure.table,
                "column": figure.column,
                "where": where,
            }
    return None


def _unit(figure: _Figure) -> str:
    table = next(table for table in TABLES if table.name == figure.table)
    return next((str(one.unit) for one in table.columns if one.name == figure.column), str(Unit.NONE))


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"'{value}'"
