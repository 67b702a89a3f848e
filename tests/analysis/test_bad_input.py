"""`homing analyze`: what it does with files and records that are not as they should be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.analysis.buckets import RELATIVE_ERROR
from app.analysis.contracts import TABLES
from app.analysis.report.make import MOST_MISSING
from app.analysis.stream.run import FollowOptions, follow
from app.core.errors import ConfigurationError
from app.latency.arrow import SCHEMA
from tests.analysis.results import analysis, one, rows
from tests.analysis.small_logs import BEGIN, late, outcome, timed_out, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def small(count: int = 60, begin: float = 0) -> list[dict[str, Any]]:
    return [outcome(begin + 30 * number, 100 + number, register_us=300) for number in range(count)]


def reasons(summary: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {row["reason"]: (row["files"], row["records"]) for row in summary["quarantined"]}


def test_bad_files_and_records_are_left_out_with_count_and_reason(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    good = [*small(), timed_out(1700)]
    write(log, good)
    write(log, [late(good[-1], 12_000)], "node-b")
    hour = next(log.glob("date=*/hour=*"))
    (hour / "node-x-1-000001.parquet").write_bytes(b"PAR1 and then nothing")
    (hour / "node-x-1-000002.parquet").touch()
    whole = next(hour.glob("node-a-*.parquet")).read_bytes()
    (hour / "node-x-1-000003.parquet").write_bytes(whole[: len(whole) // 2])
    (hour / "_writing.parquet").write_bytes(b"still being written")
    (hour / ".node-a-1-9.parquet.tmp").write_bytes(b"still being written")
    broken = bytearray(whole)
    broken[4:400] = b"\xff" * 396  # the data; the footer is right
    (hour / "node-x-1-000004.parquet").write_bytes(bytes(broken))
    pq.write_table(pa.table({"a": [1, 2]}), hour / "node-x-1-000005.parquet")
    pq.write_table(pa.table({"a": [1, 2]}), log / "elsewhere.parquet")
    odd = small(7, 1000)
    odd[0]["total_us"] = -5
    odd[1]["kind"] = "guess"
    odd[2]["outcome"] = "lost"
    odd[3]["woken_at"] = odd[3]["recorded_at"] - timedelta(seconds=3)
    odd[4]["recorded_at"] += timedelta(hours=5)
    table = pa.Table.from_pylist(odd, SCHEMA)
    pq.write_table(table, hour / "node-c-1-000001.parquet")
    nothing = pa.Table.from_pylist(
        [{**odd[6], "device_id": None}], pa.schema([field.with_nullable(True) for field in SCHEMA])
    )
    pq.write_table(nothing, hour / "node-c-1-000002.parquet")

    first = analysis(spark, log, out)
    assert reasons(first) == {
        "not_parquet": (3, 0),
        "unreadable": (1, 61),
        "foreign": (1, 2),
        "outside_layout": (1, 0),
        "missing_value": (0, 1),
        "negative_duration": (0, 1),
        "wrong_hour": (0, 1),
        "unknown_kind": (0, 1),
        "unknown_outcome": (0, 1),
        "clock_jump": (0, 1),
    }
    assert one(out, "latency")["commands"] == len(good) + 3  # clock_jump and the two in order
    assert all(row["example"] for row in first["quarantined"])
    assert {row["stage"] for row in rows(out, "stages")} == {"register"}  # nothing else was measured

    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    tables = {table.name: rows(out, table.name) for table in TABLES}
    again = analysis(spark, log, out, again=True)
    assert again == first
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert {table.name: rows(out, table.name) for table in TABLES} == tables


def test_folders_at_both_ends_of_the_calendar_are_no_days(spark: SparkSession, tmp_path: Path) -> None:
    """There is no day before the one, and none after the other: late answers come from beside a day."""
    log, out = tmp_path / "log", tmp_path / "out"
    (good,) = write(log, small(20))
    for date in ("0001-01-01", "9999-12-31"):
        folder = log / f"date={date}" / "hour=00"
        folder.mkdir(parents=True)
        (folder / "node-a-1-000001.parquet").write_bytes(good.read_bytes())
    summary = analysis(spark, log, out)
    assert reasons(summary) == {"outside_layout": (2, 0)}
    assert one(out, "latency")["commands"] == 20


def test_a_record_of_a_clock_without_a_battery_holds_nothing_up(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, [outcome(-BEGIN.timestamp() + 60, 300)])
    write(log, small(20))
    summary = analysis(spark, log, out)
    missing = summary["log"]["missing_hours"]
    assert (missing[0], len(missing)) == ("1970-01-01T01:00:00Z", MOST_MISSING)
    assert summary["log"]["hours_missing"] == BEGIN.timestamp() // 3600 - 1
    assert len((out / "summary.json").read_bytes()) < 500_000


def test_old_and_new_schemas_missing_hours_and_a_period(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, small(20))
    # Home cannot know how long another node took to record: the instants tell it.
    write(log, [{**row, "received_at": row["recorded_at"] - timedelta(milliseconds=2)} for row in small(20, 3 * 3600)])
    hour = next(log.glob("date=*/hour=03"))
    old = pa.Table.from_pylist(small(5, 3 * 3600), SCHEMA).drop_columns(["publish_us", "deliver_us"])
    pq.write_table(old.replace_schema_metadata({"homing.schema": "1"}), hour / "node-old-1-1.parquet")
    new = pa.Table.from_pylist(small(5, 3 * 3600), SCHEMA)
    new = new.append_column("humidity", pa.array([1.0] * 5)).replace_schema_metadata({"homing.schema": "7"})
    pq.write_table(new, hour / "node-new-1-1.parquet")

    summary = analysis(spark, log, out)
    assert summary["quarantined"] == []
    assert summary["log"]["files"] == 4
    assert summary["log"]["missing_hours"] == ["2026-01-05T01:00:00Z", "2026-01-05T02:00:00Z"]
    assert one(out, "latency")["commands"] == 50
    record = one(out, "stages", "stage = 'record'")
    assert (record["commands"], record["p50_us"]) == (20, pytest.approx(2000, rel=RELATIVE_ERROR))

    write(log, small(30, 24 * 3600))
    day = BEGIN.date() + timedelta(days=1)
    compared = analysis(spark, log, out, begin=day, compare_to=BEGIN.date())
    assert one(out, "latency")["commands"] == 30
    assert compared["period"]["compared"]["before"] == {"from": "2026-01-05T00:00:00Z", "to": "2026-01-06T00:00:00Z"}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda _log: None, "no such folder"),
        (lambda log: log.mkdir(), "no file of a latency log"),
        (lambda log: (log / "date=2026-01-05" / "hour=00").mkdir(parents=True), "no file of a latency log"),
        (lambda log: (log.mkdir(), (log / "a.parquet").touch()), "1 Parquet files lie elsewhere, such as a.parquet"),
    ],
)
def test_an_empty_log_is_a_sentence(
    spark: SparkSession, tmp_path: Path, make: Callable[[Path], object], sentence: str
) -> None:
    make(tmp_path / "log")
    with pytest.raises(ConfigurationError, match=sentence):
        analysis(spark, tmp_path / "log", tmp_path / "out")


def test_a_log_without_one_good_file_is_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    hour = tmp_path / "log" / "date=2026-01-05" / "hour=00"
    hour.mkdir(parents=True)
    (hour / "node-a-1-1.parquet").touch()
    with pytest.raises(ConfigurationError, match="no record can be used"):
        analysis(spark, tmp_path / "log", tmp_path / "out")


def test_folders_may_have_names_that_look_like_patterns(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log [1]{a,b}*?", tmp_path / "out [2]{c}"
    write(log, small())
    assert analysis(spark, log, out)["log"]["records"] == 60
    write(log, small(7, 3600), "node-b")  # now single files are named
    assert analysis(spark, log, out)["log"]["records"] == 67
    follow(spark, FollowOptions(log=str(log), out=out, once=True))
    assert list((out / "stream" / "windows").iterdir())
