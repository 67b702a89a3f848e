"""The folder of results: clean records, rollups and tables as Parquet, and the manifest that says which days hold.

A day is committed by its manifest, which is written last and taken away first: what a step that was killed left behind
is no part of any day. What has one row a record or more is written and read by Spark; the rest by Arrow.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from app.analysis.places import Place
from app.analysis.source import Source, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from app.analysis.contracts import Table

SCHEMA_VERSION: Final = 1
"""Of the rollups: a day with another one is made anew."""
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
        self.place = Place(name)

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

    def clean(self, spark: SparkSession, source: Source, dates: Collection[str]) -> DataFrame:
        """The clean records of these days."""
        frame = spark.read.schema(ddl(source.kept)).parquet(f"{self.place.url}/clean/{source.name}")
        return frame.where(_of_days(dates))

    def count(self, source: Source, dates: Iterable[str]) -> dict[str, int]:
        """Date -> how many clean records there are, by the footers of their files."""
        found = self.place.find(f"clean/{source.name}", ".parquet")
        files = {date: [self.place.path(file) for file in found if f"/date={date}/" in file] for date in dates}
        return {
            date: ds.dataset(paths, filesystem=self.place.files).count_rows() if paths else 0
            for date, paths in files.items()
        }

    def write(self, folder: str, frame: DataFrame, *partitions: str) -> None:
        """Replace the partitions that the frame has rows of."""
        writer = frame.write.mode("overwrite").partitionBy(*partitions)
        writer.options(compression="zstd", partitionOverwriteMode="dynamic").parquet(f"{self.place.url}/{folder}")

    def put_rollup(self, rollup: Table, frame: DataFrame, runs: Mapping[str, str]) -> None:
        """Write a rollup of these days; each row carries the run of its day."""
        of_day = " ".join(f"WHEN DATE'{date}' THEN '{run}'" for date, run in runs.items())
        columns = [f"CAST({one.name} AS {one.type}) AS {one.name}" for one in rollup.columns]
        frame = frame.where(_of_days(runs)).selectExpr(*columns, "date", f"CASE date {of_day} END AS run")
        self.write(f"rollups/{rollup.name}", frame.coalesce(4), "date")

    def put_rows(self, folder: str, table: pa.Table) -> None:
        """Write rows that this process has as the one file of a folder."""
        target = f"{folder}/rows.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        self.place.write(target, bytes(sink.getvalue()))
        for other in self.place.find(folder):
            if other != target:
                self.place.remove(other)


def _manifest(step: str, source: Source, date: str) -> str:
    return f"manifest/step={step}/source={source.name}/date={date}/day.json"


def _of_days(dates: Iterable[str]) -> str:
    days = ", ".join(f"DATE'{date}'" for date in dates)
    return f"date IN ({days})"


def one_of(what: str, values: Iterable[str]) -> str:
    """Whether it is one of them, in Spark SQL."""
    listed = ", ".join(quoted(value) for value in values)
    return f"{what} IN ({listed})" if listed else "false"


def quoted(text: str) -> str:
    """A string of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


Row = dict[str, Any]
Rows = dict[str, list[Row]]
"""Of tables, by their names."""
