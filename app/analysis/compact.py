"""The first step: a log of many small files becomes clean records in large ones, and what is left out is counted.

Spark reads a day as it is, and only when it fails on a file is each file looked at by itself.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from app.analysis.contracts import ROLLUPS
from app.analysis.inventory import WHOLE_FILES, DayPlan, FileStamp, InventoryEntry, plan, plan_without
from app.analysis.lake import COMPACT, SCHEMA_VERSION, Day, Lake, Row, one_of
from app.analysis.options import DAYS_AT_ONCE
from app.analysis.places import LogFolder, no_pattern
from app.analysis.session import is_hopeless
from app.analysis.source import Source, ddl
from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class LogListing:
    """The files of a log by date, and those that lie elsewhere; paths are inside the log, which is at `url`."""

    source: Source
    url: str
    by_date: dict[str, dict[str, FileStamp]]
    """Date -> path -> the file."""
    strays: list[str]

    def folders(self, dates: Iterable[str]) -> str:
        """The folders of these days, as far as they are there, as a pattern."""
        return f"{no_pattern(self.url)}{'/*' * (len(self.source.layout) - 2)}/date={{{','.join(dates)}}}"

    def run(self, date: str) -> str:
        """The name of the files that a day is made of. A file that is copied again has another size or time."""
        return _run_of(f"{path} {file.size} {file.time_us}" for path, file in self.by_date.get(date, {}).items())

    def is_of(self, day: Day) -> bool:
        """True if a day is made of the files that are here; version 0.2.0 knew a file by its name alone."""
        return day.run in (self.run(day.date), _run_of(self.by_date.get(day.date, ())))


def list_log(source: Source, root: str, dates: Sequence[str] | None = None) -> LogListing:
    """The files of some days, or of all. ConfigurationError when there is no such folder."""
    log = LogFolder(root)
    if log.local is not None and not log.local.is_dir():
        raise ConfigurationError(f"{root}: there is no such folder")
    by_day = dates is not None and source.layout[0] == "date"
    folders = [f"date={date}" for date in dates or ()] if by_day else [""]
    place = re.compile("".join(f"{name}=([^/]+)/" for name in source.layout) + r"[^/]+\.parquet")
    by_date, strays = defaultdict[str, dict[str, FileStamp]](dict), []
    for path, file in chain.from_iterable(log.find(folder, ".parquet").items() for folder in folders):
        match = place.fullmatch(path)
        parts = dict(zip(source.layout, match.groups(), strict=True)) if match else {}
        if _is_date(parts.get("date", "")) and re.fullmatch(r"[01]\d|2[0-3]", parts["hour"]):
            by_date[parts["date"]][path] = FileStamp(file.size, (file.mtime_ns or 0) // 1000)
        else:
            strays.append(path)
    return LogListing(source, log.url, dict(by_date), strays)


def compact(
    spark: SparkSession,
    lake: Lake,
    listing: LogListing,
    plans: Mapping[str, DayPlan],
    progress: Progress,
    days_at_once: int = DAYS_AT_ONCE,
) -> None:
    """Make these days, and commit them; a job takes `days_at_once` at most."""
    source = listing.source
    reader = spark.read.schema(ddl({**source.columns, **source.folders}))
    reader = reader.options(basePath=listing.url, pathGlobFilter="*.parquet")
    done = 0
    for days in _batches(plans, days_at_once):
        batch = list(days)
        span = batch[0] if len(batch) == 1 else f"{batch[0]} to {batch[-1]}"
        progress(done / len(plans), f"compact {span}: {sum(len(one.read) for one in days.values()):,} files")
        some = next((one for one in days.values() if one.kept), None)
        paths = [no_pattern(f"{listing.url}/{path}") for path in some.read] if some else [listing.folders(batch)]
        try:
            frame = reader.parquet(*paths).selectExpr("*", "_metadata.file_path AS file")
            part, quarantine = _write(lake, source, frame)
        except Exception as error:
            if is_hopeless(error):
                raise
            progress(done / len(plans), f"compact {span}: a file cannot be read; looking at each by itself")
            read = {path: date for date, one in days.items() for path in one.read}
            part, quarantine = _write_careful(spark, lake, listing, paths, read)
        if not done:
            quarantine += [_left_out_file(batch[0], "outside_layout", path) for path in listing.strays]
        for date, one in days.items():
            _commit(lake, listing, date, one, part, [row for row in quarantine if row["date"] == date])
        done += len(batch)


def plans(lake: Lake, listing: LogListing, dates: Sequence[str], progress: Progress) -> dict[str, DayPlan]:
    """Return the plans of those of these days that are made.

    One that has lost files and gained none stays as it was, which is said.
    """
    source, compacted, found = listing.source, lake.days(COMPACT, listing.source), dict[str, DayPlan]()
    for date in dates:
        one, now = DayPlan(sorted(listing.by_date[date])), listing.by_date[date]
        if (day := compacted.get(date)) is not None:
            entries = lake.inventory(source, day)
            one = plan_without(now, day.files) if entries is None else plan(now, entries)
            if one.kept and not one.why_not and day.records and not lake.clean_files(source, day):
                one = DayPlan((), (), "some of its files are gone, and so are its clean records")
        if one.why_not:
            progress(0.0, f"compact {date} stays as it was: {one.why_not}")
        else:
            found[date] = one
    return found


def _batches(plans: Mapping[str, DayPlan], most: int) -> Iterator[dict[str, DayPlan]]:
    """Days that one job takes: one that keeps something is alone."""
    batch: dict[str, DayPlan] = {}
    for date, one in plans.items():
        if one.kept:
            yield {date: one}
            continue
        batch[date] = one
        if len(batch) == most:
            yield batch
            batch = {}
    if batch:
        yield batch


def _write(lake: Lake, source: Source, frame: DataFrame) -> tuple[str, list[Row]]:
    """Write the clean records of a frame; their part, and rows of the quarantine, with `date`."""
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
    part = lake.write(f"clean/{source.name}", observed.where("reason IS NULL").select(*source.kept), *partitions)
    if seen.get["odd"] == 0:
        return part, []
    counts = frame.selectExpr("*", f"{odd} AS odd").where("odd IS NOT NULL").groupBy("date", "odd")
    found = counts.agg(
        expr("odd AS reason"),
        expr("IF(odd = 'foreign', count(DISTINCT file), 0) AS files"),
        expr("count(*) AS records"),
        expr(f"coalesce(min({source.example}), min(file)) AS example"),
    )
    return part, [
        {**row.asDict(), "date": str(row.date), "example": _inside(source, row.example)}
        for row in found.drop("odd").collect()
    ]


def _write_careful(
    spark: SparkSession, lake: Lake, listing: LogListing, paths: Sequence[str], listed: Mapping[str, str]
) -> tuple[str, list[Row]]:
    """Leave out files that cannot be read in full, each with its reason; `listed` are path -> date of those to read."""
    from pyspark.sql.functions import expr  # noqa: PLC0415 - an extra

    source = listing.source
    vectorized = "spark.sql.parquet.enableVectorizedReader"
    before = str(spark.conf.get(vectorized))
    # The vectorized reader ends the job when a foreign file has a list where we have a text; this one does not.
    spark.conf.set(vectorized, "false")
    try:
        whatever = {"recursiveFileLookup": True, "ignoreCorruptFiles": True, "ignoreMissingFiles": True}
        reader = spark.read.schema(ddl(source.columns)).options(pathGlobFilter="*.parquet", **whatever)
        frame = reader.parquet(*paths).selectExpr("*", "_metadata.file_path AS file")
        counts = (expr("count(*)"), expr("count(*) + 0 * bit_xor(xxhash64(*))"))
        promised, whole = ({row[0]: row[1] for row in frame.groupBy("file").agg(one).collect()} for one in counts)
        names = {_inside(source, file): file for file in promised}
        torn = {path: promised[file] for path, file in names.items() if whole.get(file) != promised[file]}
        without = [file for path, file in names.items() if path in torn or path not in listed]
        rest = frame.where(f"NOT {one_of('file', without)}")
        for name, type_ in source.folders.items():
            rest = rest.selectExpr("*", f"CAST(regexp_extract(file, '{name}=([^/]+)/', 1) AS {type_}) AS {name}")
        part, rows = _write(lake, source, rest)
        return part, [
            *rows,
            *(_left_out_file(date, "not_parquet", path) for path, date in listed.items() if path not in names),
            *(_left_out_file(listed[path], "unreadable", path, torn[path]) for path in torn if path in listed),
        ]
    finally:
        spark.conf.set(vectorized, before)


def _left_out_file(date: str, reason: str, path: str, records: int = 0) -> Row:
    """`records` are those that it promises."""
    return {"date": date, "reason": reason, "files": 1, "records": records, "example": path}


def _commit(lake: Lake, listing: LogListing, date: str, made: DayPlan, part: str, quarantine: list[Row]) -> None:
    source, run, now = listing.source, listing.run(date), listing.by_date[date]
    lost = {row["example"]: row for row in quarantine if row["reason"] in WHOLE_FILES}
    entries = [
        *made.kept,
        *(
            InventoryEntry(
                path, *now[path], part, *((row["reason"], row["records"]) if (row := lost.get(path)) else ())
            )
            for path in made.read
        ),
    ]
    if made.kept:
        quarantine = [
            *quarantine,
            *(row for row in lake.rows(f"rollups/{source.quarantine}", date) if row["reason"] not in WHOLE_FILES),
            *(_left_out_file(date, one.reason, one.path, one.records) for one in made.kept if one.reason),
        ]
    rows: dict[str, Row] = {}
    for row in sorted(quarantine, key=lambda row: str(row["example"])):
        known = rows.setdefault(row["reason"], {**row, "files": 0, "records": 0, "run": run})
        known["files"] += row["files"]
        known["records"] += row["records"]
    lake.put_rows(f"rollups/{source.quarantine}/date={date}", pa.Table.from_pylist(
        list(rows.values()), ROLLUPS[-1].arrow.append(pa.field("run", pa.string()))
    ))  # fmt: skip
    left_out = sum(row["records"] for row in rows.values() if row["reason"] not in source.remarks)
    records = lake.count(source, date, {one.part for one in entries})
    lake.commit_clean(source, Day(date, run, SCHEMA_VERSION, len(entries), records, left_out), entries)


def _run_of(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return hashlib.sha256(f"{SCHEMA_VERSION}\n{text}".encode()).hexdigest()[:16]


def _inside(source: Source, path: str) -> str:
    """The path inside the log of a file that Spark names by its URL; another text as it is."""
    if not re.match(r"[a-z0-9]+:/", path):
        return path
    return unquote("/".join(path.split("/")[-len(source.layout) - 1 :]))


def _is_date(text: str) -> bool:
    """True if it is a day as folders write it that has a day before and a day after it."""
    try:
        found = dt.date.fromisoformat(text)
    except ValueError:
        return False
    return found.isoformat() == text and dt.date.min < found < dt.date.max
