"""The folder of results: clean records, rollups and tables as Parquet, and the manifest that says which days hold.

A day is committed by its manifest, which is written last: what a step that was killed left behind is no part of any
day. Files are never changed. New ones lie beside those that they replace until the manifest names them, as the clean
records of files that the log has no more are the only copy; rollups can be made again, so their manifest goes first.
What has one row a record or more is written and read by Spark; the rest by Arrow.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from app.analysis.inventory import SCHEMA, InventoryEntry
from app.analysis.places import LogFolder, held, no_pattern
from app.analysis.source import Source, ddl
from app.runtime.system import new_secret

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from app.analysis.contracts import TableContract

SCHEMA_VERSION: Final = 1
"""The version of the rollups: a day with another one is made anew."""
COMPACT: Final = "compact"
ROLLUP: Final = "rollup"


@dataclass(frozen=True, slots=True)
class Day:
    """A committed day of a step. `run` tells what it was made of: the same run is the same day."""

    date: str
    run: str
    version: int
    files: int
    records: int
    left_out: int


class Lake:
    """The folder."""

    def __init__(self, name: str) -> None:
        self.place = LogFolder(name)

    def alone(self) -> AbstractContextManager[None]:
        """Nobody else changes it meanwhile; of an object store that cannot be told."""
        return nullcontext() if self.place.local is None else held(self.place.local)

    def days(self, step: str, source: Source) -> dict[str, Day]:
        """The committed days of a step, by date."""
        found = self.place.find(f"manifest/step={step}/source={source.name}", ".json")
        with ThreadPoolExecutor(16) as pool:  # an object store takes its time for each
            days = [Day(**json.loads(text)) for text in pool.map(self.place.read, found)]
        return {day.date: day for day in days}

    def open(self, step: str, source: Source, dates: Iterable[str]) -> None:
        """Take the manifests of these days away: they are being made."""
        for date in dates:
            self.place.remove(_manifest(step, source, date))

    def commit(self, step: str, source: Source, days: Iterable[Day]) -> None:
        """Say of these days that they are whole."""
        for day in days:
            self.place.write(_manifest(step, source, day.date), json.dumps(asdict(day)).encode())

    def inventory(self, source: Source, day: Day) -> list[InventoryEntry] | None:
        """The inventory of a compacted day; None for one that version 0.2.0 made."""
        name = _inventory(source, day)
        if name not in self.place.find(name.rpartition("/")[0]):
            return None
        return [InventoryEntry(**row) for row in pq.read_table(pa.BufferReader(self.place.read(name))).to_pylist()]

    def commit_clean(self, source: Source, day: Day, entries: Iterable[InventoryEntry]) -> None:
        """Say what a compacted day is made of, and that it is whole; then remove what it has no more."""
        entries = list(entries)
        name = _inventory(source, day)
        self.place.write(name, _parquet(pa.Table.from_pylist([asdict(one) for one in entries], SCHEMA)))
        self.commit(COMPACT, source, [day])
        for other in self.place.find(name.rpartition("/")[0], ".parquet"):
            if other != name:
                self.place.remove(other)
        self.keep(f"clean/{source.name}", [day.date], {one.part for one in entries})

    def clean(self, spark: SparkSession, source: Source, days: Iterable[Day]) -> DataFrame:
        """The clean records of these days."""
        files = [file for day in days for file in self.clean_files(source, day)]
        root = f"{self.place.url}/clean/{source.name}"
        reader = spark.read.schema(ddl(source.kept)).option("basePath", root)
        return reader.parquet(*(no_pattern(f"{self.place.url}/{file}") for file in files))

    def files(self, folder: str, date: str, parts: Iterable[str]) -> list[str]:
        """The files of these parts of a day; the empty part is all of them."""
        beginnings = tuple(set(parts))
        above = [folder, *(one for one in self.place.folders(folder) if one.rpartition("/")[2].startswith("db="))]
        found = [file for one in above for file in self.place.find(f"{one}/date={date}", ".parquet")]
        return [file for file in found if file.rpartition("/")[2].startswith(beginnings)]

    def clean_files(self, source: Source, day: Day) -> list[str]:
        """The files of the clean records of a day.

        There are none of a day whose clean records were removed, or that had none.
        """
        entries = self.inventory(source, day)
        return self.files(f"clean/{source.name}", day.date, [""] if entries is None else {one.part for one in entries})

    def count(self, source: Source, date: str, parts: Iterable[str]) -> int:
        """The number of clean records, by the footers of their files."""
        paths = [self.place.path(file) for file in self.files(f"clean/{source.name}", date, parts)]
        return ds.dataset(paths, filesystem=self.place.files).count_rows() if paths else 0

    def write(self, folder: str, frame: DataFrame, *partitions: str) -> str:
        """Write new files beside those that are there: their names begin with what is returned, the part.

        Hidden until all of them are written: a JVM that outlives this process shows nothing.
        """
        part = new_secret()[:12]
        hidden = f"{folder}/_new-{part}"
        try:
            writer = frame.write.partitionBy(*partitions).option("compression", "zstd")
            writer.parquet(f"{self.place.url}/{hidden}")
            for file in self.place.find(hidden, ".parquet", hidden=True):
                place, _, name = file[len(hidden) + 1 :].rpartition("/")
                self.place.move(file, f"{folder}/{place}/{part}-{name}")
        finally:
            for one in self.place.folders(folder):  # also those of a process that was killed
                if one.startswith(f"{folder}/_new-"):
                    self.place.remove_folder(one)
        return part

    def keep(self, folder: str, dates: Iterable[str], parts: Collection[str]) -> None:
        """Remove what these days have there of other parts."""
        for date in dates:
            for file in set(self.files(folder, date, [""])).difference(self.files(folder, date, parts)):
                self.place.remove(file)

    def put_rollup(self, rollup: TableContract, frame: DataFrame, runs: Mapping[str, str]) -> None:
        """Write a rollup of these days; each row carries the run of its day."""
        of_day = " ".join(f"WHEN DATE'{date}' THEN '{run}'" for date, run in runs.items())
        columns = [f"CAST({one.name} AS {one.type}) AS {one.name}" for one in rollup.columns]
        frame = frame.where(_of_days(runs)).selectExpr(*columns, "date", f"CASE date {of_day} END AS run")
        part = self.write(f"rollups/{rollup.name}", frame.coalesce(4), "date")
        self.keep(f"rollups/{rollup.name}", runs, {part})

    def rows(self, folder: str, date: str) -> list[Row]:
        """Read the rows that `put_rows` wrote of a day."""
        files = self.files(folder, date, [""])
        return [row for file in files for row in pq.read_table(pa.BufferReader(self.place.read(file))).to_pylist()]

    def put_rows(self, folder: str, table: pa.Table) -> None:
        """Write rows that this process has as the one file of a folder."""
        target = f"{folder}/rows.parquet"
        self.place.write(target, _parquet(table))
        for other in self.place.find(folder):
            if other != target:
                self.place.remove(other)


def _manifest(step: str, source: Source, date: str) -> str:
    return f"manifest/step={step}/source={source.name}/date={date}/day.json"


def _inventory(source: Source, day: Day) -> str:
    return f"manifest/step={COMPACT}/source={source.name}/date={day.date}/files-{day.run}.parquet"


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def _of_days(dates: Iterable[str]) -> str:
    days = ", ".join(f"DATE'{date}'" for date in dates)
    return f"date IN ({days})"


def one_of(what: str, values: Iterable[str]) -> str:
    """The condition, in Spark SQL, that something is one of the values."""
    listed = ", ".join(quoted(value) for value in values)
    return f"{what} IN ({listed})" if listed else "false"


def quoted(text: str) -> str:
    """A string of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


Row = dict[str, Any]
Rows = dict[str, list[Row]]
"""The rows of tables, by the names of the tables."""
