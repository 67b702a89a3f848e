"""The second step: clean records become counts that can be added up, by day.

It is SQL over the views `record` (clean records of some days), `around` (with the days beside them), `further` (those
of `around` that are no outcomes) and `device_of` (devices with their group).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import date as day_of
from functools import partial
from typing import TYPE_CHECKING, Final

from app.analysis.buckets import bucket
from app.analysis.compact import BATCH, Progress
from app.analysis.contracts import EVENT_ROLLUPS, ROLLUPS, Table
from app.analysis.deadlines import End
from app.analysis.lake import COMPACT, ROLLUP, SCHEMA_VERSION, Day, Lake, quoted
from app.analysis.options import DAY
from app.analysis.source import CLOCK_TOLERANCE_US, DEVICE_US, LATENCY, OUTCOME, WAKE_US, Source
from app.latency.schema import Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_GROUPS: Final = 1000
"""Of devices in a day, those with the most commands; people could not read more."""
WINDOW_US: Final = 10_000_000
ANSWERED: Final = "outcome IN ('succeeded', 'failed')"
_CELL: Final = "count(*) AS commands, coalesce(sum({0}), 0) AS sum_us, max({0}) AS longest_us"

LATENCY_CELLS: Final = f"""\
SELECT date, {{by}}, profile, method, outcome, {bucket("answered_us")} AS bucket, count(*) AS commands,
  coalesce(sum(total_us), 0) AS sum_us, max(answered_us) AS longest_us
FROM (SELECT *, IF({ANSWERED}, total_us, NULL) AS answered_us FROM record WHERE {OUTCOME})
GROUP BY ALL"""
VIEWS: Final = {
    "further": f"""\
SELECT date, kind, command_id, recorded_at, receiving_node, home_node FROM around WHERE kind != '{Kind.OUTCOME}'""",
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
"""Of the latency log; computed once for all queries of some days."""


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
    "deadlines_hourly": f"""\
WITH command AS (
  SELECT record.date, date_trunc('HOUR', recorded_at) AS hour, profile, method, device_group, command_id, outcome,
    unix_micros(registered_at) AS registered, unix_micros(recorded_at) - unix_micros(registered_at) AS took,
    unix_micros(deadline_at) - unix_micros(registered_at) AS allowed
  FROM record JOIN device_of USING (date, device_id)
  WHERE {OUTCOME} AND profile IS NOT NULL AND method IS NOT NULL
), late AS (
  SELECT command_id, min(recorded_at) AS late_at FROM further WHERE kind = '{Kind.LATE}' GROUP BY command_id
), unanswered AS (
  SELECT date, hour, profile, method, device_group, outcome, date_trunc('HOUR', late_at) AS late_hour,
    unix_micros(late_at) - registered AS took, allowed
  FROM command LEFT JOIN late USING (command_id)
  WHERE outcome IN ('timed_out', 'cancelled') AND allowed > 0 AND (outcome = 'timed_out' OR late_at IS NOT NULL)
)
SELECT date, hour, profile, method, device_group, {End.ANSWERED:d} AS end, CAST(NULL AS TIMESTAMP) AS late_hour,
  {bucket("took")} AS bucket, count(*) AS commands, sum(took) AS sum_us, 0L AS timeout_us
FROM command WHERE {ANSWERED} AND took >= 0 GROUP BY ALL
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
    spark: SparkSession, lake: Lake, source: Source, dates: Sequence[str], pattern: str, progress: Progress
) -> None:
    """Make the rollups of these days anew, and commit them. Late answers to the day before are told to that."""
    compacted, there = lake.days(COMPACT, source), lake.days(ROLLUP, source)
    with_records = {date for date, day in compacted.items() if day.records}
    for first in range(0, len(dates), BATCH):
        asked = dates[first : first + BATCH]
        new = {date: run for date, run in runs_of(compacted, pattern).items() if date in asked}
        batch = with_records.intersection(new)
        earlier = {_beside(date, -1) for date in batch if source is LATENCY}.difference(dates)
        repaired = {date: there[date] for date in sorted(earlier) if date in there}
        lake.open(ROLLUP, source, [*asked, *repaired])
        if batch:
            # With the late answers of the day after, as far as they are there.
            runs = new | {date: day.run for date, day in repaired.items()}
            lake.clean(spark, source, with_records.intersection(runs)).createOrReplaceTempView("record")
            around = {_beside(date, days) for date in batch for days in (-1, 0, 1)}
            lake.clean(spark, source, with_records & around).createOrReplaceTempView("around")
            write = partial(_write, spark, lake, partial(progress, first / len(dates)))
            # Two queries wait for each other's planning; more would share the memory of one.
            with ExitStack() as kept, ThreadPoolExecutor(2) as pool:
                for view, sql in VIEWS.items() if source is LATENCY else ():
                    frame = spark.sql(sql.format(pattern=quoted(pattern))).persist()
                    kept.callback(frame.unpersist)
                    frame.createOrReplaceTempView(view)
                    frame.count()  # Spark knows its size then, and joins a small one without moving the large one
                tables = (ROLLUPS if source is LATENCY else EVENT_ROLLUPS)[:-1]
                list(pool.map(write, tables, (runs if one.name == "deadlines_hourly" else new for one in tables)))
        days = [replace(compacted[date], run=new[date]) for date in asked]
        lake.commit(ROLLUP, source, [*days, *repaired.values()])


def _write(spark: SparkSession, lake: Lake, say: Callable[[str], None], table: Table, runs: Mapping[str, str]) -> None:
    say(f"rollup {' to '.join(sorted({min(runs), max(runs)}))}: {table.name}")
    lake.put_rollup(table, spark.sql(QUERIES[table.name]), runs)


def _beside(date: str, days: int) -> str:
    return (day_of.fromisoformat(date) + days * DAY).isoformat()
