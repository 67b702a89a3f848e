"""Days: what a kill leaves behind is no part of any, late answers repair the one before, nothing is done twice."""

from __future__ import annotations

import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.analysis.lake import Lake
from app.analysis.source import LATENCY
from app.core.errors import ConfigurationError
from tests.analysis.results import analysis, one, queried, rolled, rows
from tests.analysis.small_logs import BEGIN, late, outcome, timed_out, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 24 * 3600
STEPS = ("compact", "rollup")


class Killed(BaseException):
    """An end of the process that it cannot catch."""


def commands(day: int, count: int = 20) -> list[dict[str, Any]]:
    return [outcome(DAY * day + 600 * number, 100 + number) for number in range(count)]


def counted(out: Path) -> dict[str, int]:
    """Date -> commands, of the rows that a manifest names."""
    if not any(out.glob("manifest/step=rollup/*/*/*.json")):
        return {}
    manifest = f"read_json('{out}/manifest/step=rollup/*/*/*.json', hive_partitioning=true)"
    found = rolled(
        out,
        "r.date, sum(commands)::BIGINT",
        "latency_hourly",
        f"r JOIN {manifest} m ON r.date = m.date AND r.run = m.run GROUP BY r.date",
    )
    return {str(day): count for day, count in found}


def test_only_new_days_are_done_and_a_day_that_is_done_again_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, [*commands(0), *commands(1)])
    analysis(spark, log, out, steps=STEPS)
    assert counted(out) == {"2026-01-05": 20, "2026-01-06": 20}
    first = {path: path.stat().st_mtime_ns for path in out.glob("rollups/latency_hourly/date=*/*.parquet")}

    write(log, commands(1, 5), "node-b")
    analysis(spark, log, out, steps=STEPS)
    assert counted(out) == {"2026-01-05": 20, "2026-01-06": 25}
    now = {path: path.stat().st_mtime_ns for path in out.glob("rollups/latency_hourly/date=*/*.parquet")}
    assert {path for path in now if now[path] == first.get(path)} == {
        path for path in first if "2026-01-05" in path.parts[-2]
    }

    clean = f"read_parquet('{out}/clean/latency/*/*.parquet', hive_partitioning=true)"
    columns = {row[0] for row in queried(f"DESCRIBE SELECT * FROM {clean}").fetchall()}
    assert {"date", "command_id", "error_code"} < columns == set(LATENCY.kept)
    assert "writing_node" not in columns

    before = sorted(map(str, rolled(out, "*", "latency_hourly")))
    analysis(spark, log, out, steps=STEPS, again=True)
    assert sorted(map(str, rolled(out, "*", "latency_hourly"))) == before


@pytest.fixture(scope="module")
def one_day(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of one day, and what was counted of it."""
    folder = tmp_path_factory.mktemp("day")
    write(folder / "log", commands(0))
    analysis(spark, folder / "log", folder / "out", steps=STEPS)
    return folder


@pytest.mark.parametrize(("step", "after"), [("compact", 0), ("rollup", 1), ("rollup", 5)])
def test_a_kill_loses_and_doubles_nothing(
    spark: SparkSession, one_day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: int
) -> None:
    """After so many writes the process is gone: in the middle of a step, or between its data and its manifest."""
    shutil.copytree(one_day, tmp_path, dirs_exist_ok=True)
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, [*commands(0, 3), *commands(1, 4)], "node-b")
    write_whole, left = Lake.write, [after]

    def write_some(lake: Lake, folder: str, *others: Any) -> str:
        if folder.startswith("clean" if step == "compact" else "rollups"):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
        return write_whole(lake, folder, *others)

    monkeypatch.setattr(Lake, "write", write_some)
    with pytest.raises(Killed):
        analysis(spark, log, out, steps=("compact",) if step == "compact" else STEPS)
    monkeypatch.undo()
    assert counted(out) in ({}, {"2026-01-05": 20})  # as it was, or not there; never something between
    analysis(spark, log, out, steps=STEPS)
    assert counted(out) == {"2026-01-05": 23, "2026-01-06": 4}
    assert rolled(out, "sum(commands)::BIGINT", "latency_hourly") == [(27,)]


def test_late_answers_repair_the_day_before(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    slow = timed_out(DAY - 5, method="land")
    write(log, [*commands(0), slow])
    analysis(spark, log, out, steps=STEPS)
    ends = '"end", sum(commands)::BIGINT'
    assert dict(rolled(out, ends, "deadlines_hourly", 'GROUP BY "end"')) == {0: 20, 2: 1}
    answer = late(slow, 25_000)
    write(log, [*commands(1), answer])
    analysis(spark, log, out, steps=STEPS)
    assert dict(rolled(out, ends, "deadlines_hourly", "WHERE date = '2026-01-05' GROUP BY \"end\"")) == {0: 20, 1: 1}
    ((took,),) = rolled(out, "sum_us", "deadlines_hourly", 'WHERE "end" = 1')
    assert took == 25_000_000
    # Its record has no method of its own: that of the command, which ended on the day before.
    assert rolled(out, "profile, method, responses", "late_hourly") == [("dji", "land", 1)]


def test_a_report_is_about_any_period(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, [row for day in range(4) for row in commands(day, 10 + day)])
    analysis(spark, log, out, steps=STEPS)
    begin = BEGIN.date()
    of = {"begin": begin + timedelta(days=2), "end": begin + timedelta(days=3)}
    summary = analysis(spark, Path(), out, steps=("report",), **of)
    assert one(out, "latency")["commands"] == 12
    assert summary["period"]["compared"]["before"] == {"from": "2026-01-06T00:00:00Z", "to": "2026-01-07T00:00:00Z"}
    assert {row["stage"] for row in rows(out, "stages")} == set()
    with pytest.raises(ConfigurationError, match="no day from 2027-01-01 was rolled up; `homing rollup` does that"):
        analysis(spark, Path(), out, steps=("report",), begin=date(2027, 1, 1))


def test_what_was_not_compacted_cannot_be_rolled_up(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no compacted day to roll up; `homing compact` makes them"):
        analysis(spark, Path(), tmp_path, steps=("rollup",))


def test_more_days_than_a_job_takes_at_once(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, [row for day in range(3) for row in commands(day, 2)])
    analysis(spark, log, out, steps=STEPS, days_at_once=2)
    assert counted(out) == {"2026-01-05": 2, "2026-01-06": 2, "2026-01-07": 2}
