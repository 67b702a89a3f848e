"""`homing analyze --follow`: the query, what each batch leaves behind, and what the stream says about itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from app.analysis.contracts import WINDOWS
from app.analysis.lake import Row
from app.analysis.places import LogFolder, as_json, held, write_whole
from app.analysis.session import prepared
from app.analysis.stream import query
from app.analysis.stream.foreign import look
from app.analysis.stream.judge import Bands, Judge
from app.analysis.stream.outbox import Outbox, to_log, webhook
from app.core.errors import ConfigurationError
from app.core.ranges import check_range
from app.runtime.system import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORM: Final = 3
"""The form of the checkpoint and the states: from another one the stream cannot go on."""
STATES_KEPT: Final = 5
_ADDRESS: Final = re.compile(r"https?://(\[[\da-f:.]+\]|[^/?#:@\s]+)(:\d{1,5})?([/?]\S*)?", re.ASCII | re.IGNORECASE)
TURN_SECONDS: Final = 1


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """One run. ConfigurationError names the option that is wrong and what is allowed."""

    log: str
    out: Path
    master: str | None = None
    lateness: timedelta = timedelta(minutes=2)
    """The watermark: how far behind the latest record another may be and still count. Longer than nodes gather for."""
    trigger: timedelta = timedelta(seconds=10)
    """The time between two looks at the folder."""
    once: bool = False
    webhook: str | None = None
    bands: Bands = field(default_factory=Bands)

    def __post_init__(self) -> None:
        check_range("--lateness", self.lateness, timedelta(), timedelta(days=1))
        check_range("--alert-p99", self.bands.p99, timedelta(milliseconds=1), timedelta(days=1))
        check_range("--alert-timeout-share", self.bands.timeout_share, 0, 1)
        check_range("--slo", self.bands.objective, 0, 0.99999)
        if (self.master or "").startswith("sc://"):
            raise ConfigurationError("--follow: not by Spark Connect, whose server would do what is done here")
        if self.webhook is not None and not _ADDRESS.fullmatch(self.webhook):
            raise ConfigurationError(f"--webhook: {self.webhook[:64]!a} is no address; allowed: http(s)://…")
        if "://" not in self.log and not Path(self.log).is_dir():
            raise ConfigurationError(f"{self.log}: no such folder of a latency log")


def follow(spark: SparkSession, options: FollowOptions, say: Callable[[str], None] = lambda _text: None) -> None:
    """Until interrupted or, with `once`, all is done. ConfigurationError when OUT is in use, or Spark fails."""
    folder = options.out / "stream"
    with held(folder):
        _same_log(folder, options)
        stream = _BatchHandler(folder, options, say)
        with prepared(spark, query.SETTINGS):
            running = query.start(spark, options, folder / "_checkpoint", stream.take)
            try:
                while not running.awaitTermination(TURN_SECONDS):
                    stream.turn(running)
                stream.turn(running)
            finally:
                running.stop()


class _BatchHandler:
    """The work that is done with each batch, and, beside that, once a second."""

    def __init__(self, folder: Path, options: FollowOptions, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._log = LogFolder(options.log)
        self._bands = options.bands
        self._outbox = Outbox(folder / "alerts", webhook(options.webhook) if options.webhook else to_log)
        self._say = say
        self._left_out = self._look()
        self._dropped = Dropped(0, 0)
        self._dropping = self._outbox.latest("dropped").get("event") == "raised"
        self._counted = ""
        """The instant at which the latest batch began that they are counted of."""
        self._said: dict[str, Any] = {}

    def take(self, minutes: DataFrame, batch: int) -> None:
        """Write windows, alerts and state under names that the number of the batch gives: the same when done again."""
        self._left_out = self._look()
        windows = query.closed_windows(minutes.selectExpr("minute.*", "* EXCEPT (minute, date)").toArrow())
        if not windows:
            return
        states = self._folder / "_state"
        earlier = sorted(path for path in states.glob("*.parquet") if int(path.stem) < batch)
        judge = Judge(self._bands, pq.read_table(earlier[-1]).to_pylist() if earlier else ())
        alerts = judge.judge(windows)
        _write(self._folder / WINDOWS.name / f"batch-{batch:09d}.parquet", windows)
        for number, alert in enumerate(alerts):
            self._outbox.put(f"{batch:09d}-{number:04d}.json", alert)
        _write(states / f"{batch:09d}.parquet", chain.from_iterable(judge.past.values()))
        for old in earlier[: 1 - STATES_KEPT]:
            old.unlink()

    def _look(self) -> dict[str, int]:
        return look(self._log, self._folder / "_foreign.json", SystemClock().wall())

    def turn(self, running: StreamingQuery) -> None:
        """Send alerts, and write status.json when there is something new."""
        said: dict[str, Any] = {"left_out_files": self._left_out}
        for progress in running.recentProgress:
            said |= {"batch": progress["batchId"], "watermark": dict(progress["eventTime"]).get("watermark")}
            if progress["timestamp"] > self._counted:
                self._counted = progress["timestamp"]
                self._count(progress)
        self._outbox.send_pending()
        said |= {"alerts": self._outbox.counts()}
        said |= {"too_late_cells": self._dropped.too_late, "wrong_time_records": self._dropped.wrong_time}
        if said != self._said:
            self._said = said
            write_whole(self._folder / "status.json", as_json(said))
            self._say(json.dumps(said))

    def _count(self, progress: Mapping[str, Any]) -> None:
        """Tell an alert when a batch drops something, and when one does not any more."""
        late = sum(int(one["numRowsDroppedByWatermark"]) for one in progress["stateOperators"])
        observed = progress["observedMetrics"].get(query.WRONG_TIME)
        found = Dropped(late, int(observed[query.WRONG_TIME] or 0) if observed else 0)
        self._dropped = Dropped(*map(sum, zip(self._dropped, found, strict=True)))
        if any(found) != self._dropping and progress["numInputRows"]:
            self._dropping = any(found)
            alert = found.alert(progress, raised=self._dropping)
            self._outbox.put(f"{progress['batchId']:09d}-dropped.json", alert)


class Dropped(NamedTuple):
    """The records and cells that a batch did not count."""

    too_late: int
    """Cells (a minute, method and bucket of a part of a file) that came behind the watermark."""
    wrong_time: int
    """Records whose time is not in the hour of their folder, or after that of their file."""

    def alert(self, progress: Mapping[str, Any], *, raised: bool) -> dict[str, Any]:
        """As those of the windows are."""
        event = "raised" if raised else "resolved"
        at = dict(progress["eventTime"]).get("watermark")
        said = (
            f"{self.too_late:,} cells came behind the watermark, {at}, and {self.wrong_time:,} records have a time "
            "that is not in the hour of their folder, or after that of their file: none of them is counted"
        )
        return {
            "version": 1,
            "id": f"dropped:{progress['batchId']}:{event}",
            "event": event,
            "measure": "dropped",
            "unit": "records",
            "profile": None,
            "method": None,
            "window_start": at,
            "window_end": at,
            "value": sum(self),
            "limit": 0,
            "records": progress["numInputRows"],
            "sentence": f"all methods: {said if raised else 'all records of the latest batch are counted again'}",
        }


def _write(path: Path, windows: Iterable[Row]) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(windows), WINDOWS.arrow), sink, compression="zstd")
    write_whole(path, bytes(sink.getvalue()))


def _same_log(folder: Path, options: FollowOptions) -> None:
    """A checkpoint knows the files of one log; with another it would repeat or lose."""
    file, known = folder / "_log.json", {"log": LogFolder(options.log).url, "form": FORM}
    before = json.loads(file.read_bytes()) if file.exists() else known
    if before != known:
        of_old, of_new = (f"{one['log']} in form {one.get('form', 2)}" for one in (before, known))
        raise ConfigurationError(f"--out: {folder} follows {of_old}; take another --out for {of_new}")
    write_whole(file, as_json(known))
