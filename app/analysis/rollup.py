"""The second step: clean records become counts that can be added up, by day."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date as day_of
from functools import partial
from typing import TYPE_CHECKING, Final

from app.analysis import contracts, rollups
from app.analysis.compact import BATCH, Progress
from app.analysis.lake import COMPACT, ROLLUP, SCHEMA_VERSION, Day, Lake
from app.analysis.options import DAY
from app.analysis.source import EVENTS, LATENCY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE: Final = 2
"""Queries that wait for each other's planning; more would share the memory of one."""


def runs_of(compacted: dict[str, Day], pattern: str) -> dict[str, str]:
    """Date -> what its rollups are made of: the day's records, and the rule of the groups."""
    return {
        date: hashlib.sha256(f"{SCHEMA_VERSION} {day.run} {pattern}".encode()).hexdigest()[:16]
        for date, day in compacted.items()
    }


def rollup(spark: SparkSession, lake: Lake, dates: Sequence[str], pattern: str, progress: Progress) -> None:
    """Make the rollups of these days anew, and commit them. Late answers to the day before are told to that."""
    compacted = lake.days(COMPACT, LATENCY)
    there = lake.days(ROLLUP, LATENCY)
    runs = runs_of(compacted, pattern)
    with_records = {date for date, day in compacted.items() if day.records}
    for first in range(0, len(dates), BATCH):
        asked = dates[first : first + BATCH]
        batch = [date for date in asked if date in with_records]
        earlier = {_beside(date, -1) for date in batch}.difference(dates)
        repaired = {date: there[date] for date in sorted(earlier) if date in there}
        lake.open(ROLLUP, LATENCY, [*asked, *repaired])
        if batch:
            span = batch[0] if len(batch) == 1 else f"{batch[0]} to {batch[-1]}"
            around = with_records & {_beside(date, days) for date in batch for days in (-1, 0, 1)}
            lake.clean(spark, LATENCY, batch).createOrReplaceTempView("record")
            lake.clean(spark, LATENCY, around).createOrReplaceTempView("around")
            whole = {date: runs[date] for date in batch}
            say = partial(progress, first / len(dates))
            _write(spark, lake, whole, pattern, f"rollup {span}", say)
            _deadlines(spark, lake, whole | {date: day.run for date, day in repaired.items() if day.records})
        days = [replace(compacted[date], run=runs[date]) for date in asked]
        lake.commit(ROLLUP, LATENCY, [*days, *repaired.values()])


def rollup_events(spark: SparkSession, lake: Lake, dates: Sequence[str], progress: Progress) -> None:
    """Make the rollups of these days of the event log anew, and commit them."""
    compacted = lake.days(COMPACT, EVENTS)
    for first in range(0, len(dates), BATCH):
        batch = dates[first : first + BATCH]
        progress(first / len(dates), f"rollup from {batch[0]}: {contracts.EVENT_HOURLY.name}")
        lake.open(ROLLUP, EVENTS, batch)
        runs = {date: compacted[date].run for date in batch if compacted[date].records}
        if runs:
            lake.clean(spark, EVENTS, tuple(runs)).createOrReplaceTempView("event")
            lake.put_rollup(contracts.EVENT_HOURLY, spark.sql(rollups.EVENT_HOURLY), runs)
        lake.commit(ROLLUP, EVENTS, [compacted[date] for date in batch])


def _write(
    spark: SparkSession, lake: Lake, runs: dict[str, str], pattern: str, what: str, say: Callable[[str], None]
) -> None:
    def write(job: tuple[contracts.Rollup, str]) -> None:
        say(f"{what}: {job[0].name}")
        lake.put_rollup(job[0], spark.sql(job[1]), runs)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(write, rollups.queries(pattern)))
    say(f"{what}: {contracts.DEADLINES_HOURLY.name}")


def _deadlines(spark: SparkSession, lake: Lake, runs: dict[str, str]) -> None:
    """With the late answers of the day after, as far as they are there."""
    of_device = lake.rollup(spark, contracts.DEVICES_DAILY, runs).select("date", "device_id", "device_group").distinct()
    of_device.createOrReplaceTempView("device_of")
    lake.clean(spark, LATENCY, tuple(runs)).createOrReplaceTempView("record")
    lake.put_rollup(contracts.DEADLINES_HOURLY, spark.sql(rollups.DEADLINES_HOURLY), runs)


def _beside(date: str, days: int) -> str:
    return (day_of.fromisoformat(date) + days * DAY).isoformat()
