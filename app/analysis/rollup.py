"""The second step: clean records become counts that can be added up, by day.

It is SQL over the views `written` (clean records of some days), `record` (the same, with each outcome once), `around`
(with the days beside them), `further` (those of `around` that are no outcomes) and `device_of` (devices with their
group).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date as day_of
from functools import partial
from typing import TYPE_CHECKING, Final

from app.analysis.buckets import bucket
from app.analysis.compact import Progress
from app.analysis.contracts import EVENT_ROLLUPS, ROLLUPS, TableContract
from app.analysis.deadlines import End
from app.analysis.lake import COMPACT, ROLLUP, SCHEMA_VERSION, Day, Lake, quoted
from app.analysis.options import DAY, AnalyzeOptions
from app.analysis.source import CLOCK_TOLERANCE_US, DEVICE_US, LATENCY, OUTCOME, WAKE_US, Source
from app.core.profiles.correlation import Correlation
from app.latency.schema import RecordKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_GROUPS: Final = 1000
"""The groups of devices that a day has at most, those with the most commands; people could not read more."""
WINDOW_US: Final = 10_000_000
ANSWERED: Final = "outcome IN ('succeeded', 'failed')"
_CELL: Final = "count(*) AS commands, coalesce(sum({0}), 0) AS sum_us, max({0}) AS longest_us"

LATENCY_CELLS: Final = f"""\
SELECT date, {{by}}, profile, method, outcome, {bucket("answered_us")} AS bucket, count(*) AS commands,
  coalesce(sum(total_us), 0) AS sum_us, max(answered_us) AS longest_us
FROM (SELECT *, IF({ANSWERED}, total_us, NULL) AS answered_us FROM record WHERE {OUTCOME})
GROUP BY ALL"""
_TWICE: Final = f"""\
SELECT date, command_id, count(*) AS times FROM written WHERE {OUTCOME} GROUP BY date, command_id HAVING count(*) > 1"""
_ONCE: Final = f"""\
SELECT written.* FROM written LEFT ANTI JOIN twice
  ON written.date = twice.date AND written.command_id = twice.command_id AND {OUTCOME}
UNION ALL
SELECT one.* FROM (
  SELECT max_by(struct(written.*), struct(total_us IS NOT NULL, total_us)) AS one
  FROM written JOIN twice ON written.date = twice.date AND written.command_id = twice.command_id
  WHERE {OUTCOME} GROUP BY written.date, written.command_id
)"""
"""Home was taken for dead and lived: two nodes wrote the outcome, and the record of home has the durations."""
VIEWS: Final = {
    "further": f"""\
SELECT date, kind, command_id, recorded_at, receiving_node, home_node FROM around
WHERE kind != '{RecordKind.OUTCOME}'""",
    # Without common tables: Spark would not know again what is kept of a query that has some.
    "device_of": f"""\
SELECT date, device_id, IF(dense_rank() OVER (PARTITION BY date ORDER BY found IS NULL, of_group DESC, found)
  <= {MOST_GROUPS}, coalesce(found, ''), '') AS device_group
FROM (
  SELECT *, sum(commands) OVER (PARTITION BY date, found) AS of_group FROM (
    SELECT date, device_id, count(*) AS commands,
      nullif(nullif(regexp_extract(device_id, {{pattern}}, 1), device_id), '') AS found
    FROM record WHERE {OUTCOME} GROUP BY date, device_id
  )
)""",
}
"""The views of the latency log; they are computed once for all queries of some days."""


def _between(micros: str) -> str:
    """A difference of instants: 0 when it is negative by no more than clocks may differ, null when by more."""
    return f"CASE WHEN {micros} < -{CLOCK_TOLERANCE_US} THEN NULL WHEN {micros} < 0 THEN 0 ELSE {micros} END"


STAGES: Final = {
    "register": "register_us",
    "publish": "publish_us",
    "device": _between(DEVICE_US),
    # Home cannot know how long another node took to record: the instants tell it.
    "record": f"coalesce(record_us, {_between('(unix_micros(recorded_at) - unix_micros(received_at))')})",
    "wake": _between(WAKE_US),
    "deliver": "deliver_us",
}
_STAGE_COLUMNS: Final = ", ".join(f"{sql} AS {name}_stage" for name, sql in STAGES.items())
_STAGE_NAMES: Final = ", ".join(f"{name}_stage AS {name}" for name in STAGES)
QUERIES: Final = {
    "devices_daily": f"""\
WITH cell AS ({LATENCY_CELLS.format(by="device_id")})
SELECT cell.*, device_group FROM cell JOIN device_of USING (date, device_id)""",
    # `further` has those of the day after, too: a late response may come on the day after the timeout.
    # The answer to what a probe settled got lost, and nobody waits for one to what was sent one way.
    "deadlines_hourly": f"""\
