"""The targets of a fleet run as a Parquet file, for notebooks and lakes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from app.api.v1.fleet_csv import COLUMNS
from app.core.errors import InvalidInputError
from app.core.payload import JsonValue
from app.fleets.administration import TargetRow

MEDIA_TYPE: Final = b"application/vnd.apache.parquet"
GROUP: Final = 10_000
"""The number of targets that are written together, as a row group."""


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
    kinds = {"wave": pa.int32(), "ended_at": pa.timestamp("us", tz="UTC")}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="zstd") as file:
        for start in range(0, len(rows), GROUP):
            columns = zip(*(_values(row) for row in rows[start : start + GROUP]), strict=True)
            file.write_table(
                pa.table([pa.array(one, kind) for one, kind in zip(columns, schema.types, strict=True)], schema)
            )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _values(row: TargetRow) -> tuple[object, ...]:
    """The values of a target, in the order of the columns."""
    _, code, message, *_ = row.result or (None, None, "")
    place = row.device_id, row.profile, row.wave + 1, row.mark.word, row.command_id
    return *place, row.ended_at, _text(code), message, row.answer


def _text(value: JsonValue) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()
