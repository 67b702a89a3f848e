"""The first step: a log of many small files becomes clean records in large ones, and what is left out is counted.

Spark reads a day as it is, and only when it fails on a file is each file looked at by itself.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from app.analysis.contracts import QUARANTINE_DAILY
from app.analysis.lake import COMPACT, SCHEMA_VERSION, Day, Lake, hadoop_url, rows_of
from app.analysis.session import is_hopeless
from app.analysis.source import Source
from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH: Final = 31
"""Days that one job takes."""
_FILE: Final = "regexp_replace(_metadata.file_path, '^file:/+', 'file:///') AS file"
"""As the listing has it."""
Progress = Callable[[float, str], None]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a log by date, and those that lie elsewhere."""

    by_date: dict[str, list[str]]
    strays: list[str]

    def run(self, date: str) -> str:
        """What a day is made of. Nodes never change a file that they have written, so names will do."""
        names = "\n".join(sorted(_place(path) for path in self.by_date.get(date, ())))
        return hashlib.sha256(f"{SCHEMA_VERSION}\n{names}".encode()).hexdigest()[:16]


def list_log(spark: SparkSession, source: Source, root: str, dates: Sequence[str] | None = None) -> Listing:
    """The files of some days, or of all; one listing by Spark. ConfigurationError when there is no such folder."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - an extra

    reader = spark.read.format("binaryFile").option("recursiveFileLookup", True).option("pathGlobFilter", "*.parquet")
    try:
        found = reader.load(hadoop_url(root) if dates is None else _folders(source, root, dates)).inputFiles()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        if dates is None:
            raise ConfigurationError(f"{root}: there is no such folder") from None
        return Listing({}, [])
    place = re.compile("".join(f"{name}=([^/]+)/" for name in source.layout) + r"[^/]+\.parquet$")
    by_date, strays = defaultdict(list), []
    for path in sorted(found):
        match = place.search(path)
        parts = dict(zip(source.layout, match.groups(), strict=True)) if match else {}
        if _is_date(parts.get("date", "")) and re.fullmatch(r"[01]\d|2[0-3]", parts["hour"]):
            by_date[parts["date"]].append(path)
        else:
            strays.append(path)
    return Listing(dict(by_date), strays)


def compact(
    lake: Lake, source: Source, root: str, listing: Listing, dates: Sequence[str], progress: Progress
) -> dict[str, Day]:
    """Make these days anew, and commit them."""
    done: dict[str, Day] = {}
    for first in range(0, len(dates), BATCH):
        batch = dates[first : first + BATCH]
        files = sum(len(listing.by_date[date]) for date in batch)
        progress(first / len(dates), f"compact {_span(batch)}: {files:,} files")
        lake.open(COMPACT, source, batch)
        try:
            quarantine = _write(lake, source, _all_at_once(lake.spark, source, root, batch), {})
        except Exception as error:
            if is_hopeless(error):
                raise
            progress(first / len(dates), f"compact {_span(batch)}: a file cannot be read; looking at each by itself")
            quarantine = _write_careful(lake, source, root, batch)
        if not first:
            quarantine += [_outside(batch[0], path) for path in listing.strays]
        _put_quarantine(lake, listing, batch, quarantine)
        days = _days(lake, source, listing, batch, quarantine)
        lake.commit(COMPACT, source, days.values())
        done |= days
    return done


def _all_at_once(spark: SparkSession, source: Source, root: str, dates: Sequence[str]) -> DataFrame:
    reader = spark.read.schema(source.fields).option("basePath", hadoop_url(root)).option("pathGlobFilter", "*.parquet")
    return reader.parquet(_folders(source, root, dates)).selectExpr("*", _FILE)


def _write(lake: Lake, source: Source, frame: DataFrame, bad_files: Mapping[str, tuple[str, int]]) -> list[Row]:
    """Write the clean records of a frame; rows of the quarantine, with `date`.

    `bad_files` are those that the frame is without: why, and how many records each promises.
    """
    from pyspark.sql import Observation  # noqa: PLC0415 - an extra
    from pyspark.sql.functions import expr  # noqa: PLC0415 - likewise

    cases = " ".join(f"WHEN {sql} THEN '{reason}'" for reason, sql in source.checks.items())
    remarks = " ".join(f"WHEN {sql} THEN '{reason}'" for reason, sql in source.remarks.items())
    frame = frame.selectExpr("* EXCEPT (date)", "CAST(date AS STRING) AS date", f"CASE {cases} END AS reason")
    odd = f"coalesce(reason, CASE {remarks} END)" if remarks else "reason"
    seen = Observation()
    observed = frame.observe(seen, expr(f"count_if({odd} IS NOT NULL)").alias("odd"))
    kept = [field.name for field in source.kept.fields]
    lake.write(
        f"clean/{source.name}",
        observed.where("reason IS NULL").select(*kept),
        *kept[len(kept) - len(source.layout) + 1 :],
    )
    found = [] if seen.get["odd"] == 0 else _left_out(source, frame.selectExpr("*", f"{odd} AS odd"))
    return found + [
        {"date": _date_in(path), "reason": reason, "files": 1, "records": records, "example": _place(path)}
        for path, (reason, records) in bad_files.items()
    ]


def _left_out(source: Source, frame: DataFrame) -> list[Row]:
    """A second look at a log that has records to leave out."""
    counts = (
        frame.where("odd IS NOT NULL")
        .groupBy("date", "odd")
        .agg(
            *_columns(
                "IF(odd = 'foreign', count(DISTINCT file), 0) AS files",
                "count(*) AS records",
                f"coalesce(min({source.example}), min(file)) AS example",
            )
        )
    )
    rows = [row.asDict() for row in counts.collect()]
    return [{**row, "reason": row["odd"], "example": _place(row["example"])} for row in rows]


def _write_careful(lake: Lake, source: Source, root: str, dates: Sequence[str]) -> list[Row]:
    """Leave out files that cannot be read in full, each with its reason."""
    spark = lake.spark
    vectorized = "spark.sql.parquet.enableVectorizedReader"
    before = str(spark.conf.get(vectorized))
    # The vectorized reader ends the job when a foreign file has a list where we have a text; this one does not.
    spark.conf.set(vectorized, "false")
    try:
        listing = list_log(spark, source, root, dates)
        listed = {path for files in listing.by_date.values() for path in files}
        reader = spark.read.schema(source.schema).option("recursiveFileLookup", True)
        reader = reader.option("pathGlobFilter", "*.parquet").option("ignoreCorruptFiles", True)
        frame = reader.option("ignoreMissingFiles", True).parquet(_folders(source, root, dates))
        frame = frame.selectExpr("*", _FILE)
        promised = _by_file(frame, "count(*)")
        whole = _by_file(frame, "count(*) + 0 * bit_xor(xxhash64(*))")
        bad = dict.fromkeys(listed - set(promised), ("not_parquet", 0))
        bad |= {path: ("unreadable", count) for path, count in promised.items() if whole.get(path) != count}
        strays = set(promised) - listed
        rest = frame.where(f"NOT {_any_of([*bad, *strays])}")
        for name in source.layout:
            type_ = source.fields[name].dataType.simpleString()
            rest = rest.selectExpr("*", f"CAST(regexp_extract(file, '{name}=([^/]+)/', 1) AS {type_}) AS {name}")
        return _write(lake, source, rest, bad)
    finally:
        spark.conf.set(vectorized, before)


def _by_file(frame: DataFrame, count: str) -> dict[str, int]:
    return {row[0]: row[1] for row in frame.groupBy("file").agg(*_columns(f"{count} AS n")).collect()}


def _any_of(paths: Iterable[str]) -> str:
    listed = ", ".join("'" + path.replace("\\", "\\\\").replace("'", "\\'") + "'" for path in paths)
    return f"file IN ({listed})" if listed else "false"


def _outside(date: str, path: str) -> Row:
    return {"date": date, "reason": "outside_layout", "files": 1, "records": 0, "example": path.rsplit("/", 1)[-1]}


def _put_quarantine(lake: Lake, listing: Listing, dates: Sequence[str], rows: list[Row]) -> None:
    """One row for each day and reason."""
    summed: dict[tuple[str, str], Row] = {}
    for row in rows:
        known = summed.setdefault((row["date"], row["reason"]), {**row, "files": 0, "records": 0})
        known["files"] += row["files"]
        known["records"] += row["records"]
        known["example"] = min(known["example"], row["example"])
    schema = "date string, reason string, files bigint, records bigint, example string"
    frame = rows_of(lake.spark, list(summed.values()), schema)
    lake.put_rollup(QUARANTINE_DAILY, frame, {date: listing.run(date) for date in dates})


def _days(lake: Lake, source: Source, listing: Listing, dates: Sequence[str], quarantine: list[Row]) -> dict[str, Day]:
    counts = {row[0]: row[1] for row in lake.clean(source, dates).groupBy("date").count().collect()}
    left_out: dict[str, int] = defaultdict(int)
    for row in quarantine:
        left_out[row["date"]] += 0 if row["reason"] in source.remarks else row["records"]
    return {
        date: Day(
            date, listing.run(date), SCHEMA_VERSION, len(listing.by_date[date]), counts.get(date, 0), left_out[date]
        )
        for date in dates
    }


def _folders(source: Source, root: str, dates: Iterable[str]) -> str:
    """Of these days, as far as they are there, as a pattern."""
    above = "/*" * (len(source.layout) - 2)
    return f"{hadoop_url(root)}{above}/date={{{','.join(dates)}}}"


def _place(path: str) -> str:
    """The end of a path that tells a file of a log from others."""
    return "/".join(path.split("/")[-3:])


def _date_in(path: str) -> str:
    found = re.search(r"/date=([^/]+)/", path)
    return found[1] if found else ""


def _is_date(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _span(dates: Sequence[str]) -> str:
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"


def _columns(*texts: str) -> list[Any]:
    from pyspark.sql.functions import expr  # noqa: PLC0415 - an extra

    return [expr(text) for text in texts]
