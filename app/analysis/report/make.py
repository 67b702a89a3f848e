"""The third step: tables, learned deadlines, the summary and the page, from the rollups of any period.

The tables are made by DuckDB, without Spark: rollups are small. Their statements are in tables.sql.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, date, datetime, time
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.analysis.buckets import QUANTILES, RELATIVE_ERROR
from app.analysis.compact import Progress
from app.analysis.contracts import EVENT_ROLLUPS, ROLLUPS, SUMMARY_NAME, SUMMARY_VERSION, TABLES, TableContract
from app.analysis.deadlines import TIMEOUTS_NAME, End, cut_of, timeouts_file
from app.analysis.lake import COMPACT, ROLLUP, Day, Lake, Row, Rows
from app.analysis.options import AnalyzeOptions
from app.analysis.places import as_json
from app.analysis.report.page import REPORT_NAME, TOP, UNITS, render
from app.analysis.report.scales import HOUR
from app.analysis.rollup import STAGES
from app.analysis.source import EVENTS, LATENCY, MEANINGS, OUTCOMES
from app.core.errors import ConfigurationError

_NAME: Final = re.compile(r"^CREATE \w+ (\w+)", re.MULTILINE)
MOST_MISSING: Final = 1_000
"""Hours without a record that the summary names; one record of 1970, or of 2099, makes half a million."""
_SHOWN: Final = 20_000
"""Rows of a table that the page may look at."""
_WORDS: Final = pa.dictionary(pa.int32(), pa.string())
_TABLES: Final = {table.name: table for table in TABLES}
_FORWARDED, _LOCAL, _ALL = "forwarded = true", "forwarded = false", "node = 'all'"
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
    ("forwarded_share", "Responses forwarded", "hops", "share", _FORWARDED),
    ("hop_forwarded_p50_us", "Median hop, forwarded", "hops", "hop_p50_us", _FORWARDED),
    ("hop_local_p50_us", "Median hop, local", "hops", "hop_p50_us", _LOCAL),
    ("arrivals_mean", "Commands per second", "capacity", "arrivals_mean", _ALL),
    ("arrivals_peak", "Commands per second, busiest 10 s", "capacity", "arrivals_peak", _ALL),
    ("in_flight_mean", "In flight on average", "capacity", "in_flight_mean", _ALL),
    ("in_flight_peak", "Most in flight", "capacity", "in_flight_peak", _ALL),
    ("headroom", "Limit over the most in flight", "capacity", "headroom", _ALL),
)
"""Name, title, table, column and row of each."""
_ANOMALIES: Final = {
    ("node", "latency"): "its own work takes {ratio:.1f} × as long as the other nodes'",
    ("method", "latency"): "takes {ratio:.1f} × as long since {since:%Y-%m-%d} as before",
    ("hour", "latency"): "responses take {ratio:.1f} × as long as in the methods' median hour",
    ("hour", "unanswered"): "{value:.1%} of {records:,} commands timed out, against {expected:.1%}",
    ("success", "unsuccessful"): "{value:.1%} of {records:,} did not succeed, and the objective allows {expected:.1%}",
    ("device_group", "latency"): "responses take {ratio:.1f} × as long as in other groups of its profile",
    ("device_group", "unanswered"): "{value:.1%} of {records:,} commands without success, against {expected:.1%}",
}


class Period(NamedTuple):
    """The period of a report.

    Its part from `middle` on is compared with that before it, from `since` on; `why_not` says why with nothing.
    """

    begin: datetime
    end: datetime
    hours: tuple[datetime, ...]
    since: datetime
    middle: datetime
    why_not: str | None


def report(lake: Lake, options: AnalyzeOptions, progress: Progress) -> dict[str, Any]:
    """Write all tables, timeouts.toml, report.html and summary.json, which comes last. Returns the summary."""
    days = [day for date, day in lake.days(ROLLUP, LATENCY).items() if options.wants(date)]
    records, left_out = (sum(getattr(day, name) for day in days) for name in ("records", "left_out"))
    if not days:
        since = f" from {options.begin}" if options.begin else ""
        raise ConfigurationError(f"{options.out}: no day{since} was rolled up; `homing rollup` does that")
    if not records:
        some = f"{left_out:,} records and some files are in quarantine"
        raise ConfigurationError(f"{options.out}: no record can be used ({some})")
    progress(0.0, f"report of {len(days):,} days, {records:,} records")
    lake.place.remove(SUMMARY_NAME)
    with database(options.memory) as base:
        _read(base, lake, options, days)
        period = period_of(base, options)
        rows, queries = _tables(base, lake, options, period, progress)
        figures = list(_figures(base))
    last, wanted = period.hours[-1] + HOUR, options.deadlines
    timeouts = timeouts_file(rows["deadlines"], wanted, options.device_group, period.begin, last)
    progress(0.95, REPORT_NAME)
    summary = {**_summary(options, period, days), "figures": figures, "quarantined": rows["quarantine"]}
    summary["anomalies"] = [{**row, "sentence": _sentence(row)} for row in rows["anomalies"]]
    summary["tables"] = [{**asdict(table), "query": queries[table.name]} for table in TABLES]
    plain: dict[str, Any] = json.loads(json.dumps(summary, default=_plain, allow_nan=False))
    lake.place.write(TIMEOUTS_NAME, timeouts.encode())
    lake.place.write(REPORT_NAME, render(plain, rows).encode())
    lake.place.write(SUMMARY_NAME, as_json(plain))
    progress(1.0, "done")
    return plain


def _read(base: duckdb.DuckDBPyConnection, lake: Lake, options: AnalyzeOptions, days: list[Day]) -> None:
    """The rollups of the period, of which one has the period before, too."""
    begin = "" if options.begin is None else options.begin.isoformat()
    of_events = [day for date, day in lake.days(ROLLUP, EVENTS).items() if options.wants(date)]
    for source, found, rollups in ((LATENCY, days, ROLLUPS), (EVENTS, of_events, EVENT_ROLLUPS)):
        compacted = lake.days(COMPACT, source)
        for one in rollups:
            runs = {day.date: day.run for day in found if one.name == "latency_hourly" or day.date >= begin}
            if one.name == source.quarantine:
                runs = {date: compacted[date].run for date in runs if date in compacted}
            read_rollup(base, lake, one, runs)


def period_of(base: duckdb.DuckDBPyConnection, options: AnalyzeOptions) -> Period:
    """From the hours that have records. Without a begin, its last day (or half) is compared with the one before."""
    found = base.sql("SELECT DISTINCT hour FROM rollups.latency_hourly ORDER BY hour").to_arrow_table()
    hours = found["hour"].to_pylist()
    begin = datetime.combine(options.begin, time(), UTC) if options.begin else hours[0]
    if hours[-1] < begin:
        raise ConfigurationError(f"{options.out}: no records from {begin:%Y-%m-%d} on")
    end, since, middle, why_not = hours[-1] + HOUR, hours[0], begin, f"there is nothing from before {begin:%Y-%m-%d}"
    if options.begin is None:
        length = (end - begin) // HOUR
        part = HOUR * min(24, length // 2)
        since, middle, why_not = end - 2 * part, end - part, "the log covers one hour only"
    own = tuple(hour for hour in hours if hour >= begin)
    return Period(begin, end, own, since, middle, None if since < middle else why_not)


def _tables(
    base: duckdb.DuckDBPyConnection, lake: Lake, options: AnalyzeOptions, period: Period, progress: Progress
) -> tuple[Rows, dict[str, str]]:
    """Write the tables. Returns what the page shows of them, and the query of each, with what it needs."""
    cut = cut_of(period.hours, options.deadlines.held_out)
    instants = {"begin": period.begin, "cut": cut, "since": period.since, "middle": period.middle}
    values = {name: at.timestamp() for name, at in instants.items()} | options.deadlines.as_json()
    values["asked"] = values["begin"] if options.begin else 0.0
    rows: Rows = {}
    queries: dict[str, str] = {}
    before: list[str] = []
    for name, sql in statements(
        level=options.level, success=options.success, max_pending=options.max_pending, **values
    ):
        before.append(sql)
        base.execute(sql)
        if name in _TABLES:
            progress(0.95 * len(rows) / len(TABLES), f"table {name}")
            made = rows_of(base, _TABLES[name])
            lake.put_rows(f"tables/{name}", made)
            if name == "devices":
                made = rows_of(base, _TABLES[name], f"least(slow_rank, flaky_rank) <= {TOP}")
            rows[name] = made.slice(0, made.num_rows if name == "deadlines" else _SHOWN).to_pylist()
            queries[name] = ";\n\n".join(before)
            before = []
    return rows, queries


def _figures(base: duckdb.DuckDBPyConnection) -> Iterator[Row]:
    for name, title, table, column, where in _FIGURES:
        for row in rows_of(base, _TABLES[table], where or "true").to_pylist():
            value = {"name": name, "title": title, "value": row[column], "unit": UNITS[table][column]}
            yield {**value, "table": table, "column": column, "where": where}


def _summary(options: AnalyzeOptions, period: Period, days: list[Day]) -> Row:
    """The summary of what was read and asked for.

    Nothing in it depends on when or how fast it ran: twice gives the same.
    """
    first, last = period.hours[0], period.hours[-1]
    before, after = {"from": period.since, "to": period.middle}, {"from": period.middle, "to": period.end}
    compared = None if period.why_not else {"before": before, "after": after}
    asked = {name: getattr(options, name) for name in ("compare_to", "max_pending", "level", "success", "device_group")}
    missing = (last - first) // HOUR + 1 - len(period.hours)
    found: Row = {"hours": len(period.hours), "days": len(days), "hours_missing": missing}
    found["missing_hours"] = list(islice(_gaps(period.hours), MOST_MISSING))
    read = {"files": sum(day.files for day in days), "records": sum(day.records + day.left_out for day in days)}
    return {
        "version": SUMMARY_VERSION,
        "log": {"location": options.log or options.out, "from": first, "to": last, **found, **read},
        "period": {"from": period.begin, "to": period.end, "compared": compared, "why_not": period.why_not},
        "options": {"from": options.begin, "to": options.end, **asked, "deadlines": options.deadlines.as_json()},
        "relative_error": RELATIVE_ERROR,
    }


def _gaps(hours: Sequence[datetime]) -> Iterator[datetime]:
    """Yield the hours between these."""
    for one, other in pairwise(hours):
        yield from (one + number * HOUR for number in range(1, (other - one) // HOUR))


def _plain(at: date) -> str:
    """A day, or an instant: 2026-11-21T07:00:00Z."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(at, datetime) else at.isoformat()


