"""The stream: the same windows as a batch over the same files, through kills, late files and rubbish; alerts once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from app.analysis.places import LogFolder, held
from app.analysis.stream.foreign import look
from app.analysis.stream.judge import Bands
from app.analysis.stream.query import closed_windows
from app.analysis.stream.run import FollowOptions, follow
from app.core.errors import ConfigurationError
from app.runtime.system import SystemClock
from tests.analysis.small_logs import BEGIN, outcome, timed_out, write
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 400
"""Seconds that a Spark of its own may take to start and to work, beside others that use all processors."""


def minutes(
    first: int, last: int, *, slow: float = 1.0, silent: float = 0.0, seed: int = 7
) -> Iterator[dict[str, Any]]:
    """Sixty commands of two methods in each minute, and a few of other outcomes."""
    rng = random.Random(f"{seed} {first}")
    for minute in range(first, last):
        for number in range(60):
            at, method = 60 * minute + number, ("takeoff", "land")[number % 2]
            if rng.random() < silent:
                yield timed_out(at, method=method)
            else:
                result = "failed" if number == 7 else "succeeded"
                yield outcome(at, 500 * slow * rng.lognormvariate(0, 0.3), method=method, outcome=result)


def options(log: Path, out: Path, **other: Any) -> FollowOptions:
    values = {"once": True, "trigger": timedelta(milliseconds=100), **other}
    return FollowOptions(log=str(log), out=out, **values)


def windows(out: Path) -> list[dict[str, Any]]:
    files = sorted((out / "stream" / "windows").glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert len({(row["start"], row["method"]) for row in rows}) == len(rows), "a window came out twice"
    return rows


def batch(log: Path, before: datetime) -> dict[tuple[datetime, str | None], tuple[int, ...]]:
    """Counts and exact percentiles per minute and method, and of all methods, of the minutes that end by `before`."""
    found = duckdb.sql(
        f"""SELECT epoch(time_bucket(INTERVAL 1 MINUTE, recorded_at)), method, count(*), count_if(outcome = 'failed'),
          count_if(outcome = 'timed_out'),
          quantile_disc(total_us, 0.5) FILTER (outcome != 'timed_out'),
          quantile_disc(total_us, 0.99) FILTER (outcome != 'timed_out'), max(total_us) FILTER (outcome != 'timed_out')
        FROM read_parquet('{log}/*/*/*.parquet')
        WHERE kind = 'outcome' AND recorded_at < '{before.isoformat()}'::TIMESTAMPTZ
        GROUP BY GROUPING SETS ((1, 2), (1))"""
    )
    assert found is not None
    return {(BEGIN + timedelta(seconds=row[0] - BEGIN.timestamp()), row[1]): row[2:] for row in found.fetchall()}


def assert_same(out: Path, log: Path, before: datetime) -> None:
    """Every closed minute, once, with the numbers of the batch; percentiles within their bucket."""
    got = {(row["start"], row["method"]): row for row in windows(out)}
    expected = batch(log, before)
    assert set(got) == set(expected)
    for key, (commands, failed, silent, p50, p99, longest) in expected.items():
        row = got[key]
        assert (row["commands"], row["failed"], row["timed_out"], row["max_us"]) == (commands, failed, silent, longest)
        assert row["answered"] == commands - silent
        if p50 is not None:
            assert row["p50_us"] == pytest.approx(p50, rel=0.01)
            assert row["p99_us"] == pytest.approx(p99, rel=0.01)
        assert row["end"] - row["start"] == timedelta(minutes=1)
        assert row["timed_out_share"] == silent / commands


def alerts(out: Path, state: str) -> list[dict[str, Any]]:
    files = sorted((out / "stream" / "alerts" / state).glob("*.json"))
    return [json.loads(file.read_bytes()) for file in files]


def status(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "stream" / "status.json").read_bytes())
    return found


def test_a_late_file_and_rubbish_and_restarts_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, minutes(0, 3))
    follow(spark, options(log, out))
    hour = log / "date=2026-01-05" / "hour=00"
    whole = (written := write(log, minutes(3, 6, silent=0.1)))[0].read_bytes()
    (hour / ".half.parquet.tmp").write_bytes(whole[:100])
    (hour / "_half.parquet").write_bytes(whole)
    (hour / "cut.parquet").write_bytes(whole[:-50])
    (hour / "text.parquet").write_text("hello")
    (log / "root.parquet").write_bytes(b"")
    (log / "notes.txt").write_text("hello")
    pq.write_table(pa.table({"kind": ["outcome"], "method": [["list"]]}), hour / "foreign.parquet")
    follow(spark, options(log, out))
    for name in ("cut", "text", "foreign", "_half"):
        (hour / f"{name}.parquet").unlink()
    (log / "root.parquet").unlink()
    assert_same(out, log, BEGIN + timedelta(minutes=3))  # the latest record is of 5:59, and 2 minutes are waited
    assert status(out)["left_out_files"] == {"foreign": 1, "not_parquet": 3}
    assert status(out)["too_late_cells"] == 0

    before = windows(out)
    write(log, (outcome(5 * 60 + second, 300) for second in range(10)), node="node-b")  # within the watermark
    write(log, minutes(6, 9), node="node-a")
    follow(spark, options(log, out))
    follow(spark, options(log, out))
    assert windows(out)[: len(before)] == before
    assert_same(out, log, BEGIN + timedelta(minutes=6))
    assert len(written) == 1

    too_late = write(log, [outcome(30, 300)], node="node-c")
    follow(spark, options(log, out))
    too_late[0].unlink()
    assert_same(out, log, BEGIN + timedelta(minutes=6))
    assert status(out)["too_late_cells"] == 1
    (dropped,) = [one for one in alerts(out, "sent") if one["measure"] == "dropped"]
    assert dropped["event"] == "raised"
    assert dropped["sentence"].startswith("all methods: 1 cells came behind the watermark, 2026-01-05T00:06:59")


def test_a_record_of_the_future_closes_no_minute(spark: SparkSession, tmp_path: Path) -> None:
    """In the folder of an hour that is not its own, and, as the clock of the store stepped, in that of its own."""
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, minutes(0, 3))
    follow(spark, options(log, out))
    (ahead,) = write(log, [outcome(73 * 365 * 24 * 3600.0, 300)], node="node-b")
    stray = log / "date=2026-01-05" / "hour=00" / "node-c-1-000001.parquet"
    shutil.copy2(ahead, stray)
    write(log, minutes(3, 6))
    follow(spark, options(log, out))
    write(log, minutes(6, 9))
    follow(spark, options(log, out))
    for path in (ahead, stray):
        path.unlink()
    assert_same(out, log, BEGIN + timedelta(minutes=6))
    told = [(one["event"], one["measure"], one["value"]) for one in alerts(out, "sent")]
    assert told == [("raised", "dropped", 2), ("resolved", "dropped", 0)]
    assert "2 records have a time that is not in the hour" in alerts(out, "sent")[0]["sentence"]


def test_what_a_batch_has_in_quarantine_is_not_counted(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, minutes(0, 6))
    wrong = write(log, [outcome(1, 300, outcome="paused"), outcome(2, -1), outcome(3, 300, record_us=-1)], "node-b")
    follow(spark, options(log, out))
    wrong[0].unlink()
    assert_same(out, log, BEGIN + timedelta(minutes=3))


def test_a_file_that_is_of_the_future_as_its_records_are_closes_no_minute(spark: SparkSession, tmp_path: Path) -> None:
    """One clock has told both times, as that of a machine without a battery does."""
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, minutes(0, 3))
    follow(spark, options(log, out))
    soon = SystemClock().wall() + 3 * 24 * 3600
    (ahead,) = write(log, [outcome(soon - BEGIN.timestamp(), 300)], node="node-b")
    os.utime(ahead, (soon + 60, soon + 60))
    write(log, minutes(3, 6))
    follow(spark, options(log, out))
    write(log, minutes(6, 9))
    follow(spark, options(log, out))
    ahead.unlink()
    assert_same(out, log, BEGIN + timedelta(minutes=6))
    assert [(one["event"], one["value"]) for one in alerts(out, "sent")] == [("raised", 1), ("resolved", 0)]


def test_files_that_are_left_out_are_counted_after_one_of_the_future(tmp_path: Path) -> None:
    log, state, now = LogFolder(str(tmp_path / "log")), tmp_path / "state.json", SystemClock().wall()
    (ahead,) = write(tmp_path / "log", [outcome(1, 300)], node="node-b")
    os.utime(ahead, (now + 10**9, now + 10**9))
    assert look(log, state, now) == {}
    for number in range(2):
        (ahead.parent / f"cut-{number}.parquet").write_bytes(b"cut")
        assert look(log, state, now + 1) == {"not_parquet": number + 1}
        assert look(log, state, now + 1) == {"not_parquet": number + 1}, "each is counted once"


def test_commands_without_a_method_count_among_all_alone() -> None:
    cell = {"start": BEGIN, "end": BEGIN + timedelta(minutes=1), "bucket": 10}
    known = {"profile": "dji", "method": "land", "outcome": "succeeded", "commands": 2, "longest_us": 1}
    nameless = {"profile": None, "method": None, "outcome": "failed", "commands": 1, "longest_us": 7}
    found = closed_windows(pa.Table.from_pylist([{**cell, **known}, {**cell, **nameless}]))
    names = ("method", "commands", "answered", "failed", "p50_us", "max_us", "start")
    assert {tuple(one[name] for name in names) for one in found} == {
        ("land", 2, 2, 0, 1, 1, BEGIN),
        (None, 3, 3, 1, 1, 7, BEGIN),
    }


class Receiver:
    """A webhook that may be told to be away, or to refuse."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.keys: Counter[str] = Counter()
        self.answer = 204

    async def handle(self, request: web.Request) -> web.Response:
        if self.answer == 204:
            self.keys[request.headers["Idempotency-Key"]] += 1
            self.got.append(await request.json())
        return web.Response(status=self.answer)


