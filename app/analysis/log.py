"""Reading the latency log: only the hours asked for, an explicit schema, and what is no log left out and counted.

The files of a run are listed once, and each footer is looked at before Spark sees the file: what appears later is not
part of the run, and what cannot be read is named with a reason. Footers also say whether any record needs a closer
look (a negative duration, an instant outside its folder's hour), so that a clean log is read without that cost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from app.core.errors import ConfigurationError
from app.latency.schema import COLUMNS, PARTITIONS, VERSION, ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

DDL: Final = {
    ColumnType.TEXT: "string",
    ColumnType.FLAG: "boolean",
    ColumnType.COUNT: "int",
    ColumnType.INSTANT: "timestamp",
    ColumnType.MICROSECONDS: "bigint",
}
REASONS: Final = {
    "not_parquet": "a file that is truncated or no Parquet",
    "unreadable": "a file whose footer is right but whose data cannot be read",
    "foreign": "a Parquet file without the columns of the log, or with other types",
    "outside_layout": "a Parquet file that does not lie in date=YYYY-MM-DD/hour=HH",
    "vanished": "a file that was listed and then gone",
    "missing_value": "a record that lacks a value that every record has",
    "negative_duration": "a record with a duration below zero",
    "wrong_hour": "a record whose recorded_at is not in the hour of its folder: a clock jump, or a file moved",
    "unknown_kind": "a record of a kind that this version does not know",
    "unknown_outcome": "a record with an outcome that this version does not know",
    "clock_jump": "a record whose instants run backwards by more than 10 ms: times between instants are not "
    "used of it, its durations are",
}
_PLACE: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})/hour=([01]\d|2[0-3])/[^._/][^/]*\.parquet")
_DURATIONS: Final = tuple(column.name for column in COLUMNS if column.type is ColumnType.MICROSECONDS)
_REQUIRED: Final = tuple(column.name for column in COLUMNS if column.required)
_WORKERS: Final = 8
_HOUR: Final = timedelta(hours=1)
_TYPES: Final = {
    ColumnType.TEXT: ("string", "large_string"),
    ColumnType.FLAG: ("bool",),
    ColumnType.COUNT: ("int32",),
    ColumnType.INSTANT: ("timestamp[us, tz=UTC]",),
    ColumnType.MICROSECONDS: ("int64",),
}


def struct_type() -> StructType:
    """The columns of the log as Spark reads them, with those of the partition."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - an extra

    columns = ", ".join(f"{column.name} {DDL[column.type]}" for column in COLUMNS)
    partitions = ", ".join(f"{name} string" for name in PARTITIONS)
    fields = StructType.fromDDL(f"{columns}, {partitions}")
    assert isinstance(fields, StructType)  # noqa: S101 - fromDDL promises less than it does for several columns
    return fields


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the log; `checks` are the reasons for which its records need a closer look."""

    path: str
    hour: datetime
    records: int = 0
    version: int = VERSION
    checks: frozenset[str] = frozenset()
    bad: str | None = None


@dataclass(slots=True)
class Quarantine:
    """What is left out, by reason."""

    files: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, example: str, *, files: int = 0, records: int = 0) -> None:
        """Count files or records; of examples the first in the alphabet is kept, so that it is always the same."""
        self.files[reason] += files
        self.records[reason] += records
        self.examples[reason] = min(example, self.examples.get(reason, example))

    def rows(self) -> list[dict[str, Any]]:
        """One row per reason, as in the table `quarantine`."""
        return [
            {
                "reason": reason,
                "meaning": meaning,
                "files": self.files[reason],
                "records": self.records[reason],
                "example": self.examples[reason],
            }
            for reason, meaning in REASONS.items()
            if reason in self.examples
        ]


@dataclass(frozen=True, slots=True)
class Log:
    """The files of one run, and what was left out."""

    root: str
    files: tuple[LogFile, ...]
    quarantine: Quarantine

    @property
    def hours(self) -> list[datetime]:
        """The hours that have files, in order."""
        return sorted({file.hour for file in self.files})

    @property
    def missing_hours(self) -> list[datetime]:
        """The hours between the first and the last that have none."""
        hours = self.hours
        if not hours:
            return []
        there, count = set(hours), (hours[-1] - hours[0]) // _HOUR
        return [hour for step in range(count) if (hour := hours[0] + step * _HOUR) not in there]

    @property
    def versions(self) -> dict[str, int]:
        """Schema version -> files."""
        return {str(version): count for version, count in sorted(Counter(file.version for file in self.files).items())}

    def frame(self, spark: SparkSession) -> DataFrame:
        """All good records."""
        frame = spark.read.schema(struct_type()).option("basePath", self.root)
        return frame.parquet(*(self._url(file.path) for file in self.files))

    def _url(self, path: str) -> str:
        return path if "://" in path else f"file://{path}" if path.startswith("/") else path

    @property
    def record_check(self) -> str | None:
        """SQL that says why a record is left out (null: it is good); None when no record of these files can be bad."""
        wanted = frozenset[str]().union(*(file.checks for file in self.files))
        rules = {
            "missing_value": " OR ".join(f"{name} IS NULL" for name in _REQUIRED),
            "negative_duration": " OR ".join(f"{name} < 0" for name in _DURATIONS),
            "wrong_hour": "date_format(recorded_at, 'yyyy-MM-dd') != date OR date_format(recorded_at, 'HH') != hour",
        }
        cases = " ".join(f"WHEN {sql} THEN '{reason}'" for reason, sql in rules.items() if reason in wanted)
        return f"CASE {cases} END" if cases else None

    def some(self, count: int) -> Log:
        """About so many of its files: those of some hours, as every node has files in most hours."""
        hours = set(self.hours[:: max(1, round(len(self.files) / count))])
        return replace(self, files=tuple(file for file in self.files if file.hour in hours))

    def without(self, bad: Iterable[LogFile]) -> Log:
        """The same without some files, which are counted."""
        gone = {file.path: file for file in bad}
        for file in gone.values():
            self.quarantine.add(
                file.bad or "unreadable", _relative(self.root, file.path), files=1, records=file.records
            )
        return replace(self, files=tuple(file for file in self.files if file.path not in gone))


def open_log(root: str, begin: datetime | None = None, end: datetime | None = None) -> Log:
    """List the log's files of the hours from `begin` to `end` (exclusive), and look at each footer.

    ConfigurationError when there is no such folder, or no file of a log in it.
    """
    fs, path = _filesystem(root)
    if not fs.isdir(path):
        raise ConfigurationError(f"{root}: there is no such folder")
    quarantine, candidates = Quarantine(), []
    for name in sorted(fs.find(path)):
        relative = _relative(path, name)
        if not name.endswith(".parquet") or any(part[:1] in "._" for part in relative.split("/")):
            continue
        hour = _hour_of(relative)
        if hour is None:
            quarantine.add("outside_layout", relative, files=1)
        elif (begin is None or hour >= begin) and (end is None or hour < end):
            candidates.append(LogFile(fs.unstrip_protocol(name) if "://" in root else name, hour))
    if not candidates:
        raise ConfigurationError(_nothing(root, begin, end, quarantine))
    files = _each(lambda file: _look(fs, file), candidates)
    log = Log(fs.unstrip_protocol(path) if "://" in root else path, tuple(files), quarantine)
    return log.without(file for file in files if file.bad)


def read_again(log: Log) -> Log:
    """Read every file in full after Spark failed on one; those that fail are left out."""
    fs, _ = _filesystem(log.root)
    return log.without(file for file in _each(lambda one: _read(fs, one), log.files) if file.bad)


def _filesystem(root: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

    try:
        fs, path = url_to_fs(root)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"{root}: {error}") from error
    return fs, path.rstrip("/")


def _relative(root: str, path: str) -> str:
    return path[len(root) :].lstrip("/") if path.startswith(root) else path


def _hour_of(relative: str) -> datetime | None:
    found = _PLACE.fullmatch(relative)
    try:
        return datetime.strptime(f"{found[1]} {found[2]}", "%Y-%m-%d %H").replace(tzinfo=UTC) if found else None
    except ValueError:
        return None


def _nothing(root: str, begin: datetime | None, end: datetime | None, quarantine: Quarantine) -> str:
    span = "".join(f" {word} {one:%Y-%m-%dT%HZ}" for word, one in (("from", begin), ("to", end)) if one)
    strays = quarantine.files["outside_layout"]
    further = (
        f"; {strays} Parquet files lie elsewhere, such as {quarantine.examples['outside_layout']}" if strays else ""
    )
    return f"{root}: no file of a latency log (date=YYYY-MM-DD/hour=HH/*.parquet){span}{further}"


def _each(look: Callable[[LogFile], LogFile], files: Iterable[LogFile]) -> list[LogFile]:
    with ThreadPoolExecutor(_WORKERS) as pool:
        return list(pool.map(look, files))


def _look(fs: Any, file: LogFile) -> LogFile:  # noqa: ANN401 - fsspec has no types
    """The file with what its footer says."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    try:
        with fs.open(file.path, "rb") as source, parquet.ParquetFile(source) as opened:
            footer, schema = opened.metadata, opened.schema_arrow
    except FileNotFoundError:
        return replace(file, bad="vanished")
    except (pa.ArrowException, OSError, ValueError):
        return replace(file, bad="not_parquet")
    version = _version(footer.metadata)
    file = replace(file, records=footer.num_rows, version=version)
    if not _is_log(schema):
        return replace(file, bad="foreign")
    return replace(file, checks=_checks(file, footer, set(schema.names)))


