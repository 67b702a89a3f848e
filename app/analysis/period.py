"""The third step: tables, learned deadlines, the summary and the report, from the rollups of any period."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.analysis import contracts
from app.analysis.compact import Progress
from app.analysis.contracts import DEADLINES, DEADLINES_TEST, QUARANTINE, QUERIED, ROLLUPS, SUMMARY_NAME, Table
from app.analysis.deadlines import Cell, back_test, cut_of, recommend, samples, timeouts_of
from app.analysis.deadlines_file import FILE_NAME as TIMEOUTS_NAME
from app.analysis.deadlines_file import render as render_timeouts
from app.analysis.judgement import Comparison, anomalies, change
from app.analysis.lake import COMPACT, ROLLUP, Day, Lake, rows_of
from app.analysis.options import AnalyzeOptions, midnight
from app.analysis.queries import deadline_cells, table_queries, views
from app.analysis.report.page import REPORT_NAME, render
from app.analysis.session import prepared
from app.analysis.source import LATENCY, MEANINGS
from app.analysis.summary import as_json, summarize
from app.analysis.texts import put_text, take_away
from app.core.errors import ConfigurationError

HOUR: Final = timedelta(hours=1)
_DAY: Final = 24
_AT_ONCE: Final = 3
"""Small queries mostly wait for the planner."""
_WITH_BEFORE: Final = (contracts.LATENCY_HOURLY,)
_HELD: Final = ("hourly_cell", "hourly", "stage_cell", "device_cell", "device")
"""Views that several queries read: computed once, and small beside the records."""
_SMALL: Final = 3_000_000
"""Records of a period whose rollups are put into one partition, after which no query on them shuffles."""
_OF_SMALL: Final = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}
_SHOWN: Final = 20_000
"""Rows of a table that the report may look at."""


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
    take_away(options.out, SUMMARY_NAME)
    small = sum(day.records for day in days) <= _SMALL
    with prepared(lake.spark, _OF_SMALL if small else {}), ExitStack() as held:
        return _report(lake, options, days, held, progress)


def _report(
    lake: Lake, options: AnalyzeOptions, days: list[Day], held: ExitStack, progress: Progress
) -> dict[str, Any]:
    period = _define(lake, options, [day for day in days if day.records], held)
    queries = table_queries(options.max_pending) | {
        "change": change(period.compared, options.level),
        "anomalies": anomalies(options.level),
    }
    rows = _write(lake, queries, progress)
    progress(0.8, "deadlines")
    texts = _learn(lake, options, period, rows)
    rows["quarantine"] = _quarantine(lake, options, days)
    for table in (DEADLINES, DEADLINES_TEST, QUARANTINE):
        _put(lake, table, rows[table.name])
    progress(0.95, "report.html")
    summary = summarize(options, period, days, queries, rows)
    put_text(options.out, TIMEOUTS_NAME, texts)
    put_text(options.out, REPORT_NAME, render(summary, rows))
    put_text(options.out, SUMMARY_NAME, as_json(summary))
    progress(1.0, "done")
    return summary


def _nothing(days: list[Day], options: AnalyzeOptions) -> str:
    if not days:
        period = f" from {options.begin}" if options.begin else ""
        return f"no day{period} was rolled up; `homing rollup` does that"
    return f"no record can be used ({sum(day.left_out for day in days):,} records and some files are in quarantine)"


def _define(lake: Lake, options: AnalyzeOptions, days: list[Day], held: ExitStack) -> Period:
    """The views that the queries read, and the period."""
    begin, small = options.begin, sum(day.records for day in days) <= _SMALL
    own = [day for day in days if begin is None or day.date >= begin.isoformat()]
    for one in ROLLUPS:
        frame = lake.rollup(one, days if one in _WITH_BEFORE else own)
        (frame.coalesce(1) if small else frame).createOrReplaceTempView(one.name)
    found = lake.spark.sql("SELECT DISTINCT unix_seconds(hour) AS at FROM latency_hourly").collect()
    hours = sorted(datetime.fromtimestamp(row["at"], UTC) for row in found)
    period = period_of(hours, None if begin is None else midnight(begin), options)
    for name, text in views(round(period.begin.timestamp())).items():
        frame = lake.spark.sql(text)
        if name in _HELD:
            frame = frame.cache()
            held.callback(frame.unpersist)
        frame.createOrReplaceTempView(name)
    return period


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


def _write(lake: Lake, queries: dict[str, str], progress: Progress) -> dict[str, list[dict[str, Any]]]:
    """Write the tables that are queries; their first rows."""
    done = 0

    def write(table: Table) -> list[dict[str, Any]]:
        frame = lake.spark.sql(queries[table.name]).selectExpr(*(_cast(column) for column in table.columns))
        lake.write(
            f"tables/{table.name}",
            frame.coalesce(1).sortWithinPartitions(*table.key) if table.key else frame.coalesce(1),
        )
        return _read(lake, table)

    rows = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for table, found in zip(QUERIED, pool.map(write, QUERIED), strict=True):
            rows[table.name] = found
            done += 1
            progress(0.8 * done / len(QUERIED), f"table {table.name}")
    return rows


def _cast(column: contracts.Column) -> str:
    if column.type == "double":  # tasks add up in any order: nine digits are the same each time
        return f"CAST(format_string('%.8e', CAST({column.name} AS DOUBLE)) AS DOUBLE) AS {column.name}"
    return f"CAST({column.name} AS {column.type}) AS {column.name}"


def _read(lake: Lake, table: Table) -> list[dict[str, Any]]:
    schema = ", ".join(f"{column.name} {column.type}" for column in table.columns)
    frame = lake.spark.read.schema(schema).parquet(f"{lake.root}/tables/{table.name}")
    if table.name == "devices":
        frame = frame.where(f"slow_rank <= {_SHOWN} OR flaky_rank <= {_SHOWN}")
    seconds = [column.name for column in table.columns if column.type == "timestamp"]
    frame = frame.selectExpr(*(f"unix_micros({name}) AS {name}" if name in seconds else name for name in table.names))
    rows = [row.asDict() for row in frame.limit(_SHOWN).collect()]
    for row in rows:
        for name in seconds:
            row[name] = None if row[name] is None else datetime.fromtimestamp(row[name] / 1e6, UTC)
    return rows


def _put(lake: Lake, table: Table, rows: list[dict[str, Any]]) -> None:
    schema = ", ".join(f"{column.name} {column.type}" for column in table.columns)
    lake.write(f"tables/{table.name}", rows_of(lake.spark, rows, schema).coalesce(1))


def _learn(lake: Lake, options: AnalyzeOptions, period: Period, rows: dict[str, list[dict[str, Any]]]) -> str:
    """Rows of `deadlines` and `deadlines_test`; the text of timeouts.toml."""
    wanted, last = options.deadlines, period.hours[-1]
    cut = cut_of(period.begin, last, wanted.held_out)
    text = deadline_cells(round(cut.timestamp()), wanted.least)
    cells = [Cell(*row) for row in lake.spark.sql(text).collect()]
    learned = recommend(samples(cells, training=False), wanted)
    earlier = timeouts_of(recommend(samples(cells, training=True), wanted))
    rows["deadlines"], rows["deadlines_test"] = learned, back_test(cells, earlier)
    return render_timeouts(learned, wanted, options.device_group, period.begin, last + HOUR)


def _quarantine(lake: Lake, options: AnalyzeOptions, days: list[Day]) -> list[dict[str, Any]]:
    own = [day for day in days if options.begin is None or day.date >= options.begin.isoformat()]
    frame = lake.rollup(contracts.QUARANTINE_DAILY, _as_compacted(lake, own))
    frame.createOrReplaceTempView("left_out")
    found = lake.spark.sql(
        "SELECT reason, sum(files) AS files, sum(records) AS records, min(example) AS example "
        "FROM left_out GROUP BY reason"
    ).collect()
    rows = {row.reason: row for row in found}
    return [
        {"reason": reason, "meaning": meaning, **{name: rows[reason][name] for name in ("files", "records", "example")}}
        for reason, meaning in MEANINGS.items()
        if reason in rows
    ]


def _as_compacted(lake: Lake, days: list[Day]) -> list[Day]:
    compacted = lake.days(COMPACT, LATENCY)
    return [compacted[day.date] for day in days if day.date in compacted]
