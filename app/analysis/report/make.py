"""The third step: tables, learned deadlines, the summary and the page, from the rollups of any period; no Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

import duckdb

from app.analysis.buckets import RELATIVE_ERROR
from app.analysis.compact import Progress
from app.analysis.contracts import EVENT_ROLLUPS, LATENCY_HOURLY, ROLLUPS, SUMMARY_NAME, SUMMARY_VERSION, TABLES
from app.analysis.deadlines import TIMEOUTS_NAME, cut_of, timeouts_file
from app.analysis.lake import COMPACT, ROLLUP, Day, Lake, Row, Rows
from app.analysis.options import AnalyzeOptions
from app.analysis.places import as_json
from app.analysis.report.page import REPORT_NAME, render
from app.analysis.report.tables import Compared, Statement, database, define, read_rollup, rows_of, shown, statements
from app.analysis.source import EVENTS, LATENCY
from app.core.errors import ConfigurationError

HOUR: Final = timedelta(hours=1)
_DAY: Final = 24
_SHOWN: Final = 20_000
"""Rows of a table that the page may look at."""
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


@dataclass(frozen=True, slots=True)
class Period:
    """Hours that a report is about, what they are compared with, and why with nothing."""

    begin: datetime
    end: datetime
    hours: tuple[datetime, ...]
    """Those that have records."""
    compared: Compared | None
    why_not: str | None

    @property
    def missing(self) -> list[datetime]:
        """Hours between the first and the last that have no records."""
        there = set(self.hours)
        count = (self.hours[-1] - self.hours[0]) // HOUR
        return [hour for step in range(count) if (hour := self.hours[0] + step * HOUR) not in there]


def report(lake: Lake, options: AnalyzeOptions, progress: Progress) -> dict[str, Any]:
    """Write all tables, timeouts.toml, report.html and summary.json, which comes last. Returns the summary."""
    days = [day for date, day in lake.days(ROLLUP, LATENCY).items() if options.wants(date)]
    if not any(day.records for day in days):
        raise ConfigurationError(f"{options.out}: {_nothing(days, options)}")
    progress(0.0, f"report of {len(days):,} days, {sum(day.records for day in days):,} records")
    lake.place.remove(SUMMARY_NAME)
    with database(options.memory) as base:
        period = _read(base, lake, options, days)
        wanted = options.deadlines
        found = statements(
            period.compared,
            begin=period.begin.timestamp(),
            cut=cut_of(period.begin, period.hours[-1], wanted.held_out).timestamp(),
            level=options.level,
            max_pending=options.max_pending,
            **wanted.as_json(),
        )
        define(base, found)
        rows = _write(base, lake, found, progress)
    timeouts = timeouts_file(rows["deadlines"], wanted, options.device_group, period.begin, period.hours[-1] + HOUR)
    progress(0.95, REPORT_NAME)
    summary = _summarize(options, period, days, {one.name: one.sql for one in found if one.kind == "table"}, rows)
    lake.place.write(TIMEOUTS_NAME, timeouts.encode())
    lake.place.write(REPORT_NAME, render(summary, rows).encode())
    lake.place.write(SUMMARY_NAME, as_json(summary))
    progress(1.0, "done")
    return summary


def _nothing(days: list[Day], options: AnalyzeOptions) -> str:
    if not days:
        period = f" from {options.begin}" if options.begin else ""
        return f"no day{period} was rolled up; `homing rollup` does that"
    return f"no record can be used ({sum(day.left_out for day in days):,} records and some files are in quarantine)"


def _read(base: duckdb.DuckDBPyConnection, lake: Lake, options: AnalyzeOptions, days: list[Day]) -> Period:
    """The views of the rollups, of which one has the period before, too; and the period."""
    begin = "" if options.begin is None else options.begin.isoformat()
    of_events = [day for date, day in lake.days(ROLLUP, EVENTS).items() if options.wants(date)]
    for source, found, rollups in ((LATENCY, days, ROLLUPS), (EVENTS, of_events, EVENT_ROLLUPS)):
        compacted = lake.days(COMPACT, source)
        for one in rollups:
            since = "" if one is LATENCY_HOURLY else begin
            runs = {day.date: day.run for day in found if day.date >= since}
            if one.name == source.quarantine:
                runs = {date: compacted[date].run for date in runs if date in compacted}
            read_rollup(base, lake, one, runs or {"": ""})
    hours = base.sql("SELECT DISTINCT hour FROM latency_hourly ORDER BY hour").to_arrow_table()["hour"].to_pylist()
    return period_of(hours, None if options.begin is None else datetime.combine(options.begin, time(), UTC), options)


def period_of(hours: list[datetime], begin: datetime | None, options: AnalyzeOptions) -> Period:
    """From the hours that have records. Without a begin, its last day (or half) is compared with the one before."""
    first, end = begin or hours[0], hours[-1] + HOUR
    if hours[-1] < first:
        raise ConfigurationError(f"{options.out}: no records from {first:%Y-%m-%d} on")
    since, middle, why_not = hours[0], first, f"there is nothing from before {first:%Y-%m-%d}"
    if begin is None:
        length = (end - first) // HOUR
        part = HOUR * (_DAY if length >= 2 * _DAY else length // 2)
        since, middle, why_not = end - 2 * part, end - part, "the log covers one hour only"
    compared = {"before": {"from": since, "to": middle}, "after": {"from": middle, "to": end}}
    own = tuple(hour for hour in hours if hour >= first)
    there = since < middle
    return Period(first, end, own, compared if there else None, None if there else why_not)


def _write(base: duckdb.DuckDBPyConnection, lake: Lake, found: list[Statement], progress: Progress) -> Rows:
    """Write the tables; what the page shows of them, and all of `deadlines`."""
    queries = {one.name: one.sql for one in found if one.kind == "table"}
    rows = {}
    for number, table in enumerate(TABLES):
        progress(0.95 * number / len(TABLES), f"table {table.name}")
        made = rows_of(base, table, queries[table.name])
        lake.put_rows(f"tables/{table.name}", made)
        rows[table.name] = shown(table, made, made.num_rows if table.name == "deadlines" else _SHOWN)
    return rows


def _summarize(
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