WITH command AS (
  SELECT record.date, date_trunc('HOUR', recorded_at) AS hour, profile, method, device_group, command_id, outcome,
    {ANSWERED} AND correlation <=> '{Correlation.PROBE}' AS probed,
    {ANSWERED} AND receiving_node IS NOT NULL AS responded,
    unix_micros(registered_at) AS registered, unix_micros(recorded_at) - unix_micros(registered_at) AS took,
    unix_micros(deadline_at) - unix_micros(registered_at) AS allowed
  FROM record JOIN device_of USING (date, device_id)
  WHERE {OUTCOME} AND profile IS NOT NULL AND method IS NOT NULL
), late AS (
  SELECT command_id, min(recorded_at) AS late_at FROM further WHERE kind = '{RecordKind.LATE}' GROUP BY command_id
), unanswered AS (
  SELECT date, hour, profile, method, device_group, outcome, date_trunc('HOUR', late_at) AS late_hour,
    unix_micros(late_at) - registered AS took, allowed
  FROM command LEFT JOIN late USING (command_id)
  WHERE (probed OR outcome IN ('timed_out', 'cancelled')) AND allowed > 0
    AND (outcome != 'cancelled' OR late_at IS NOT NULL)
)
SELECT date, hour, profile, method, device_group, {End.ANSWERED:d} AS end, CAST(NULL AS TIMESTAMP) AS late_hour,
  {bucket("took")} AS bucket, count(*) AS commands, sum(took) AS sum_us, 0L AS timeout_us
FROM command WHERE responded AND NOT probed AND took >= 0 GROUP BY ALL
UNION ALL
SELECT date, hour, profile, method, device_group,
  CASE WHEN outcome = 'cancelled' THEN {End.CANCELLED:d} WHEN took IS NULL THEN {End.NEVER:d} ELSE {End.LATE:d} END,
  late_hour, {bucket("took")}, count(*), coalesce(sum(took), 0), sum(allowed)
FROM unanswered WHERE took IS NULL OR took >= 0 GROUP BY ALL""",
    "stages_daily": f"""\
WITH answered AS (
  SELECT date, profile, method, home_node, receiving_node, {_STAGE_COLUMNS} FROM record WHERE {OUTCOME} AND {ANSWERED}
), staged AS (
  SELECT * FROM answered UNPIVOT (us FOR stage IN ({_STAGE_NAMES}))
)
SELECT date, stage, profile, method, IF(stage = 'record', receiving_node, home_node) AS node,
  {bucket("us")} AS bucket, {_CELL.format("us")}
FROM staged GROUP BY ALL""",
    "latency_hourly": LATENCY_CELLS.format(by="date_trunc('HOUR', recorded_at) AS hour, home_node AS node"),
    "forwarding_daily": f"""\
WITH answered AS (
  SELECT date, receiving_node, home_node, {_between(WAKE_US)} AS hop_us, total_us
  FROM record WHERE {OUTCOME} AND {ANSWERED} AND receiving_node IS NOT NULL
), measured AS (
  SELECT * FROM answered UNPIVOT (us FOR measure IN (hop_us AS hop, total_us AS total))
)
SELECT date, receiving_node, home_node, measure, {bucket("us")} AS bucket, {_CELL.format("us")}
FROM measured GROUP BY ALL""",
    "load_10s": f"""\
WITH counted AS (
  SELECT date, home_node, first, last, count(*) AS n, sum(IF(first = last, until - since, 0)) AS within_us,
    sum(IF(first = last, 0, (first + 1) * {WINDOW_US}L - since)) AS first_us,
    sum(IF(first = last, 0, until - last * {WINDOW_US}L)) AS last_us
  FROM (
    SELECT *, since DIV {WINDOW_US} AS first, until DIV {WINDOW_US} AS last FROM (
      SELECT date, home_node, unix_micros(registered_at) AS since,
        unix_micros(registered_at) + coalesce(total_us, 0) AS until
      FROM record WHERE {OUTCOME} AND registered_at IS NOT NULL
    )
  ) GROUP BY ALL
), ends AS (
  SELECT date, home_node, stack(2,
    first, n, IF(first = last, n, 0), 0L, IF(first = last, 0L, n), within_us + first_us,
    last, 0L, IF(first = last, 0L, n), IF(first = last, 0L, n), 0L, last_us
  ) AS (window, arrived, ended, carried_in, carried_out, busy_us) FROM counted
)
SELECT date, timestamp_seconds(window * 10) AS at, home_node AS node, sum(arrived) AS arrived, sum(ended) AS ended,
  sum(carried_in) AS carried_in, sum(carried_out) AS carried_out, sum(busy_us) AS busy_us
FROM ends GROUP BY ALL HAVING sum(arrived + ended + busy_us) > 0""",
    # A command may have ended on the day before its late response. Of days that are not asked for, nothing is written.
    "late_hourly": f"""\
WITH named AS (
  SELECT command_id, max(profile) AS profile, max(method) AS method
  FROM around LEFT SEMI JOIN further USING (command_id) WHERE {OUTCOME} GROUP BY command_id
)
SELECT date, date_trunc('HOUR', recorded_at) AS hour, kind, profile, method, receiving_node, home_node,
  count(*) AS responses
FROM further LEFT JOIN named USING (command_id) GROUP BY ALL""",
    "repeated": """\
