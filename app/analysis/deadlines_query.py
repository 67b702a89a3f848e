"""What Spark counts for the learned deadlines: cells of a histogram, never records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from app.analysis.cells import bucket, micros
from app.analysis.deadlines import Cell, DeadlineOptions, End, back_test, recommend, samples, timeouts_of
from app.analysis.deadlines_file import render
from app.latency.schema import Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNANSWERED: Final = f"""\
WITH command AS (
  SELECT command_id, max(IF(kind = '{Kind.LATE}', NULL,
      named_struct('device_id', device_id, 'profile', profile, 'method', method, 'outcome', outcome,
        'recorded', recorded_at, 'registered', registered_at, 'deadline', deadline_at))) AS open,
    min(IF(kind = '{Kind.LATE}', recorded_at, NULL)) AS late_at
  FROM log
  WHERE recorded_at >= timestamp_micros({{begin}}) AND (kind = '{Kind.LATE}' OR kind = '{Kind.OUTCOME}'
    AND outcome IN ('timed_out', 'cancelled') AND profile IS NOT NULL AND method IS NOT NULL)
  GROUP BY command_id
), timed AS (
  SELECT open.*, late_at, unix_micros(late_at) - unix_micros(open.registered) AS took,
    unix_micros(open.deadline) - unix_micros(open.registered) AS allowed
  FROM command WHERE open.outcome = 'timed_out' OR late_at IS NOT NULL
)
SELECT profile, method, group_number,
  CASE WHEN outcome = 'cancelled' THEN {End.CANCELLED:d} WHEN took IS NULL THEN {End.NEVER:d} ELSE {End.LATE:d} END
    AS end,
  recorded >= timestamp_micros({{cut}}) AS held_out,
  coalesce(late_at >= timestamp_micros({{cut}}), false) AS known_late,
  CAST({bucket("took")} AS BIGINT) AS bucket, count(*) AS commands, coalesce(sum(took), 0) AS sum_us,
  sum(allowed) AS timeout_us
FROM timed JOIN device_number USING (device_id)
WHERE allowed > 0 AND (took IS NULL OR took >= 0)
GROUP BY ALL"""
"""Few records; only ids of the unanswered and of late responses are shuffled."""
ANSWERED: Final = f"""\
SELECT profile, method, group_number, {End.ANSWERED:d} AS end, held_out, false AS known_late, bucket, n AS commands,
  s AS sum_us, 0L AS timeout_us
FROM deadline_cell"""


def cells(spark: SparkSession, begin: datetime, cut: datetime) -> list[Cell]:
    """What the learned deadlines are made of, from the views log, device_number and deadline_cell."""
    groups = {
        row.group_number: row.device_group
        for row in spark.sql("SELECT DISTINCT group_number, device_group FROM device_number").collect()
    }
    unanswered = UNANSWERED.format(begin=micros(begin), cut=micros(cut))
    rows = spark.sql(ANSWERED).collect() + spark.sql(unanswered).collect()
    return [Cell(row[0], row[1], groups[row[2]], *row[3:]) for row in rows]


def deadline_queries(begin: datetime, cut: datetime) -> dict[str, str]:
    """What the tables `deadlines` and `deadlines_test` were counted with, to read."""
    text = f"""\
-- The arithmetic of app/analysis/deadlines.py over the counts of these queries.
{ANSWERED};
{UNANSWERED.format(begin=micros(begin), cut=micros(cut))}"""
    return {"deadlines": text, "deadlines_test": text}


def cut_of(first: datetime, last: datetime, held_out: float) -> datetime:
    """Where the held-out hours begin: `first` and `last` are the begins of the first and last hour of the log."""
    hours = round((last - first) / timedelta(hours=1)) + 1
    kept_back = min(hours - 1, max(1, round(hours * held_out))) if held_out else 0
    return first + timedelta(hours=hours - kept_back)


@dataclass(frozen=True, slots=True)
class Learned:
    """What was learned."""

    deadlines: list[dict[str, Any]]
    """Rows of the table of this name, from all hours."""
    deadlines_test: list[dict[str, Any]]
    """Rows of the table of this name; none with too few hours."""
    file: str
    """The text of timeouts.toml."""


def learn(
    spark: SparkSession, first: datetime, last: datetime, cut: datetime, rule: str, options: DeadlineOptions
) -> Learned:
    """Learn timeouts from the views of a log whose first and last hour begin at `first` and `last`.

    `cut` is that of `deadline_cell`; `rule` tells the group of a device, as in `device_number`.
    """
    counted = cells(spark, first, cut)
    rows = recommend(samples(counted, training=False), options)
    earlier = timeouts_of(recommend(samples(counted, training=True), options))
    text = render(rows, options, rule, first, last + timedelta(hours=1))
    return Learned(rows, back_test(counted, earlier), text)
