"""The event log as a second source: the files that nodes write, counted by Spark and by DuckDB."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.analysis.lake import ROLLUP, Lake
from app.analysis.source import EVENTS
from app.core.events.event import Entry, Event, Shard
from app.runtime.system import SystemClock, new_secret
from app.store.parquet.archive import ParquetArchive
from app.store.parquet.place import ObjectStore
from tests.analysis.results import analysis, queried, rolled, rows
from tests.analysis.small_logs import BEGIN, outcome, timed_out, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_US = 3_600_000_000
BEGIN_US = round(BEGIN.timestamp() * 1_000_000)
DEVICES = 12
KINDS = ("dji:osd", "dji:event", "")


def said(seed: int = 3, hours: int = 26) -> list[Event]:
    """Events of a fleet over more than a day; device 5 says nothing after the third hour."""
    rng = random.Random(seed)
    found, position = [], BEGIN_US
    while position < BEGIN_US + hours * HOUR_US:
        position += rng.randrange(1, 20_000_000)
        device, kind = rng.randrange(DEVICES), rng.choice(KINDS)
        if device == 5 and position > BEGIN_US + 3 * HOUR_US:
            continue
        name = f"SN{device:02}" if kind else ""
        entry = Entry(
            f"thing/product/SN{device:02}/{kind[4:] or 'other'}", rng.randbytes(rng.randrange(300)), name, kind
        )
        found.append(Event(position, 0, entry))
    return found


def put(folder: Path, database: str, events: Sequence[Event], generation: int = 1) -> None:
    """As the cooler of a node does."""

    async def all_of_them() -> AsyncIterator[Sequence[Event]]:
        yield events

    async def archived() -> None:
        archive = ParquetArchive(ObjectStore(str(folder), SystemClock(), new_secret))
        await archive.put(Shard(database, 0), generation, all_of_them())
        await archive.close()

    asyncio.run(archived())


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("events")
    log, cold = folder / "log", folder / "cold"
    write(log, [*(outcome(at, 200, device_id="SN01") for at in range(60, 4000, 40)), timed_out(4100, device_id="SN07")])
    put(cold, "events", said())
    put(cold, "telemetry", said(seed=4, hours=5), 7)
    return log, cold, folder / "out"


@pytest.fixture(scope="module")
def out(spark: SparkSession, places: tuple[Path, Path, Path]) -> Path:
    log, cold, folder = places
    analysis(spark, log, folder, events=str(cold))
    return folder


def cold_table(cold: Path) -> str:
    return f"read_parquet('{cold}/*/*/*/*.parquet', hive_partitioning = true)"


def test_hours_agree_with_duckdb(out: Path, places: tuple[Path, Path, Path]) -> None:
    key = "epoch_us({}) AS at, db, kind, device_id"
    found = rolled(
        out,
        f"{key.format('hour')}, events, bytes, largest, epoch_us(first_at), epoch_us(last_at), longest_gap_us",
        "event_hourly",
        "ORDER BY ALL",
    )
    expected = queried(f"""
        SELECT {key.format("start")}, count(*), sum(bytes), max(bytes), min(us), max(us), max(gap) FROM (
          SELECT *, us - lag(us) OVER (PARTITION BY start, db, kind, device_id ORDER BY us) AS gap FROM (
            SELECT *, epoch_us(logged_at) AS us, date_trunc('hour', logged_at) AS start FROM {cold_table(places[1])}))
        GROUP BY ALL ORDER BY ALL""").fetchall()
    assert [tuple(map(_plain, row)) for row in found] == [tuple(map(_plain, row)) for row in expected]
    assert len(found) > 500


def _plain(value: Any) -> Any:  # noqa: ANN401 - sums of DuckDB are larger than 64 bits
    return int(value) if isinstance(value, float | int) and not isinstance(value, bool) else value


def test_the_table_of_a_period_agrees_with_duckdb(out: Path, places: tuple[Path, Path, Path]) -> None:
    found = {(row["db"], row["kind"]): row for row in rows(out, "events")}
    assert set(found) == {(database, kind or None) for database in ("events", "telemetry") for kind in KINDS}
    expected = queried(f"""
        SELECT db, kind, count(DISTINCT device_id), count(*), sum(bytes)::BIGINT, max(bytes), max(gap) FROM (
          SELECT *, us - lag(us) OVER (PARTITION BY db, kind, device_id ORDER BY us) AS gap
          FROM (SELECT *, epoch_us(logged_at) AS us FROM {cold_table(places[1])}))
        GROUP BY ALL""").fetchall()
    names = ("devices", "events", "bytes", "largest", "longest_gap_us")
    for db, kind, *numbers in expected:
        assert [found[db, kind][name] for name in names] == numbers, (db, kind)
    one = found["telemetry", "dji:osd"]
    assert one["mean_bytes"] == pytest.approx(one["bytes"] / one["events"])


def test_who_fell_silent_is_told_and_nobody_else(out: Path) -> None:
    quiet = rows(out, "silent_devices")
    assert {(row["db"], row["device_id"]) for row in quiet} == {("events", "SN05")}
    assert {row["kind"] for row in quiet} == {"dji:osd", "dji:event"}
    assert all(row["silent_us"] > 20 * HOUR_US for row in quiet)
    assert {row["silent"] for row in rows(out, "events", "db = 'events' AND kind IS NOT NULL")} == {1}
    assert "SN05" in (out / "report.html").read_text()


def test_what_a_device_reported_around_a_timeout_is_one_join(
    spark: SparkSession, out: Path, places: tuple[Path, Path, Path]
) -> None:
    page = Path("docs/analysis.md").read_text()
    (join,) = [sql for sql in re.findall(r"```sql\n(.*?)```", page, re.DOTALL) if "JOIN event" in sql]
    for name in ("latency", "events"):
        view = {"latency": "record", "events": "event"}[name]
        spark.read.parquet(f"file://{out}/clean/{name}").createOrReplaceTempView(view)
    found = [(row.command_id, row.topic, bytes(row.value)) for row in spark.sql(join).collect()]
    records, events = (
        f"read_parquet('{out}/clean/{name}/*/*.parquet', hive_partitioning = true)" for name in ("latency", "events/*")
    )
    duck = queried(f"WITH record AS (FROM {records}), event AS (FROM {events}) {join}").to_arrow_table().to_pylist()
    assert found == [(row["command_id"], row["topic"], row["value"]) for row in duck]
    timeout = BEGIN_US + 4_100_000_000
    near = [
        event.entry
        for event in (*said(), *said(seed=4, hours=5))
        if event.entry.device == "SN07" and timeout - 40_000_000 <= event.position <= timeout + 30_000_000
    ]
    assert sorted(value for _, _, value in found) == sorted(entry.value for entry in near)
    assert near


def test_only_days_with_new_files_are_made_again_and_damage_is_counted(
    spark: SparkSession, out: Path, places: tuple[Path, Path, Path]
) -> None:
    log, cold, _ = places
    before = Lake(str(out)).days(ROLLUP, EVENTS)
    first, second = sorted(before)
    late = [Event(BEGIN_US + 25 * HOUR_US + number, 0, Entry("late", b"1", "SN01", "dji:osd")) for number in range(9)]
    put(cold, "events", late, 2)
    (cold / f"db=events/date={second}/hour=01/shard=01-gen=000002-1.parquet").write_bytes(b"PAR1 and no more")
    summary = analysis(spark, log, out, events=str(cold))
    after = Lake(str(out)).days(ROLLUP, EVENTS)
    assert after[first] == before[first]
    assert after[second].records == before[second].records + len(late)
    assert {row["reason"]: row["files"] for row in summary["quarantined"]} == {"not_parquet": 1}
    assert timedelta(microseconds=rows(out, "events", "db = 'events' AND kind = 'dji:osd'")[0]["longest_gap_us"])