SELECT date, 'repeated' AS reason, 0L AS files, sum(times - 1) AS records, min(command_id) AS example
FROM twice GROUP BY date""",
    "event_hourly": """\
SELECT date, hour, db, kind, device_id, count(*) AS events, sum(bytes) AS bytes, max(bytes) AS largest,
  min(logged_at) AS first_at, max(logged_at) AS last_at, max(gap) AS longest_gap_us
FROM (
  SELECT *, at - lag(at) OVER (PARTITION BY db, kind, device_id, hour ORDER BY at) AS gap
  FROM (SELECT *, date_trunc('HOUR', logged_at) AS hour, unix_micros(logged_at) AS at FROM record)
) GROUP BY ALL""",
}


def runs_of(compacted: dict[str, Day], pattern: str) -> dict[str, str]:
    """Date -> what its rollups are made of: the day's records, and the rule of the groups."""
    return {
        date: hashlib.sha256(f"{SCHEMA_VERSION} {day.run} {pattern}".encode()).hexdigest()[:16]
        for date, day in compacted.items()
    }


def rollup(
    spark: SparkSession,
    lake: Lake,
    source: Source,
    dates: Sequence[str],
    options: AnalyzeOptions,
    progress: Progress,
) -> None:
    """Make the rollups of these days anew, and commit them.

    The day before each is told of late answers, the day after of the methods that late answers are of.
    """
    compacted, there = lake.days(COMPACT, source), lake.days(ROLLUP, source)
    near = sorted({_beside(date, apart) for date in dates for apart in (-1, 0, 1)}.intersection(compacted))
    with_records = {
        date: compacted[date] for date in near if compacted[date].records and lake.clean_files(source, compacted[date])
    }
    for date in [date for date in dates if compacted[date].records and date not in with_records]:
        progress(0.0, f"rollup {date} stays as it was: its clean records are gone")
    made = [date for date in dates if date in with_records or not compacted[date].records]
    pattern, most = options.device_group, options.days_at_once
    for first in range(0, len(made), most):
        asked = made[first : first + most]
        new = {date: run for date, run in runs_of(compacted, pattern).items() if date in asked}
        batch = [date for date in new if date in with_records]
        before, after = (
            {
                date: there[date].run
                for date in sorted({_beside(one, apart) for one in batch}.difference(made))
                if date in there and date in with_records and source is LATENCY
            }
            for apart in (-1, 1)
        )
        lake.open(ROLLUP, source, {*asked, *before, *after})
        for table in () if batch else _tables_of(source):
            lake.keep(f"rollups/{table.name}", asked, ())  # there is nothing to count any more
        if batch:
            repaired = {"deadlines_hourly": before, "late_hourly": after}
            write = partial(_write, spark, lake, partial(progress, first / len(made)))
            # Two queries wait for each other's planning; more would share the memory of one.
            with _views(spark, lake, source, with_records, batch, before, pattern), ThreadPoolExecutor(2) as pool:
                tables = _tables_of(source)
                list(pool.map(write, tables, (new | repaired.get(one.name, {}) for one in tables)))
        days = [replace(compacted[date], run=new[date]) for date in asked]
        lake.commit(ROLLUP, source, [*days, *(there[date] for date in {**before, **after})])


def _tables_of(source: Source) -> Sequence[TableContract]:
    """The tables to make from a source; what is left out is counted by the step before."""
    return (ROLLUPS if source is LATENCY else EVENT_ROLLUPS)[:-1]


@contextmanager
def _views(
    spark: SparkSession,
    lake: Lake,
    source: Source,
    days: Mapping[str, Day],
    dates: Collection[str],
    before: Collection[str],
    pattern: str,
) -> Iterator[None]:
    """Make the views for the queries about these dates and those before, with the late answers of the day after."""
    written = lake.clean(spark, source, (days[date] for date in sorted({*dates, *before})))
    with ExitStack() as kept:

        def keep(view: str, sql: str) -> int:
            frame = spark.sql(sql).persist()
            kept.callback(frame.unpersist)
            frame.createOrReplaceTempView(view)
            return frame.count()  # Spark knows its size then, and joins a small one without moving the large one

        if source is not LATENCY:
            written.createOrReplaceTempView("record")
        else:
            written.createOrReplaceTempView("written")
            (spark.sql(_ONCE) if keep("twice", _TWICE) else written).createOrReplaceTempView("record")
            around = sorted({_beside(date, apart) for date in dates for apart in (-1, 0, 1)}.intersection(days))
            lake.clean(spark, source, (days[date] for date in around)).createOrReplaceTempView("around")
            for view, sql in VIEWS.items():
                keep(view, sql.format(pattern=quoted(pattern)))
        yield


def _write(
    spark: SparkSession, lake: Lake, say: Callable[[str], None], table: TableContract, runs: Mapping[str, str]
) -> None:
    say(f"rollup {' to '.join(sorted({min(runs), max(runs)}))}: {table.name}")
    lake.put_rollup(table, spark.sql(QUERIES[table.name]), runs)


def _beside(date: str, days: int) -> str:
    return (day_of.fromisoformat(date) + days * DAY).isoformat()
