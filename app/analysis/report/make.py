"""The third step: tables, learned deadlines, the summary and the page, from the rollups of any period; no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import duckdb

from app.analysis import contracts
from app.analysis.compact import Progress
from app.analysis.contracts import DEADLINES, ROLLUPS, SUMMARY_NAME, TABLES
from app.analysis.deadlines import cut_of
from app.analysis.deadlines_file import FILE_NAME as TIMEOUTS_NAME
from app.analysis.deadlines_file import render as render_timeouts
from app.analysis.lake import COMPACT, ROLLUP, Day, Lake, Rows
from app.analysis.options import AnalyzeOptions, midnight
from app.analysis.places import as_json
from app.analysis.report.page import REPORT_NAME, render
from app.analysis.report.summary import summarize
from app.analysis.report.tables import Comparison, Statement, database, define, read_rollup, rows_of, shown, statements
from app.analysis.source import EVENTS, LATENCY
from app.core.errors import ConfigurationError

HOUR: Final = timedelta(hours=1)
_DAY: Final = 24
_SHOWN: Final = 20_000
"""Rows of a table that the page may look at."""


@dataclass(frozen=True, slots=True)
class Period:
    """Hours that a report is about, what they are compared with, and why with nothing."""

    begin: datetime
    end: datetime
    hours: tuple[datetime, ...]
    """Those that have records."""
    compared: Comparison | None
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
    timeouts = render_timeouts(
        rows[DEADLINES.name], wanted, options.device_group, period.begin, period.hours[-1] + HOUR
    )
    progress(0.95, REPORT_NAME)
    summary = summarize(options, period, days, {one.name: one.sql for one in found if one.kind == "table"}, rows)
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
    own = {day.date: day.run for day in days if options.begin is None or day.date >= options.begin.isoformat()}
    compacted = lake.days(COMPACT, LATENCY)
    for one in ROLLUPS:
        runs = {day.date: day.run for day in days} if one is contracts.LATENCY_HOURLY else own
        if one is contracts.QUARANTINE_DAILY:
            runs = {date: compacted[date].run for date in own if date in compacted}
        read_rollup(base, lake, one, runs or {"": ""})
    first = "" if options.begin is None else options.begin.isoformat()
    found = lake.days(ROLLUP, EVENTS)
    of_events = {date: day.run for date, day in found.items() if date >= first and options.wants(date)}
    for one in contracts.EVENT_ROLLUPS:
        read_rollup(base, lake, one, of_events or {"": ""})
    hours = base.sql("SELECT DISTINCT hour FROM latency_hourly ORDER BY hour").to_arrow_table()["hour"].to_pylist()
    return period_of(hours, None if options.begin is None else midnight(options.begin), options)


def period_of(hours: list[datetime], begin: datetime | None, options: AnalyzeOptions) -> Period:
    """From the hours that have records, the period before included."""
    first, end = begin or hours[0], hours[-1] + HOUR
    if hours[-1] < first:
        raise ConfigurationError(f"{options.out}: no records from {first:%Y-%m-%d} on")
    own = tuple(hour for hour in hours if hour >= first)
    if begin is not None:
        if hours[0] < first:
            return Period(first, end, own, Comparison((hours[0], first), (first, end)), None)
        return Period(first, end, own, None, f"there is nothing from before {first:%Y-%m-%d}")
    length = (end - first) // HOUR
    if length < 2:  # noqa: PLR2004 - one has no half
        return Period(first, end, own, None, "the log covers one hour only")
    part = _DAY if length >= 2 * _DAY else length // 2
    middle = end - part * HOUR
    return Period(first, end, own, Comparison((middle - part * HOUR, middle), (middle, end)), None)


def _write(base: duckdb.DuckDBPyConnection, lake: Lake, found: list[Statement], progress: Progress) -> Rows:
    """Write the tables; what the page shows of them, and all of `deadlines`."""
    queries = {one.name: one.sql for one in found if one.kind == "table"}
    rows = {}
    for number, table in enumerate(TABLES):
        progress(0.95 * number / len(TABLES), f"table {table.name}")
        made = rows_of(base, table, queries[table.name])
        lake.put_rows(f"tables/{table.name}", made)
        rows[table.name] = shown(table, made, made.num_rows if table is DEADLINES else _SHOWN)
    return rows
