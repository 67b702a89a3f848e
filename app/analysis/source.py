"""Sources of the pipeline: a source is a folder of Parquet files by date and hour, and the checks of its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.core.events.cold import COLUMNS as EVENT_COLUMNS
from app.latency.schema import COLUMNS, ColumnType, RecordKind

OUTCOMES: Final = ("succeeded", "failed", "timed_out", "cancelled", "unsent")
CLOCK_TOLERANCE_US: Final = 10_000
"""Nodes know the store's time to within some milliseconds: differences of instants down to minus this are 0."""
_TYPES: Final = {
    ColumnType.TEXT: "string",
    ColumnType.FLAG: "boolean",
    ColumnType.COUNT: "int",
    ColumnType.INSTANT: "timestamp",
    ColumnType.MICROSECONDS: "bigint",
}


@dataclass(frozen=True, slots=True)
class Source:
    """`columns` have their types in Spark SQL; `layout` are the folders, of which `date` and `hour` are of `time`, UTC.

    `checks` say of a record why it is left out (reason -> SQL), `remarks` what is odd about one that is kept.
    `example` is a column that tells a record, `quarantine` the rollup of what is left out. Columns that are `left` are
    checked, and not copied.
    """

    name: str
    columns: Mapping[str, str]
    required: tuple[str, ...]
    time: str
    example: str
    further: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    layout: tuple[str, ...] = ("date", "hour")
    quarantine: str = "quarantine"
    left: str = ""

    @property
    def checks(self) -> dict[str, str]:
        """The checks that every source has, and its own."""
        return {
            "foreign": " AND ".join(f"{name} IS NULL" for name in self.required),
            "missing_value": " OR ".join(f"{name} IS NULL" for name in self.required),
            "wrong_hour": f"unix_micros({self.time}) DIV 3600000000 != unix_date(date) * 24 + hour",
            **self.further,
        }

    @property
    def folders(self) -> dict[str, str]:
        """The columns of the layout."""
        return {name: {"date": "date", "hour": "int"}.get(name, "string") for name in self.layout}

    @property
    def kept(self) -> dict[str, str]:
        """The columns of what was compacted: by date alone."""
        folders = {name: type_ for name, type_ in self.folders.items() if name != "hour"}
        return {name: type_ for name, type_ in self.columns.items() if name not in self.left.split()} | folders


def ddl(columns: Mapping[str, str]) -> str:
    """A schema of Spark."""
    return ", ".join(f"{name} {type_}" for name, type_ in columns.items())


DEVICE_US: Final = "(unix_micros(received_at) - unix_micros(published_at))"
WAKE_US: Final = "(unix_micros(woken_at) - unix_micros(recorded_at))"
OUTCOME: Final = f"kind = '{RecordKind.OUTCOME}'"

LATENCY: Final = Source(
    "latency",
    {column.name: _TYPES[column.type] for column in COLUMNS},
    tuple(column.name for column in COLUMNS if column.required),
    "recorded_at",
    "command_id",
    {
        "negative_duration": " OR ".join(
            f"{column.name} < 0" for column in COLUMNS if column.type is ColumnType.MICROSECONDS
        ),
        "unknown_kind": f"kind NOT IN {tuple(map(str, RecordKind))}",
        "unknown_outcome": f"{OUTCOME} AND outcome NOT IN {OUTCOMES}",
    },
    {
        "clock_jump": f"{OUTCOME} AND "
        f"(coalesce({DEVICE_US} < -{CLOCK_TOLERANCE_US}, false) OR coalesce({WAKE_US} < -{CLOCK_TOLERANCE_US}, false))"
    },
    left="writing_node forwarded attempt request_bytes response_bytes acknowledged_at delivered_at respond_us",
)
EVENTS: Final = Source(
    "events",
    {column.name: column.type for column in EVENT_COLUMNS},
    tuple(column.name for column in EVENT_COLUMNS if column.required),
    "logged_at",
    "topic",
    layout=("db", "date", "hour"),
    quarantine="quarantine_events",
)

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
    "repeated": "an outcome that more than one node wrote, as its home was taken for dead: counted once",
    "clock_jump": "a record whose instants run backwards by more than 10 ms: times between instants are not "
    "used of it, its durations are",
}
"""The meanings of the reasons in the rollup `quarantine`."""
