"""The first step: a log of many small files becomes clean records in large ones, and what is left out is counted.

Spark reads a day as it is, and only when it fails on a file is each file looked at by itself.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa

from app.analysis.contracts import ROLLUPS
from app.analysis.lake import COMPACT, SCHEMA_VERSION, Day, Lake, Row, one_of
from app.analysis.places import Place
from app.analysis.session import is_hopeless
from app.analysis.source import Source, ddl
from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH: Final = 31
"""Days that one job takes."""
Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a log by date, and those that lie elsewhere; paths are inside the log, which is at `url`."""

    source: Source
    url: str
    by_date: dict[str, dict[str, int]]
    """Date -> path -> size in bytes."""
    strays: list[str]

    def folders(self, dates: Iterable[str]) -> str:
        """Of these days, as far as they are there, as a pattern."""
        return f"{self.url}{'/*' * (len(self.source.layout) - 2)}/date={{{','.join(dates)}}}"

    def run(self, date: str) -> str:
        """What a day is made of. Nodes never change a file that they have written, so names will do."""
        names = "\n".join(self.by_date.get(date, ()))
        return hashlib.sha256(f"{SCHEMA_VERSION}\n{names}".encode()).hexdigest()[:16]


def list_log(source: Source, root: str, dates: Sequence[str] | None = None) -> Listing:
    """The files of some days, or of all. ConfigurationError when there is no such folder."""
    log = Place(root)
    if log.local is not None and not log.local.is_dir():
        raise ConfigurationError(f"{root}: there is no such folder")
    by_day = dates is not None and source.layout[0] == "date"
    folders = [f"date={date}" for date in dates or ()] if by_day else [""]
    place = re.compile("".join(f"{name}=([^/]+)/" for name in source.layout) + r"[^/]+\.parquet")
    by_date, strays = defaultdict[str, dict[str, int]](dict), []
    for path, file in chain.from_iterable(log.find(folder, ".parquet").items() for folder in folders):
        match = place.fullmatch(path)
        parts = dict(zip(source.layout, match.groups(), strict=True)) if match else {}
        if _is_date(parts.get("date", "")) and re.fullmatch(r"[01]\d|2[0-3]", parts["hour"]):
            by_date[parts["date"]][path] = file.size
        else:
            strays.append(path)
    return Listing(source, log.url, dict(by_date), strays)


def compact(spark: SparkSession, lake: Lake, listing: Listing, dates: Sequence[str], progress: Progress) -> None:
    """Make these days anew, and commit them."""
    source = listing.source
    reader = spark.read.schema(ddl({**source.columns, **source.folders}))
    reader = reader.options(basePath=listing.url, pathGlobFilter="*.parquet")
    for first in range(0, len(dates), BATCH):
        batch = dates[first : first + BATCH]
        files = sum(len(listing.by_date[date]) for date in batch)
        span = batch[0] if len(batch) == 1 else f"{batch[0]} to {batch[-1]}"
        progress(first / len(dates), f"compact {span}: {files:,} files")
        lake.open(COMPACT, source, batch)
        try:
            frame = reader.parquet(listing.folders(batch)).selectExpr("*", "_metadata.file_path AS file")
            quarantine = _write(lake, source, frame)
        except Exception as error:
            if is_hopeless(error):
                raise
            progress(first / len(dates), f"compact {span}: a file cannot be read; looking at each by itself")
            quarantine = _write_careful(spark, lake, listing, batch)
        if not first:
            quarantine += [_left_out_file(batch[0], "outside_layout", path) for path in listing.strays]
        _commit(lake, listing, batch, quarantine)


