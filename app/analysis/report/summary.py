"""summary.json: what was read, what was left out, the headline numbers and where each comes from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from app.analysis.buckets import RELATIVE_ERROR
from app.analysis.contracts import SUMMARY_VERSION, TABLES, Unit
from app.analysis.lake import Day
from app.analysis.options import AnalyzeOptions
from app.analysis.report.tables import Comparison

if TYPE_CHECKING:
    from app.analysis.report.make import Period

Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Figure:
    name: str
    title: str
    table: str
    column: str
    where: dict[str, Any]


_ALL: Final[dict[str, Any]] = {}
_FORWARDED: Final = {"forwarded": True}
_LOCAL: Final = {"forwarded": False}
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
    _Figure("forwarded_share", "Responses forwarded", "hops", "share", _FORWARDED),
    _Figure("hop_forwarded_p50_us", "Median hop, forwarded", "hops", "hop_p50_us", _FORWARDED),
    _Figure("hop_local_p50_us", "Median hop, local", "hops", "hop_p50_us", _LOCAL),
    _Figure("arrivals_mean", "Commands per second", "capacity", "arrivals_mean", {"node": "all"}),
    _Figure("arrivals_peak", "Commands per second, busiest 10 s", "capacity", "arrivals_peak", {"node": "all"}),
    _Figure("in_flight_mean", "In flight on average", "capacity", "in_flight_mean", {"node": "all"}),
    _Figure("in_flight_peak", "Most in flight", "capacity", "in_flight_peak", {"node": "all"}),
    _Figure("headroom", "Limit over the most in flight", "capacity", "headroom", {"node": "all"}),
)


def summarize(
    options: AnalyzeOptions, period: Period, days: list[Day], queries: dict[str, str], rows: Rows
) -> dict[str, Any]:
    """Nothing in it depends on when or how fast it ran: twice gives the same."""
    return {
        "version": SUMMARY_VERSION,
        "log": {
            "location": options.log or options.out,
            "from": instant(period.hours[0]),
            "to": instant(period.hours[-1]),
            "hours": len(period.hours),
            "missing_hours": [instant(hour) for hour in period.missing],
            "days": len(days),
            "files": sum(day.files for day in days),
            "records": sum(day.records + day.left_out for day in days),
        },
        "period": {
            "from": instant(period.begin),
            "to": instant(period.end),
            "compared": _compared(period.compared),
            "why_not": period.why_not,
        },
        "options": {
            "from": options.begin and str(options.begin),
            "to": options.end and str(options.end),
            "compare_to": options.compare_to and str(options.compare_to),
            "max_pending": options.max_pending,
            "level": options.level,
            "device_group": options.device_group,
            "deadlines": options.deadlines.as_json(),
        },
        "relative_error": RELATIVE_ERROR,
        "quarantined": rows["quarantine"],
        "figures": [figure for one in _FIGURES if (figure := _figure(one, rows)) is not None],
        "anomalies": [{**row, "sentence": sentence(row)} for row in rows["anomalies"]],
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "key": table.key,
                "query": queries[table.name],
                "columns": [
                    {"name": one.name, "type": one.type, "unit": one.unit, "meaning": one.meaning}
                    for one in table.columns
                ],
            }
            for table in TABLES
        ],
    }


def as_json(summary: dict[str, Any]) -> str:
    """The file."""
    return json.dumps(summary, indent=1, default=_plain, allow_nan=False, ensure_ascii=False) + "\n"


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return instant(value)
    raise TypeError(type(value).__name__)


def instant(value: datetime) -> str:
    """As summary.json has it: 2026-11-21T07:00:00Z."""
    return value.strftime("%Y-%m-%dT%H:%M:%SZ")


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


def _figure(figure: _Figure, content: Rows) -> dict[str, Any] | None:
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