def _read(fs: Any, file: LogFile) -> LogFile:  # noqa: ANN401 - fsspec has no types
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    try:
        with fs.open(file.path, "rb") as source, parquet.ParquetFile(source) as opened:
            for _ in opened.iter_batches():
                pass
    except FileNotFoundError:
        return replace(file, bad="vanished")
    except (pa.ArrowException, OSError, ValueError):
        return replace(file, bad="unreadable")
    return file


def _version(metadata: dict[bytes, bytes] | None) -> int:
    """Of the schema; a file that does not say is of the first."""
    text = (metadata or {}).get(b"homing.schema", b"1")
    return int(text) if text.isdigit() else 1


def _is_log(schema: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    """Whether the required columns are there, and all known ones have their type."""
    for column in COLUMNS:
        index = schema.get_field_index(column.name)
        if index < 0:
            if column.required:
                return False
            continue
        type_ = schema.field(index).type
        if hasattr(type_, "value_type"):  # dictionary-encoded
            type_ = type_.value_type
        if str(type_) not in _TYPES[column.type]:
            return False
    return True


def _checks(file: LogFile, footer: Any, names: set[str]) -> frozenset[str]:  # noqa: ANN401 - pyarrow has no types
    """The reasons that some record of the file may have, as far as the footer's statistics cannot rule them out."""
    found = set()
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        for number in range(group.num_columns):
            column = group.column(number)
            name, statistics = column.path_in_schema, column.statistics
            if name not in names:
                continue
            known = statistics is not None and (statistics.has_min_max or statistics.null_count == group.num_rows)
            if name in _REQUIRED and (statistics is None or statistics.null_count != 0):
                found.add("missing_value")
            if name in _DURATIONS and (not known or (statistics.has_min_max and statistics.min < 0)):
                found.add("negative_duration")
            if name == "recorded_at" and (
                not known
                or not statistics.has_min_max
                or not file.hour <= statistics.min
                or not statistics.max < file.hour + _HOUR
            ):
                found.add("wrong_hour")
    return frozenset(found)