def _write(lake: Lake, source: Source, frame: DataFrame) -> list[Row]:
    """Write the clean records of a frame; rows of the quarantine, with `date`."""
    from pyspark.sql import Observation  # noqa: PLC0415 - an extra
    from pyspark.sql.functions import expr  # noqa: PLC0415 - likewise

    checks, remarks = (
        f"CASE {' '.join(f'WHEN {sql} THEN {reason!r}' for reason, sql in cases.items())} END" if cases else "NULL"
        for cases in (source.checks, source.remarks)
    )
    frame = frame.selectExpr("*", f"{checks} AS reason")
    odd = f"coalesce(reason, {remarks})"
    seen = Observation()
    observed = frame.observe(seen, expr(f"count_if({odd} IS NOT NULL)").alias("odd"))
    partitions = source.layout[:-1]
    lake.write(f"clean/{source.name}", observed.where("reason IS NULL").select(*source.kept), *partitions)
    if seen.get["odd"] == 0:
        return []
    counts = frame.selectExpr("*", f"{odd} AS odd").where("odd IS NOT NULL").groupBy("date", "odd")
    found = counts.agg(
        expr("odd AS reason"),
        expr("IF(odd = 'foreign', count(DISTINCT file), 0) AS files"),
        expr("count(*) AS records"),
        expr(f"coalesce(min({source.example}), min(file)) AS example"),
    )
    return [
        {**row.asDict(), "date": str(row.date), "example": _inside(source, row.example)}
        for row in found.drop("odd").collect()
    ]


def _write_careful(spark: SparkSession, lake: Lake, listing: Listing, dates: Sequence[str]) -> list[Row]:
    """Leave out files that cannot be read in full, each with its reason."""
    from pyspark.sql.functions import expr  # noqa: PLC0415 - an extra

    source = listing.source
    vectorized = "spark.sql.parquet.enableVectorizedReader"
    before = str(spark.conf.get(vectorized))
    # The vectorized reader ends the job when a foreign file has a list where we have a text; this one does not.
    spark.conf.set(vectorized, "false")
    try:
        listed = {path: date for date in dates for path in listing.by_date[date]}
        whatever = {"recursiveFileLookup": True, "ignoreCorruptFiles": True, "ignoreMissingFiles": True}
        reader = spark.read.schema(ddl(source.columns)).options(pathGlobFilter="*.parquet", **whatever)
        frame = reader.parquet(listing.folders(dates)).selectExpr("*", "_metadata.file_path AS file")
        counts = (expr("count(*)"), expr("count(*) + 0 * bit_xor(xxhash64(*))"))
        promised, whole = ({row[0]: row[1] for row in frame.groupBy("file").agg(one).collect()} for one in counts)
        names = {_inside(source, file): file for file in promised}
        torn = {path: promised[file] for path, file in names.items() if whole.get(file) != promised[file]}
        without = [file for path, file in names.items() if path in torn or path not in listed]
        rest = frame.where(f"NOT {one_of('file', without)}")
        for name, type_ in source.folders.items():
            rest = rest.selectExpr("*", f"CAST(regexp_extract(file, '{name}=([^/]+)/', 1) AS {type_}) AS {name}")
        return [
            *_write(lake, source, rest),
            *(_left_out_file(date, "not_parquet", path) for path, date in listed.items() if path not in names),
            *(_left_out_file(listed[path], "unreadable", path, torn[path]) for path in torn if path in listed),
        ]
    finally:
        spark.conf.set(vectorized, before)


def _left_out_file(date: str, reason: str, path: str, records: int = 0) -> Row:
    """`records` are those that it promises."""
    return {"date": date, "reason": reason, "files": 1, "records": records, "example": path}


def _commit(lake: Lake, listing: Listing, dates: Sequence[str], quarantine: list[Row]) -> None:
    source, counts = listing.source, lake.count(listing.source, dates)
    for date in dates:
        rows: dict[str, Row] = {}
        for row in sorted((row for row in quarantine if row["date"] == date), key=lambda row: str(row["example"])):
            known = rows.setdefault(row["reason"], {**row, "files": 0, "records": 0, "run": listing.run(date)})
            known["files"] += row["files"]
            known["records"] += row["records"]
        lake.put_rows(f"rollups/{source.quarantine}/date={date}", pa.Table.from_pylist(
            list(rows.values()), ROLLUPS[-1].arrow.append(pa.field("run", pa.string()))
        ))  # fmt: skip
        left_out = sum(row["records"] for row in rows.values() if row["reason"] not in source.remarks)
        files = len(listing.by_date[date])
        day = Day(date, listing.run(date), SCHEMA_VERSION, files, counts[date], left_out)
        lake.commit(COMPACT, source, [day])


def _inside(source: Source, path: str) -> str:
    """Where a file that Spark names by its URL lies in the log; another text as it is."""
    if not re.match(r"[a-z0-9]+:/", path):
        return path
    return unquote("/".join(path.split("/")[-len(source.layout) - 1 :]))


def _is_date(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
