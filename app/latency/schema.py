"""The columns of the latency log: one place for the writer, the analysis and the docs.

A log is a folder of Parquet files, `date=YYYY-MM-DD/hour=HH/<node>-<incarnation>-<sequence>.parquet`, partitioned by
`recorded_at` (UTC). Names that begin with `.` or `_` are not part of it: they are being written.

Instants are store time (Redis TIME), in UTC. Durations are of one node's monotonic clock, never differences between
clocks; where nothing was measured they are null.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

VERSION: Final = 1
"""Written into each file as metadata `homing.schema`. A new column is null in older files; none changes its meaning."""


class ColumnType(StrEnum):
    """The type of a column's values."""

    TEXT = "text"
    FLAG = "flag"
    COUNT = "count"  # 32-bit integer
    INSTANT = "instant"  # timestamp in microseconds, UTC
    MICROSECONDS = "microseconds"  # 64-bit integer


class RecordKind(StrEnum):
    """The subject of a record."""

    OUTCOME = "outcome"
    """A finished callback. One per command, written by its home node; by the node that ended it when home is gone."""
    LATE = "late"
    """A response that came after its command had ended without it; written by the node that received it."""
    DUPLICATE = "duplicate"
    """A further response to a command that has its response; written by the node that received it."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `since` is the schema version that brought it."""

    name: str
    type: ColumnType
    meaning: str
    required: bool = False
    since: int = 1


_T = ColumnType
COLUMNS: Final = (
    Column(
        "kind", _T.TEXT, "outcome, late or duplicate; the latter two have no instants but received and recorded", True
    ),
    Column("command_id", _T.TEXT, "id of the command", True),
    Column("device_id", _T.TEXT, "device that was asked", True),
    Column("profile", _T.TEXT, "device profile; null for kinds other than outcome"),
    Column("method", _T.TEXT, "method of the command; null for kinds other than outcome"),
    Column("outcome", _T.TEXT, "succeeded, failed, timed_out, cancelled or unsent", True),
    Column("error_code", _T.TEXT, "code of the error, where there is one; of the response for late and duplicate"),
    Column("home_node", _T.TEXT, "node that registered the callback", True),
    Column("receiving_node", _T.TEXT, "node that the broker gave the response to; null without a response"),
    Column("writing_node", _T.TEXT, "node that wrote this record", True),
    Column("forwarded", _T.FLAG, "whether the response came in on another node than home", True),
    Column("correlation", _T.TEXT, "how it was matched: id, value, echo, order or probe; null without a response"),
    Column("attempt", _T.COUNT, "1 and one more for each call at home that joined it by its idempotency key", True),
    Column("request_bytes", _T.COUNT, "home: size of the published payload; null where nothing was published"),
    Column("response_bytes", _T.COUNT, "size of the response's payload; null without a response"),
    Column("registered_at", _T.INSTANT, "the callback is on record; of a command that was held: it was claimed"),
    Column("published_at", _T.INSTANT, "home: the command was handed to the broker's connection"),
    Column("acknowledged_at", _T.INSTANT, "home: the broker's PUBACK for the command came in"),
    Column("progressed_at", _T.INSTANT, "home: the device's first progress came in; null where another node got it"),
    Column(
        "received_at",
        _T.INSTANT,
        "the response came in on the receiving node; null where its log is off, or new",
    ),
    Column("recorded_at", _T.INSTANT, "the outcome was put on record; for late and duplicate: the store said so", True),
    Column("woken_at", _T.INSTANT, "home: it knew of the outcome"),
    Column("delivered_at", _T.INSTANT, "home: a parked caller was handed the outcome; null when nobody was parked"),
    Column("deadline_at", _T.INSTANT, "the command's deadline"),
    Column("register_us", _T.MICROSECONDS, "home: from the call to the store's reply"),
    Column("publish_us", _T.MICROSECONDS, "home: from handing the command over to its PUBACK"),
    Column(
        "respond_us",
        _T.MICROSECONDS,
        "home: from handing the command over to the wake-up; broker, device, forward; null without a response",
    ),
    Column(
        "record_us",
        _T.MICROSECONDS,
        "receiving node: from the response to the store's reply; null for an outcome that was forwarded, "
        "where recorded_at - received_at tells the way there",
    ),
    Column("deliver_us", _T.MICROSECONDS, "home: from the wake-up to the hand-over to a parked caller"),
    Column(
        "total_us", _T.MICROSECONDS, "home: from the call to the hand-over, or to the wake-up when nobody was parked"
    ),
)
"""The columns, in the order of the files."""

PARTITIONS: Final = ("date", "hour")
"""The parts of `recorded_at`, as text `2026-11-21` and `07`."""
