"""The targets of a fleet run as a Parquet file, for notebooks and lakes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from app.api.v1.fleet_models import target_json
from app.core.errors import InvalidInputError
from app.core.payload import JsonValue
from app.fleets.administration import TargetRow

MEDIA_TYPE: Final = b"application/vnd.apache.parquet"


def targets_parquet(rows: Sequence[TargetRow]) -> bytes:
    """A row for each target, with the columns of the CSV. InvalidInputError where this node cannot write Parquet.

    What is JSON of any kind, as codes and results are, is text: one column has one type.
    """
    try:
        import pyarrow as pa  # takes a moment, and is an extra
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise InvalidInputError(
            "Accept", "asks for Parquet, which this node cannot write: pip install 'homing[latency]'; allowed: text/csv"
        ) from None
    text, instant = pa.string(), pa.timestamp("us", tz="UTC")
    targets = [target_json(row) for row in rows]
    columns = {
        "device_id": pa.array([one["device_id"] for one in targets], text),
        "profile": pa.array([one["profile"] for one in targets], text),
        "wave": pa.array([one["wave"] for one in targets], pa.int32()),
        "state": pa.array([one["state"] for one in targets], text),
        "command_id": pa.array([one["command_id"] for one in targets], text),
        "ended_at": pa.array([row.ended_at for row in rows], instant),
        "code": pa.array([_text(one["code"]) for one in targets], text),
        "message": pa.array([one["message"] for one in targets], text),
        "result": pa.array([row.answer for row in rows], text),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _text(value: JsonValue) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()
