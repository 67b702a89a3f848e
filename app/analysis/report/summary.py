"""summary.json: what was read, what was left out, the headline numbers and where each comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

from app.analysis.buckets import RELATIVE_ERROR
from app.analysis.contracts import SUMMARY_VERSION, TABLES
from app.analysis.lake import Day, Rows
from app.analysis.options import AnalyzeOptions
from app.analysis.report.tables import Comparison

if TYPE_CHECKING:
    from app.analysis.report.make import Period

_UNITS: Final = {table.name: table.units for table in TABLES}


_FORWARDED: Final = ("forwarded", True)
_LOCAL: Final = ("forwarded", False)
_CLUSTER: Final = ("node", "all")
_FIGURES: Final[tuple[tuple[str, str, str, str, tuple[str, Any] | None], ...]] = (
    ("commands", "Finished callbacks", "latency", "commands", None),
    ("succeeded_share", "Succeeded", "latency", "succeeded_share", None),
    ("failed_share", "Failed", "latency", "failed_share", None),
    ("timed_out_share", "Timed out", "latency", "timed_out_share", None),
    ("p50_us", "Median latency", "latency", "p50_us", None),
    ("p90_us", "90th percentile", "latency", "p90_us", None),
    ("p99_us", "99th percentile", "latency", "p99_us", None),
    ("p999_us", "99.9th percentile", "latency", "p999_us", None),
    ("max_us", "Longest", "latency", "max_us", None),
    ("forwarded_share", "Responses forwarded", "hops", "share", _FORWARDED),
    ("hop_forwarded_p50_us", "Median hop, forwarded", "hops", "hop_p50_us", _FORWARDED),
    ("hop_local_p50_us", "Median hop, local", "hops", "hop_p50_us", _LOCAL),
    ("arrivals_mean", "Commands per second", "capacity", "arrivals_mean", _CLUSTER),
    ("arrivals_peak", "Commands per second, busiest 10 s", "capacity", "arrivals_peak", _CLUSTER),
    ("in_flight_mean", "In flight on average", "capacity", "in_flight_mean", _CLUSTER),
    ("in_flight_peak", "Most in flight", "capacity", "in_flight_peak", _CLUSTER),
    ("headroom", "Limit over the most in flight", "capacity", "headroom", _CLUSTER),
)
"""Name, title, table and column of each, and the value of another column that tells the row."""


def summarize(
    options: AnalyzeOptions, period: Period, days: list[Day], queries: dict[str, str], rows: Rows
) -> dict[str, Any]:
    """What is written: JSON. Nothing in it depends on when or how fast it ran: twice gives the same."""
    summary = {
        "version": SUMMARY_VERSION,
        "log": {
            "location": options.log or options.out,
            "from": period.hours[0],
            "to": period.hours[-1],
            "hours": len(period.hours),
            "missing_hours": period.missing,
            "days": len(days),
            "files": sum(day.files for day in days),
            "records": sum(day.records + day.left_out for day in days),
        },
        "period": {
            "from": period.begin,
            "to": period.end,
            "compared": _compared(period.compared),
            "why_not": period.why_not,
        },
        "options": {
            "from": options.begin,
            "to": options.end,
            "compare_to": options.compare_to,
            "max_pending": options.max_pending,
            "level": options.level,
            "device_group": options.device_group,
            "deadlines": options.deadlines.as_json(),
        },
        "relative_error": RELATIVE_ERROR,
        "quarantined": rows["quarantine"],
        "figures": list(_figures(rows)),
        "anomalies": [{**row, "sentence": sentence(row)} for row in rows["anomalies"]],
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "key": table.key,
                "query": queries[table.name],
                "columns": [asdict(column) for column in table.columns],
            }
            for table in TABLES
        ],
    }
    plain: dict[str, Any] = json.loads(json.dumps(summary, default=_plain, allow_nan=False))
    return plain


def _plain(at: date) -> str:
    """A day, or an instant: 2026-11-21T07:00:00Z."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(at, datetime) else at.isoformat()


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
    ends = {"before": compared.before, "after": compared.after}
    return {side: {"from": begin, "to": end} for side, (begin, end) in ends.items()}


def _figures(rows: Rows) -> Iterator[dict[str, Any]]:
    for name, title, table, column, where in _FIGURES:
        row = next((row for row in rows[table] if where is None or row[where[0]] == where[1]), None)
        if row is not None:
            yield {
                "name": name,
                "title": title,
                "value": row[column],
                "unit": _UNITS[table][column],
                "table": table,
                "column": column,
                "where": "" if where is None else f"{where[0]} = {_literal(where[1])}",
            }


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"'{value}'"
