"""Records as Arrow: the schema of the files, and batches of it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from app.latency.record import Closed, Row, error_code
from app.latency.schema import COLUMNS, VERSION, ColumnType, RecordKind

_TYPES: Final = {
    ColumnType.TEXT: pa.string(),
    ColumnType.FLAG: pa.bool_(),
    ColumnType.COUNT: pa.int32(),
    ColumnType.INSTANT: pa.timestamp("us", tz="UTC"),
    ColumnType.MICROSECONDS: pa.int64(),
}

SCHEMA: Final = pa.schema([pa.field(one.name, _TYPES[one.type], nullable=not one.required) for one in COLUMNS])
"""The schema of every file."""
METADATA: Final = {"homing.schema": str(VERSION)}

DICTIONARY: Final = (
    *("kind", "device_id", "profile", "method", "outcome", "error_code"),
    *("home_node", "receiving_node", "writing_node", "correlation"),
)
"""Columns with few values."""

_FACTS: Final = ("command_id", "device_id", "profile", "method", "state", "error", "received_by", "reception")
_NUMBERS: Final = ("attempt", "request_bytes", "created_us", "deadline_us", "finished_us")
_TIMES: Final = (
    *("opened_at", "registered_at", "published_at", "acknowledged_at", "progressed_at"),
    *("closed_at", "delivered_at", "record_seconds"),
)
_read: Final = attrgetter(*_FACTS, *_NUMBERS, *_TIMES)


def batch_of_closed(closed: Sequence[Closed], node_id: str, offset: float | None) -> pa.RecordBatch:
    """The outcomes of commands of this node. `offset`: see StoreClock; without it instants are null."""
    values: dict[str, tuple[Any, ...]] = dict(
        zip((*_FACTS, *_NUMBERS, *_TIMES), zip(*map(_read, closed), strict=True), strict=True)
    )
    at = {name: pa.array(values[name], pa.float64()) for name in _TIMES}
    receptions = values["reception"]
    own = pa.repeat(pa.scalar(node_id), len(closed))
    receiving = pa.array(values["received_by"], pa.string())
    answered = pc.is_valid(receiving)
    end = pc.coalesce(at["delivered_at"], at["closed_at"])
    return _batch(
        {
            "kind": pa.repeat(pa.scalar(RecordKind.OUTCOME.value), len(closed)),
            "command_id": values["command_id"],
            "device_id": values["device_id"],
            "profile": values["profile"],
            "method": values["method"],
            "outcome": values["state"],
            "error_code": [error_code(one) for one in values["error"]],
            "home_node": own,
            "receiving_node": receiving,
            "writing_node": own,
            "forwarded": pc.fill_null(pc.not_equal(receiving, own), False),
            "correlation": [one and one.correlation.value for one in receptions],
            "attempt": values["attempt"],
            "request_bytes": values["request_bytes"],
            "response_bytes": [one and one.size for one in receptions],
            "registered_at": values["created_us"],
            "published_at": _instants(at["published_at"], offset),
            "acknowledged_at": _instants(at["acknowledged_at"], offset),
            "progressed_at": _instants(at["progressed_at"], offset),
            "received_at": [one and one.received_at for one in receptions],
            "recorded_at": values["finished_us"],
            "woken_at": _instants(at["closed_at"], offset),
            "delivered_at": _instants(at["delivered_at"], offset),
            "deadline_at": values["deadline_us"],
            "register_us": _micros(at["opened_at"], at["registered_at"]),
            "publish_us": _micros(at["published_at"], at["acknowledged_at"]),
            "respond_us": _only(answered, _micros(at["published_at"], at["closed_at"])),
            "record_us": _rounded(pc.multiply(at["record_seconds"], 1e6)),
            "deliver_us": _micros(at["closed_at"], at["delivered_at"]),
            # One that an earlier incarnation registered was called before this one lived.
            "total_us": _only(pc.is_valid(at["registered_at"]), _micros(at["opened_at"], end)),
        }
    )


def batch_of_rows(rows: Sequence[Row]) -> pa.RecordBatch:
    """Records of the other kinds, and of commands of other nodes."""
    return _batch({name: [row.get(name) for row in rows] for name in SCHEMA.names})


def _batch(columns: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def _array(values: Any, kind: pa.DataType) -> pa.Array:  # noqa: ANN401 - Arrow's, or a sequence
    if not isinstance(values, pa.Array):
        values = pa.array(values, pa.int64() if pa.types.is_timestamp(kind) else kind)
    return values.cast(kind) if values.type != kind else values


def _instants(at: pa.Array, offset: float | None) -> pa.Array:
    if offset is None:
        return pa.nulls(len(at), pa.int64())
    return _rounded(pc.add(pc.multiply(at, 1e6), offset))


def _micros(begin: pa.Array, end: pa.Array) -> pa.Array:
    return _rounded(pc.multiply(pc.subtract(end, begin), 1e6))


def _rounded(micros: pa.Array) -> pa.Array:
    return pc.round(micros).cast(pa.int64())


def _only(condition: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(condition, values, pa.scalar(None, values.type))
