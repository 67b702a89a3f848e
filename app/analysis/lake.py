"""The folder of results: clean records, rollups and tables as Parquet, and the manifest that says which days hold.

    OUT/clean/latency/date=2026-11-21/…            the records, without what is in quarantine, in large files
    OUT/rollups/latency_hourly/date=2026-11-21/…   counts, by day; app/analysis/contracts.py describes their columns
    OUT/manifest/step=rollup/date=2026-11-21/…     that the day is whole, of what it was made, and how much there was
    OUT/tables/latency_by_method/…                 what a period looked like, made of rollups

A day is committed by its manifest, which is written last and taken away first: what a step that was killed left behind
is no part of any day. All of it is written and read by Spark, and so on every file system that Hadoop knows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from app.analysis.contracts import Rollup
    from app.analysis.source import Source

SCHEMA_VERSION: Final = 1
"""Of the rollups: a day with another one is made anew."""
COMPACT: Final = "compact"
ROLLUP: Final = "rollup"
_MANIFEST: Final = (
    "step string, date string, source string, run string, version int, files bigint, records bigint, left_out bigint"
)


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
    """The folder, by a path or a URL that Hadoop knows."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.root = hadoop_url(root)

    def clean(self, source: Source, dates: Collection[str]) -> DataFrame:
        """The clean records of these days."""
        frame = self.spark.read.schema(source.kept).parquet(f"{self.root}/clean/{source.name}")
        return frame.where(_one_of("date", dates))

    def write(self, folder: str, frame: DataFrame, *partitions: str) -> None:
        """Replace the partitions that the frame has rows of; without partitions, the whole folder."""
        writer = frame.write.mode("overwrite").option("compression", "zstd")
        if partitions:
            writer = writer.partitionBy(*partitions).option("partitionOverwriteMode", "dynamic")
        writer.parquet(f"{self.root}/{folder}")

    def put_rollup(self, rollup: Rollup, frame: DataFrame, runs: Mapping[str, str]) -> None:
        """Write a rollup of these days; each row carries the run of its day."""
        of_day = " ".join(f"WHEN '{date}' THEN '{run}'" for date, run in runs.items())
        columns = [f"CAST({one.name} AS {one.type}) AS {one.name}" for one in rollup.columns]
        frame = frame.selectExpr(*columns, "date", f"CASE date {of_day} END AS run")
        self.write(f"rollups/{rollup.name}", frame.coalesce(4), "date")

    def rollup(self, rollup: Rollup, days: Iterable[Day]) -> DataFrame:
        """The rows of a rollup that belong to these days, and to no earlier run of one of them."""
        schema = ", ".join((*(f"{one.name} {one.type}" for one in rollup.columns), "run string, date string"))
        chosen = {day.date: day.run for day in days}
        frame = self.spark.read.schema(schema).parquet(f"{self.root}/rollups/{rollup.name}")
        runs = _one_of("concat(date, ' ', run)", [f"{date} {run}" for date, run in chosen.items()])
        return frame.where(f"{_one_of('date', chosen)} AND {runs}").drop("run")

    def days(self, step: str, source: Source) -> dict[str, Day]:
        """The committed days of a step, by date."""
        from pyspark.errors import AnalysisException  # noqa: PLC0415 - an extra

        try:
            frame = self.spark.read.schema(_MANIFEST).json(f"{self.root}/manifest")
            rows = frame.where(f"step = '{step}' AND source = '{source.name}' AND run != ''").collect()
        except AnalysisException:  # there is none yet
            return {}
        return {row.date: Day(**{name: row[name] for name in Day.__slots__}) for row in sorted(rows)}

    def open(self, step: str, source: Source, dates: Collection[str]) -> None:
        """Take the manifests of these days away: they are being made."""
        self.commit(step, source, [Day(date, "", SCHEMA_VERSION, 0, 0, 0) for date in dates])

    def commit(self, step: str, source: Source, days: Iterable[Day]) -> None:
        """Say of these days that they are whole."""
        rows = [
            {"step": step, "source": source.name} | {name: getattr(day, name) for name in Day.__slots__} for day in days
        ]
        frame = rows_of(self.spark, rows, _MANIFEST)
        writer = frame.coalesce(1).write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy("step", "source", "date").json(f"{self.root}/manifest")


def rows_of(spark: SparkSession, rows: list[dict[str, Any]], schema: str) -> DataFrame:
    """A frame of rows that this process has, without Python on the executors."""
    text = json.dumps(rows, default=str)
    return spark.sql(
        "SELECT inline(from_json(:rows, :schema))", {"rows": text, "schema": f"array<struct<{_colons(schema)}>>"}
    )


def _colons(schema: str) -> str:
    return ", ".join(": ".join(one.split(" ", 1)) for one in schema.split(", "))


def hadoop_url(place: str) -> str:
    """As Hadoop names it: `s3://` is s3a, and a path of this machine has a scheme, whatever the default one is."""
    if place.startswith("s3://"):
        return place.replace("s3://", "s3a://", 1).rstrip("/")
    return place.rstrip("/") if "://" in place else f"file://{Path(place).absolute()}"


def quoted(text: str) -> str:
    """A string of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _one_of(what: str, values: Iterable[str]) -> str:
    listed = ", ".join(quoted(value) for value in values)
    return f"{what} IN ({listed})" if listed else "false"
