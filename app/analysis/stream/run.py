"""The run: the query, what each batch leaves behind, alerts on their way, and what the stream says about itself."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from app.analysis.contracts import WINDOWS
from app.analysis.places import Place, as_json, write_whole
from app.analysis.session import first_line
from app.analysis.stream import query
from app.analysis.stream.foreign import Foreign
from app.analysis.stream.judge import MINUTE, STATE_VERSION, Judge, Window, alert
from app.analysis.stream.options import FOLDER, FollowOptions
from app.analysis.stream.outbox import Outbox, Webhook, to_log
from app.core.errors import ConfigurationError, HomingError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT: Final = "_checkpoint"
STATES: Final = "_state"
ALERTS: Final = "alerts"
STATUS: Final = "status.json"
FOREIGN: Final = "_foreign.json"
STATES_KEPT: Final = 5
TURN_SECONDS: Final = 1.0
REPORTS_KEPT: Final = 200
"""More than Spark keeps."""

Say = Callable[[str], None]


class StreamError(HomingError):
    """The stream cannot go on; started again, it goes on where it was."""


def follow(spark: SparkSession, options: FollowOptions, say: Say = lambda _text: None) -> None:
    """Follow the log until there is an error, or KeyboardInterrupt, or, with `once`, until all is done.

    ConfigurationError when OUT is in use or belongs to another log; StreamError when it cannot go on.
    """
    options.check()
    folder = options.out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder):
        _same_log(folder, options)
        outbox = Outbox(folder / ALERTS, Webhook(options.webhook) if options.webhook else to_log)
        status = _Status(folder, options, outbox, say)
        batches = Batches(folder, options, outbox)
        with _running(spark, options, folder, batches) as running:
            while not running.awaitTermination(TURN_SECONDS):
                status.turn(running)
            status.turn(running)


class Batches:
    """What is done with the closed minutes of a batch: all of it the same when it is done again."""

    def __init__(self, folder: Path, options: FollowOptions, outbox: Outbox) -> None:
        self._folder = folder
        self._bands = options.bands
        self._outbox = outbox

    def take(self, minutes: DataFrame, batch: int) -> None:
        """Write windows, alerts and state under names that the number of the batch gives."""
        windows = query.closed_windows(minutes)
        if not windows:
            return
        judge = Judge(self._bands, self._state_before(batch))
        breaches = judge.judge(windows)
        write_whole(self._folder / WINDOWS.name / f"batch-{batch:09d}.parquet", _parquet(windows))
        for number, breach in enumerate(breaches):
            self._outbox.put(f"{batch:09d}-{number:04d}.json", alert(breach))
        write_whole(self._folder / STATES / f"{batch:09d}.json", as_json(judge.state))
        for old in sorted((self._folder / STATES).glob("*.json"))[:-STATES_KEPT]:
            old.unlink()

    def _state_before(self, batch: int) -> dict[str, Any] | None:
        earlier = [path for path in (self._folder / STATES).glob("*.json") if int(path.stem) < batch]
        if not earlier:
            return None
        latest = max(earlier)
        state: dict[str, Any] = json.loads(latest.read_bytes())
        if state["version"] != STATE_VERSION:
            said = f"version is {state['version']!r}; allowed: {STATE_VERSION}"
            raise StreamError(f"{latest}: {said}. Take another --out")
        return state


class _Status:
    """Sends alerts and writes status.json, beside the batches."""

    def __init__(self, folder: Path, options: FollowOptions, outbox: Outbox, say: Say) -> None:
        self._folder = folder
        self._outbox = outbox
        self._say = say
        state = folder / FOREIGN
        self._foreign = Foreign(options.log, json.loads(state.read_bytes()) if state.exists() else None)
        self._every = options.trigger.total_seconds()
        self._turns_to_look = 0.0
        self._too_late = 0
        self._dropped: dict[int, int] = {}
        """Batch -> what came behind the watermark: cells (a minute, method and bucket of a part of a file)."""
        self._said = ""

    def turn(self, running: Any) -> None:  # noqa: ANN401 - Spark's
        """Once a second or so."""
        self._outbox.send_pending()
        self._turns_to_look -= TURN_SECONDS
        if self._turns_to_look <= 0:
            self._turns_to_look = self._every
            if self._foreign.look():
                write_whole(self._folder / FOREIGN, as_json(self._foreign.state))
        said: dict[str, Any] = {"left_out_files": self._foreign.counts, "alerts": self._outbox.counts()}
        for progress in running.recentProgress:
            self._count_dropped(int(progress["batchId"]), progress["stateOperators"])
            said |= {"batch": progress["batchId"], "watermark": dict(progress["eventTime"]).get("watermark")}
        said["too_late_cells"] = self._too_late
        text = as_json(said).decode()
        if text != self._said:
            self._said = text
            write_whole(self._folder / STATUS, text.encode())
            self._say(" ".join(text.split()))

    def _count_dropped(self, batch: int, operators: Any) -> None:  # noqa: ANN401 - Spark's
        """Of a report on a batch, which may come several times."""
        before = self._dropped.pop(batch, 0)
        now = max(before, sum(int(one["numRowsDroppedByWatermark"]) for one in operators))
        self._too_late += now - before
        self._dropped[batch] = now
        while len(self._dropped) > REPORTS_KEPT:
            del self._dropped[next(iter(self._dropped))]


@contextmanager
def _running(spark: SparkSession, options: FollowOptions, folder: Path, batches: Batches) -> Iterator[Any]:
    """The query while it runs; its failures as StreamError."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra

    try:
        started = query.start(spark, options, str(folder / CHECKPOINT), batches.take)
        try:
            yield started
        finally:
            started.stop()
    except PySparkException as error:
        raise StreamError(f"the stream ended: {first_line(error)}") from error


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Only one process at a time; ConfigurationError when there is another. A kill frees it."""
    with (folder / "_lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError(f"--out: another homing analyze --follow is at work in {folder}") from None
        yield


def _same_log(folder: Path, options: FollowOptions) -> None:
    """A checkpoint knows the files of one log; with another it would repeat or lose."""
    place, file = Place(options.log).url, folder / "_log.json"
    if not file.exists():
        write_whole(file, as_json({"log": place}))
    elif (before := json.loads(file.read_bytes())["log"]) != place:
        raise ConfigurationError(f"--out: {folder} follows {before}; take another --out for {place}")


def _parquet(windows: list[Window]) -> bytes:
    rows = []
    for window in sorted(windows, key=lambda one: (one.start, one.series)):
        row = asdict(window)
        row["start"] = window.start * 1_000_000
        row["end"] = (window.start + MINUTE) * 1_000_000
        rows.append(row)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, WINDOWS.arrow), sink, compression="zstd")
    return bytes(sink.getvalue())
