"""The second step: clean records become counts that can be added up, by day."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date as day_of
from functools import partial
from typing import Final

from app.analysis import contracts, rollups
from app.analysis.compact import BATCH, Progress
from app.analysis.lake import COMPACT, ROLLUP, SCHEMA_VERSION, Day, Lake
from app.analysis.options import DAY
from app.analysis.source import LATENCY

_AT_ONCE: Final = 2
"""Queries that wait for each other's planning; more would share the memory of one."""


def runs_of(compacted: dict[str, Day], pattern: str) -> dict[str, str]:
    """Date -> what its rollups are made of: the day's records, and the rule of the groups."""
    return {
        date: hashlib.sha256(f"{SCHEMA_VERSION} {day.run} {pattern}".encode()).hexdigest()[:16]
        for date, day in compacted.items()
    }


def rollup(lake: Lake, dates: Sequence[str], pattern: str, progress: Progress) -> None:
    """Make the rollups of these days anew, and commit them. Late answers to the day before are told to that."""
    compacted = lake.days(COMPACT, LATENCY)
    there = lake.days(ROLLUP, LATENCY)
    runs = runs_of(compacted, pattern)
    with_records = {date for date, day in compacted.items() if day.records}
    for first in range(0, len(dates), BATCH):
        asked = dates[first : first + BATCH]
        batch = [date for date in asked if date in with_records]
        repaired = {date: there[date] for date in map(_before, batch) if date in there and date not in dates}
        lake.open(ROLLUP, LATENCY, [*asked, *repaired])
        if batch:
            named = batch[0] if len(batch) == 1 else f"{batch[0]} to {batch[-1]}"
            around = with_records & {other for date in batch for other in (_before(date), date, _after(date))}
            lake.clean(LATENCY, batch).createOrReplaceTempView("record")
            lake.clean(LATENCY, around).createOrReplaceTempView("around")
            whole = {date: runs[date] for date in batch}
            _write(lake, whole, pattern, partial(_say, progress, first / len(dates), f"rollup {named}"))
            _deadlines(lake, whole | {date: day.run for date, day in repaired.items() if day.records})
        lake.commit(
            ROLLUP, LATENCY, [*(replace(compacted[date], run=runs[date]) for date in asked), *repaired.values()]
        )


def _say(progress: Progress, part: float, what: str, table: str) -> None:
    progress(part, f"{what}: {table}")


def _write(lake: Lake, runs: dict[str, str], pattern: str, say: Callable[[str], None]) -> None:
    def write(job: tuple[contracts.Rollup, str]) -> None:
        say(job[0].name)
        lake.put_rollup(job[0], lake.spark.sql(job[1]), runs)

    write((contracts.DEVICES_DAILY, rollups.devices_daily(pattern)))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        jobs = (
            (contracts.LATENCY_HOURLY, rollups.LATENCY_HOURLY),
            (contracts.STAGES_DAILY, rollups.STAGES_DAILY),
            (contracts.FORWARDING_DAILY, rollups.FORWARDING_DAILY),
            (contracts.LOAD_10S, rollups.LOAD_10S),
            (contracts.LATE_HOURLY, rollups.LATE_HOURLY),
        )
        list(pool.map(write, jobs))
    say(contracts.DEADLINES_HOURLY.name)


def _deadlines(lake: Lake, runs: dict[str, str]) -> None:
    """With the late answers of the day after, as far as they are there."""
    spark = lake.spark
    devices = [Day(date, run, SCHEMA_VERSION, 0, 0, 0) for date, run in runs.items()]
    of_device = lake.rollup(contracts.DEVICES_DAILY, devices).select("date", "device_id", "device_group").distinct()
    of_device.createOrReplaceTempView("device_of")
    lake.clean(LATENCY, tuple(runs)).createOrReplaceTempView("record")
    lake.put_rollup(contracts.DEADLINES_HOURLY, spark.sql(rollups.DEADLINES_HOURLY), runs)


def _before(date: str) -> str:
    return (day_of.fromisoformat(date) - DAY).isoformat()


def _after(date: str) -> str:
    return (day_of.fromisoformat(date) + DAY).isoformat()