@pytest.fixture
async def receiver() -> AsyncIterator[tuple[Receiver, str]]:
    one = Receiver()
    application = web.Application()
    application.router.add_post("/hook", one.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield one, f"http://{host}:{port}/hook"
    await runner.cleanup()


FOLLOW = """
import sys
from datetime import timedelta
from pathlib import Path
from app.analysis.session import spark_session
from app.analysis.places import held
from app.analysis.stream.judge import Bands
from app.analysis.stream.run import FollowOptions, follow
log, out, hook = sys.argv[1:]
with spark_session("killed", "local[2]", {"spark.sql.shuffle.partitions": "2"}) as spark:
    bands = Bands(p99=timedelta(seconds=2))
    follow(spark, FollowOptions(log, Path(out), trigger=timedelta(milliseconds=100), webhook=hook, bands=bands))
"""


async def test_kill_9_loses_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path, receiver: tuple[Receiver, str]
) -> None:
    """Windows and alerts, over a kill in the middle of the work and a second one between writing and committing."""
    log, out = tmp_path / "log", tmp_path / "out"
    hook, url = receiver
    write(log, minutes(0, 5))
    write(log, minutes(5, 7, slow=10))
    job = subprocess.Popen(
        [sys.executable, "-c", FOLLOW, str(log), str(out), url],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        first = 7
        await eventually(lambda: any((out / "stream" / "windows").glob("*.parquet")), PATIENCE)
        for first in range(7, 30, 2):
            write(log, minutes(first, first + 2, slow=10))
            if len(alerts(out, "sent")) == 3:
                break
            await asyncio.sleep(0.2)
        # A kill between an answer and the note of it would send that alert again, with the same id.
        await eventually(lambda: len(alerts(out, "sent")) == 3, PATIENCE)
        assert job.poll() is None
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    write(log, minutes(first + 2, 40))
    bands = Bands(p99=timedelta(seconds=2))
    again = options(log, out, webhook=url, bands=bands)
    await asyncio.to_thread(follow, spark, again)
    # As if killed after the output of the last batch was written and before the checkpoint knew.
    commits = out / "stream" / "_checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / f"{last}", commits / f".{last}.crc"):
        path.unlink()
    await asyncio.to_thread(follow, spark, again)
    assert_same(out, log, BEGIN + timedelta(minutes=37))
    assert set(hook.keys.values()) == {1}
    told = [(one["event"], one["method"], one["measure"]) for one in hook.got]
    assert sorted(told, key=str) == sorted(
        [(event, method, "p99") for event in ("raised", "resolved") for method in (None, "land", "takeoff")], key=str
    )
    assert {one["window_start"] for one in hook.got if one["event"] == "raised"} == {"2026-01-05T00:05:00Z"}
    assert alerts(out, "pending") == []


async def test_alerts_wait_for_a_webhook_that_is_away_and_are_not_sent_to_one_that_refuses(
    spark: SparkSession, tmp_path: Path, receiver: tuple[Receiver, str]
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    hook, url = receiver
    write(log, minutes(0, 2, silent=0.4))
    write(log, minutes(2, 6))
    told = options(log, out, webhook=url, bands=Bands(timeout_share=0.2, objective=0.5))
    hook.answer = 503  # for as long as it takes: how often it is tried depends on how slow Spark is
    await asyncio.to_thread(follow, spark, told)
    assert hook.got == []
    assert len(alerts(out, "pending")) == 6
    hook.answer = 204
    await asyncio.to_thread(follow, spark, told)
    assert hook.got[0]["measure"] == "timeout_share"
    assert hook.got[0]["limit"] == 0.2
    assert hook.got[0]["sentence"].startswith("all methods: the share of timeouts, ")
    assert alerts(out, "sent") == hook.got
    assert set(hook.keys.values()) == {1}

    write(log, minutes(6, 12, silent=0.5))
    sent = len(hook.got)
    hook.answer = 400
    await asyncio.to_thread(follow, spark, told)
    assert len(hook.got) == sent
    assert len(alerts(out, "refused")) == 3
    assert alerts(out, "pending") == []


def test_an_output_belongs_to_one_log(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, minutes(0, 1))
    follow(spark, options(tmp_path / "one", tmp_path / "out"))
    with pytest.raises(
        ConfigurationError, match=r"--out: .* follows .*/one in form 3; take another --out for .*/two in form 3"
    ):
        follow(spark, options(tmp_path / "two", tmp_path / "out"))


def test_a_second_stream_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stream").mkdir()
    nobody: Any = None  # no Spark is needed to refuse
    with (
        held(tmp_path / "stream"),
        pytest.raises(ConfigurationError, match="another homing analysis is at work"),
    ):
        follow(nobody, options(tmp_path, tmp_path))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"log": "nowhere"}, "nowhere: no such folder of a latency log"),
        ({"master": "sc://host:15002"}, "--follow: not by Spark Connect"),
        ({"webhook": "ftp://x"}, "--webhook: 'ftp://x' is no address"),
        ({"lateness": timedelta(days=2)}, "--lateness is 48h; allowed: 0ms to 24h"),
        ({"bands": Bands(objective=1.0)}, "--slo is 1; allowed: 0 to 0.99999"),
        ({"bands": Bands(timeout_share=-1)}, "--alert-timeout-share is -1; allowed: 0 to 1"),
        ({"bands": Bands(p99=timedelta())}, "--alert-p99 is 0ms; allowed: 1ms to 24h"),
    ],
)
def test_wrong_options_get_a_sentence(tmp_path: Path, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        FollowOptions(**{"log": str(tmp_path), "out": tmp_path, **wrong})
    assert str(refused.value).startswith(sentence)
