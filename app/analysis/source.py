"""What the pipeline reads: a source is a folder of Parquet files by date and hour, and the checks of its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from app.core.eventlog.cold import COLUMNS as EVENT_COLUMNS
from app.latency.schema import COLUMNS, ColumnType, Kind

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TYPES: Final = {
    ColumnType.TEXT: "string",
    ColumnType.FLAG: "boolean",
    ColumnType.COUNT: "int",
    ColumnType.INSTANT: "timestamp",
    ColumnType.MICROSECONDS: "bigint",
}
OUTCOMES: Final = ("succeeded", "failed", "timed_out", "cancelled", "unsent")
CLOCK_TOLERANCE_US: Final = 10_000
"""Nodes know the store's time to within some milliseconds: differences of instants down to minus this are 0."""


@dataclass(frozen=True, slots=True)
class Source:
    """`schema` is DDL; `layout` are the folders, of which `date` and `hour` are of `time` in UTC.

    `checks` say of a record why it is left out (reason -> SQL), `remarks` what is odd about one that is kept.
    `example` is a column that tells a record.
    """

    name: str
    schema: str
    time: str
    example: str
    checks: Mapping[str, str]
    remarks: Mapping[str, str] = field(default_factory=dict)
    layout: tuple[str, ...] = ("date", "hour")
    quarantine: str = "quarantine"
    """The rollup of what is left out."""

    @property
    def fields(self) -> StructType:
        """The schema as Spark has it, with the columns of the layout."""
        return _struct(", ".join((self.schema, *(f"{name} {_FOLDERS.get(name, 'string')}" for name in self.layout))))

    @property
    def kept(self) -> StructType:
        """The schema of what was compacted: by date alone."""
        further = (f"{name} string" for name in (*self.layout[:-2], "date"))
        return _struct(", ".join((self.schema, *further)))


_FOLDERS: Final = {"date": "date", "hour": "int"}


def _struct(ddl: str) -> StructType:
    from pyspark.sql.types import StructType  # noqa: PLC0415 - an extra

    fields = StructType.fromDDL(ddl)
    assert isinstance(fields, StructType)  # noqa: S101 - fromDDL promises less than it does for several columns
    return fields


def _any(form: str, names: tuple[str, ...]) -> str:
    return " OR ".join(form.format(name) for name in names)


def _listed(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _moved(time: str) -> str:
    """Whether a record lies in the folder of another hour."""
    return f"unix_micros({time}) DIV 3600000000 != unix_date(date) * 24 + hour"


_REQUIRED: Final = tuple(column.name for column in COLUMNS if column.required)
_DURATIONS: Final = tuple(column.name for column in COLUMNS if column.type is ColumnType.MICROSECONDS)
DEVICE_US: Final = "(unix_micros(received_at) - unix_micros(published_at))"
WAKE_US: Final = "(unix_micros(woken_at) - unix_micros(recorded_at))"

LATENCY: Final = Source(
    "latency",
    ", ".join(f"{column.name} {TYPES[column.type]}" for column in COLUMNS),
    "recorded_at",
    "command_id",
    {
        "foreign": " AND ".join(f"{name} IS NULL" for name in _REQUIRED),
        "missing_value": _any("{} IS NULL", _REQUIRED),
        "negative_duration": _any("{} < 0", _DURATIONS),
        "wrong_hour": _moved("recorded_at"),
        "unknown_kind": f"kind NOT IN ({_listed(tuple(Kind))})",
        "unknown_outcome": f"kind = '{Kind.OUTCOME}' AND outcome NOT IN ({_listed(OUTCOMES)})",
    },
    {
        "clock_jump": f"kind = '{Kind.OUTCOME}' AND "
        f"(coalesce({DEVICE_US} < -{CLOCK_TOLERANCE_US}, false) OR coalesce({WAKE_US} < -{CLOCK_TOLERANCE_US}, false))"
    },
)

EVENTS: Final = Source(
    "events",
    ", ".join(f"{column.name} {column.type}" for column in EVENT_COLUMNS),
    "logged_at",
    "topic",
    {
        "foreign": " AND ".join(f"{column.name} IS NULL" for column in EVENT_COLUMNS if column.required),
        "missing_value": _any("{} IS NULL", tuple(column.name for column in EVENT_COLUMNS if column.required)),
        "wrong_hour": _moved("logged_at"),
    },
    layout=("db", "date", "hour"),
    quarantine="quarantine_events",
)
"""The cold tier of the event log."""

MEANINGS: Final = {
    "not_parquet": "a file that is truncated, empty or no Parquet",
    "unreadable": "a file whose data cannot be read, or not as the types of the log",
    "foreign": "a Parquet file without the columns of the log",
    "outside_layout": "a Parquet file that does not lie in date=YYYY-MM-DD/hour=HH",
    "missing_value": "a record that lacks a value that every record has",
    "negative_duration": "a record with a duration below zero",
    "wrong_hour": "a record whose time is not in the hour of its folder: a clock jump, or a file moved",
    "unknown_kind": "a record of a kind that this version does not know",
    "unknown_outcome": "a record with an outcome that this version does not know",
    "clock_jump": "a record whose instants run backwards by more than 10 ms: times between instants are not "
    "used of it, its durations are",
}
"""Of the reasons in the rollup `quarantine`."""
