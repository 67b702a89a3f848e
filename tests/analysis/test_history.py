"""The history of a day: it may gain files and loses none by running, whatever retention or a second run does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.analysis.lake import Lake
from app.analysis.options import AnalyzeOptions
from app.analysis.places import held
from app.analysis.source import EVENTS, LATENCY
from app.core.errors import ConfigurationError
from tests.analysis.results import analysis, queried, rolled
from tests.analysis.small_logs import late, outcome, timed_out, write
from tests.analysis.test_events import HOUR_US, put, said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
DAY = 24 * 3600
STEPS = ("compact", "rollup")


def compacted(out: Path, name: str = "latency") -> int:
    """Clean records, in all files that are there."""
    files = list((out / "clean" / name).rglob("*.parquet"))
    return sum(queried(f"SELECT count(*) FROM '{file}'").fetchall()[0][0] for file in files)


def events_rolled(out: Path) -> dict[str, int]:
    return dict(rolled(out, "date::VARCHAR, sum(events)::BIGINT", "event_hourly", "GROUP BY 1"))


class Told:
    """The lines that a run says as it goes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, _fraction: float, text: str) -> None:
        self.lines.append(text)


def told(spark: SparkSession, log: Path, out: Path, **options: Any) -> list[str]:
    from app.analysis.analyze import run  # noqa: PLC0415

    progress = Told()
    run(spark, AnalyzeOptions(log=str(log), out=str(out), steps=STEPS, **options), progress)
    return progress.lines


