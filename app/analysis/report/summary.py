"""summary.json: what was read, what was left out, the headline numbers and where each comes from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

from app.analysis.buckets import RELATIVE_ERROR
from app.analysis.contracts import SUMMARY_VERSION, TABLES
from app.analysis.lake import Day, Row, Rows
from app.analysis.options import AnalyzeOptions

if TYPE_CHECKING:
    from app.analysis.report.make import Period

_UNITS: Final = {table.name: table.units for table in TABLES}
_ROWS: Final[dict[str, Callable[[Row], bool]]] = {
    "": lambda _row: True,
    "forwarded = true": lambda row: row["forwarded"] is True,
    "forwarded = false": lambda row: row["forwarded"] is False,
    "node = 'all'": lambda row: row["node"] == "all",
}
_FIGURES: Final = (
    ("commands", "Finished callbacks", "latency", "commands", ""),
    ("succeeded_share", "Succeeded", "latency", "succeeded_share", ""),
    ("failed_share", "Failed", "latency", "failed_share", ""),
    ("timed_out_share", "Timed out", "latency", "timed_out_share", ""),
    ("p50_us", "Median latency", "latency", "p50_us", ""),
    ("p90_us", "90th percentile", "latency", "p90_us", ""),
    ("p99_us", "99th percentile", "latency", "p99_us", ""),
    ("p999_us", "99.9th percentile", "latency", "p999_us", ""),
    ("max_us", "Longest", "latency", "max_us", ""),
    ("forwarded_share", "Responses forwarded", "hops", "share", "forwarded = true"),
    ("hop_forwarded_p50_us", "Median hop, forwarded", "hops", "hop_p50_us", "forwarded = true"),
    ("hop_local_p50_us", "Median hop, local", "hops", "hop_p50_us", "forwarded = false"),
    ("arrivals_mean", "Commands per second", "capacity", "arrivals_mean", "node = 'all'"),
    ("arrivals_peak", "Commands per second, busiest 10 s", "capacity", "arrivals_peak", "node = 'all'"),
    ("in_flight_mean", "In flight on average", "capacity", "in_flight_mean", "node = 'all'"),
    ("in_flight_peak", "Most in flight", "capacity", "in_flight_peak", "node = 'all'"),
    ("headroom", "Limit over the most in flight", "capacity", "headroom", "node = 'all'"),
)
"""Name, title, table, column and row of each."""
_ANOMALIES: Final = {
    ("node", "latency"): "its own work takes {ratio:.1f} × as long as the other nodes'",
    ("method", "latency"): "takes {ratio:.1f} × as long since {since:%Y-%m-%d} as before",
    ("hour", "latency"): "responses take {ratio:.1f} × as long as in the methods' median hour",
    ("hour", "unanswered"): "{value:.1%} of {records:,} commands timed out, against {expected:.1%}",
    ("device_group", "latency"): "responses take {ratio:.1f} × as long as in other groups of its profile",
    ("device_group", "unanswered"): "{value:.1%} of {records:,} commands without success, against {expected:.1%}",
}


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
            "compared": period.compared,
            "why_not": period.why_not,
        },
        "options": {
            "from": options.begin,
            "to": options.end,
            **{name: getattr(options, name) for name in ("compare_to", "max_pending", "level", "device_group")},
            "deadlines": options.deadlines.as_json(),
        },
        "relative_error": RELATIVE_ERROR,
        "quarantined": rows["quarantine"],
        "figures": list(_figures(rows)),
        "anomalies": [{**row, "sentence": _sentence(row)} for row in rows["anomalies"]],
        "tables": [{**asdict(table), "query": queries[table.name]} for table in TABLES],
    }
    plain: dict[str, Any] = json.loads(json.dumps(summary, default=_plain, allow_nan=False))
    return plain


def _plain(at: date) -> str:
    """A day, or an instant: 2026-11-21T07:00:00Z."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(at, datetime) else at.isoformat()


def _sentence(row: Row) -> str:
    """An anomaly in words."""
    who = f"{row['kind'].replace('_', ' ').capitalize()} {row['subject']}"
    return f"{who}: {_ANOMALIES[row['kind'], row['measure']].format(**row)}"


def _figures(rows: Rows) -> Iterator[Row]:
    for name, title, table, column, where in _FIGURES:
        row = next(filter(_ROWS[where], rows[table]), None)
        if row is not None:
            value = {"name": name, "title": title, "value": row[column], "unit": _UNITS[table][column]}
            yield {**value, "table": table, "column": column, "where": where}