def _sentence(row: Row) -> str:
    """An anomaly in words."""
    kind = "" if row["kind"] == "success" else f"{row['kind'].replace('_', ' ').capitalize()} "
    who = f"{kind}{row['subject']}"
    return f"{who}: {_ANOMALIES[row['kind'], row['measure']].format(**row)}"


def statements(**values: float) -> list[tuple[str, str]]:
    """Name and text of each of tables.sql, in order; `values` are what it names."""
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined)  # noqa: S701 - SQL
    text = environment.get_template("tables.sql").render(
        **values,
        **{end.name.lower(): int(end) for end in End},
        quantiles=QUANTILES.items(),
        outcomes=OUTCOMES,
        stage_names=list(STAGES),
        meanings=MEANINGS,
        keys={table.name: list(table.key) for table in TABLES},
    )
    return [(found[1], one.strip()) for one in text.split(";\n") if (found := _NAME.search(one))]


@contextmanager
def database(memory: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """In memory, and in a folder that goes away when that is not enough."""
    with tempfile.TemporaryDirectory(prefix="homing-report-") as scratch, duckdb.connect() as base:
        limit = f"{memory[:-1]}{'GiB' if memory.endswith('g') else 'MiB'}"
        base.execute(f"SET TimeZone = 'UTC'; SET memory_limit = '{limit}'; SET temp_directory = '{scratch}'")
        base.execute("CREATE SCHEMA rollups")
        yield base


def read_rollup(base: duckdb.DuckDBPyConnection, lake: Lake, rollup: TableContract, runs: dict[str, str]) -> None:
    """A view of the rows that belong to these days, and to no earlier run of one of them."""
    paths = [lake.place.path(file) for date in runs for file in lake.place.find(f"rollups/{rollup.name}/date={date}")]
    of_day = pa.schema([pa.field("date", pa.string())])
    # Arrow reads ahead: words that stay numbers and a list of words take half the memory.
    words = [*(column.name for column in rollup.arrow if column.type == pa.string()), "run"]
    own = [column.with_type(_WORDS) if column.name in words else column for column in rollup.arrow]
    schema = pa.schema([*own, pa.field("run", _WORDS), *of_day])
    days, root = ds.partitioning(of_day, flavor="hive"), lake.place.path(f"rollups/{rollup.name}")
    files = ds.ParquetFileFormat(dictionary_columns=words)
    found = ds.dataset(paths, schema, files, lake.place.files, days, partition_base_dir=root) if paths else None
    base.register(f"{rollup.name}_files", found or schema.empty_table())
    chosen = ", ".join(f"('{date}', '{run}')" for date, run in runs.items()) or "NULL"
    base.execute(f"CREATE VIEW rollups.{rollup.name} AS FROM {rollup.name}_files WHERE (date, run) IN ({chosen})")


def rows_of(base: duckdb.DuckDBPyConnection, table: TableContract, where: str = "true") -> pa.Table:
    """The rows of a table, as its contract has them."""
    columns = ", ".join(_cast(column.name, column.type) for column in table.columns)
    order = f"ORDER BY {' NULLS FIRST, '.join(table.key)} NULLS FIRST" if table.key else ""
    return base.sql(f"SELECT {columns} FROM {table.name} WHERE {where} {order}").to_arrow_table().cast(table.arrow)


def _cast(name: str, type_: str) -> str:
    if type_ == "double":  # threads add up in any order: nine digits are the same each time
        return f'format(\'{{:.8e}}\', "{name}"::DOUBLE)::DOUBLE AS "{name}"'
    return f'"{name}"::{"TIMESTAMPTZ" if type_ == "timestamp" else type_} AS "{name}"'