@pytest.fixture(scope="module")
def counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, a cold tier of 26 hours of events, and what was counted of them."""
    folder = tmp_path_factory.mktemp("counted")
    write(folder / "log", [outcome(600 * number, 100) for number in range(20)])
    put(folder / "cold", "events", said())
    analysis(spark, folder / "log", folder / "out", events=str(folder / "cold"), steps=STEPS)
    return folder


@pytest.fixture
def fleet(counted: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """The three folders of `counted`, for a test that changes them."""
    shutil.copytree(counted, tmp_path / "fleet")  # with the times of the files, which the inventory knows
    return tmp_path / "fleet" / "log", tmp_path / "fleet" / "cold", tmp_path / "fleet" / "out"


def test_retention_takes_nothing_from_a_day_that_was_counted(
    spark: SparkSession, fleet: tuple[Path, Path, Path]
) -> None:
    log, cold, out = fleet
    whole, days = compacted(out, "events"), events_rolled(out)
    assert whole == len(said()) == sum(days.values())

    for hour in range(20):
        shutil.rmtree(cold / f"db=events/date=2026-01-05/hour={hour:02}")
    lines = told(spark, log, out, events=str(cold))
    assert events_rolled(out) == days
    assert compacted(out, "events") == whole
    assert "compact 2026-01-05 stays as it was: 20 of its 24 files are gone" in lines

    # What came since is added to what is left of nothing else.
    more = [one._replace(position=one.position + 10) for one in said() if one.position % HOUR_US < HOUR_US // 2]
    put(cold, "events", [one for one in more if one.position // HOUR_US == more[-1].position // HOUR_US - 4], 9)
    gained = sum(
        queried(f"SELECT count(*) FROM '{file}'").fetchall()[0][0] for file in cold.rglob("*-gen=000009-*.parquet")
    )
    assert gained
    analysis(spark, log, out, events=str(cold), steps=STEPS)
    assert compacted(out, "events") == whole + gained == sum(events_rolled(out).values())

    # Neither does being told to make it again.
    analysis(spark, log, out, events=str(cold), steps=STEPS, again=True)
    assert compacted(out, "events") == whole + gained == sum(events_rolled(out).values())
    assert Lake(str(out)).days("compact", EVENTS)["2026-01-05"].records == whole + gained - days["2026-01-06"]


def test_a_day_of_which_no_file_is_left_stays(spark: SparkSession, fleet: tuple[Path, Path, Path]) -> None:
    log, cold, out = fleet
    days = events_rolled(out)
    shutil.rmtree(cold / "db=events/date=2026-01-05")
    analysis(spark, log, out, events=str(cold), steps=STEPS)
    assert events_rolled(out) == days


def test_what_an_earlier_version_counted_is_not_made_from_less(
    spark: SparkSession, fleet: tuple[Path, Path, Path]
) -> None:
    """It noted how many files a day had, and not which."""
    log, cold, out = fleet
    days = events_rolled(out)
    for inventory in out.glob("manifest/step=compact/**/*.parquet"):
        inventory.unlink()
    shutil.rmtree(cold / "db=events/date=2026-01-05/hour=03")
    lines = told(spark, log, out, events=str(cold))
    assert "compact 2026-01-05 stays as it was: it had 24 files, and 23 are left" in lines
    assert events_rolled(out) == days


def test_a_day_without_a_good_record_leaves_no_ghost(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, [outcome(600 * number, 100) for number in range(20)])
    (other,) = write(log, [outcome(DAY + 60, 100)])
    analysis(spark, log, out, steps=STEPS)
    other.write_bytes(b"PAR1 and then nothing")
    analysis(spark, log, out, steps=STEPS)
    assert Lake(str(out)).days("compact", LATENCY)["2026-01-06"].records == 0
    assert compacted(out) == 20
    assert dict(rolled(out, "date::VARCHAR, sum(commands)::BIGINT", "latency_hourly", "GROUP BY 1")) == {
        "2026-01-05": 20
    }


def test_a_file_that_is_completed_under_its_name_is_read(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, [outcome(600 * number, 100) for number in range(5)])
    (half,) = write(log, [outcome(30 * number, 100) for number in range(7)], "node-b")
    whole = half.read_bytes()
    half.write_bytes(whole[: len(whole) // 2])
    analysis(spark, log, out, steps=("compact",))
    assert compacted(out) == 5
    assert rolled(out, "reason, files", "quarantine") == [("not_parquet", 1)]

    half.write_bytes(whole)
    first, *_ = sorted(log.rglob("node-a-*.parquet"))
    first.unlink()  # what was read of it stays
    analysis(spark, log, out, steps=("compact",))
    assert compacted(out) == 12
    assert rolled(out, "reason, files", "quarantine") == []


def test_an_outcome_that_two_nodes_wrote_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    """Home was taken for dead, and lived: its record has the durations."""
    log, out = tmp_path / "log", tmp_path / "out"
    mine = outcome(60, 100)
    write(log, [mine, outcome(61, 100)])
    other = {**mine, "writing_node": "node-b", "total_us": None, "registered_at": None}
    write(log, [other], "node-b")
    summary = analysis(spark, log, out)
    ((commands, longest),) = rolled(out, "sum(commands)::BIGINT, sum(sum_us)::BIGINT", "latency_hourly")
    assert (commands, longest) == (2, 200_000)
    assert rolled(out, "sum(commands)::BIGINT", "devices_daily") == [(2,)]
    assert {row["reason"]: (row["records"], row["example"]) for row in summary["quarantined"]} == {
        "repeated": (1, mine["command_id"])
    }


def test_a_day_that_is_filled_in_later_names_the_late_answers_of_the_next(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    slow = timed_out(DAY - 5, method="land")
    write(log, [outcome(DAY + 60, 100), late(slow, 25_000)])
    analysis(spark, log, out, steps=STEPS)
    named = "profile, method, responses"
    assert rolled(out, named, "late_hourly") == [(None, None, 1)]
    write(log, [slow])
    analysis(spark, log, out, steps=STEPS)
    assert rolled(out, named, "late_hourly") == [("dji", "land", 1)]
    assert dict(rolled(out, "date::VARCHAR, sum(commands)::BIGINT", "latency_hourly", "GROUP BY 1")) == {
        "2026-01-05": 1,
        "2026-01-06": 1,
    }


def test_a_kill_before_the_manifest_leaves_the_day_as_it_was_whatever_retention_does_then(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    files = write(log, [outcome(3600 * number, 100) for number in range(6)])
    analysis(spark, log, out, steps=("compact",))
    write(log, [outcome(90, 100)], "node-b")

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(Lake, "commit", killed)
    with pytest.raises(Killed):
        analysis(spark, log, out, steps=("compact",))
    monkeypatch.undo()
    assert Lake(str(out)).days("compact", LATENCY)["2026-01-05"].records == 6
    for file in files[:4]:
        file.unlink()
    analysis(spark, log, out, steps=STEPS)
    assert rolled(out, "sum(commands)::BIGINT", "latency_hourly") == [(7,)]
    assert compacted(out) == 7
    assert not list(out.rglob("_new*"))


HOLD = """
import sys
from pathlib import Path
from app.analysis.places import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(out: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that is at work in a folder."""
    command = [sys.executable, "-c", HOLD, str(out)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_two_processes_on_one_folder_do_not_mix(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, [outcome(600 * number, 100) for number in range(20)])
    out.mkdir()
    compact = [sys.executable, "-m", "app.cli", "compact", str(log), "--out", str(out)]

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(compact, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    with holder(out) as other:
        _, said_no = (refused := started()).communicate()
        assert refused.returncode == 2
        assert f"--out: another homing analysis is at work in {out}" in said_no
        other.kill()  # which frees it
        other.wait()
        both = [started(), started()]
        ends = sorted((one.communicate()[1], one.returncode) for one in both)
    assert sorted(code for _, code in ends) in ([0, 0], [0, 2])  # one after the other, or one alone
    assert compacted(out) == 20


def test_a_folder_is_held_once(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(ConfigurationError, match="another homing analysis is at work"), held(tmp_path):
        pass
    with held(tmp_path):
        pass
