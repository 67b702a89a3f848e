"""Events as Arrow and back.

A file is a row of slices in the order of time, and a slice is sorted by topic. So what is read of all topics comes in
pieces of one slice, and what is read of one topic skips most of each slice by the statistics of its row groups.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from app.core.events.cold import COLUMNS
from app.core.events.event import Entry, Event

SLICE_EVENTS: Final = 16_384
SLICE_BYTES: Final = 16 * 1024 * 1024
"""A slice ends with either; it is what a reader has in memory."""
GROUP_EVENTS: Final = 4_096
"""The events of a row group."""

_TYPES: Final = {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "int": pa.int32(),
    "binary": pa.binary(),
}
SCHEMA: Final = pa.schema([pa.field(one.name, _TYPES[one.type], nullable=not one.required) for one in COLUMNS])


def table_of(events: Sequence[Event]) -> pa.Table:
    """Events in their order."""
    entries = [event.entry for event in events]
    values = [entry.value for entry in entries]
    columns = {
        "logged_at": pa.array([event.position for event in events], pa.int64()).cast(_TYPES["timestamp"]),
        "topic": pa.array([entry.topic for entry in entries]),
        "device_id": pa.array([entry.device or None for entry in entries], pa.string()),
        "kind": pa.array([entry.kind or None for entry in entries], pa.string()),
        "id": pa.array([entry.id or None for entry in entries], pa.string()),
        "bytes": pa.array([len(value) for value in values], pa.int32()),
        "value": pa.array(values, pa.binary()),
    }
    return pa.table(columns, SCHEMA)


def events_of(table: pa.Table, shard: int) -> list[Event]:
    """The rows of a table, in its order."""
    positions = table["logged_at"].cast(pa.int64()).to_pylist()
    names = (table[name].to_pylist() for name in ("topic", "value", "device_id", "kind", "id"))
    return [
        Event(position, shard, Entry(topic, value, device or "", kind or "", identity or ""))
        for position, topic, value, device, kind, identity in zip(positions, *names, strict=True)
    ]


def by_topic(table: pa.Table) -> pa.Table:
    """As a slice lies in a file: what is alike is side by side."""
    return table.sort_by([("topic", "ascending"), ("logged_at", "ascending")])


def by_position(table: pa.Table) -> pa.Table:
    """In the order of the log."""
    return table.sort_by("logged_at")


class Checksum:
    """The checksum of events in their order, however they were cut into pieces, in whatever version of Parquet."""

    def __init__(self) -> None:
        self._parts = [0] * (2 * len(SCHEMA))

    def add(self, table: pa.Table) -> None:
        """The events that come next."""
        for number, column in enumerate(table.columns):
            for chunk in column.chunks:
                self._parts[2 * number : 2 * number + 2] = self._added(number, chunk)

    def __str__(self) -> str:
        return f"{zlib.crc32(b''.join(part.to_bytes(4) for part in self._parts)):08x}"

    def _added(self, number: int, chunk: pa.Array) -> tuple[int, int]:
        sizes, data = self._parts[2 * number : 2 * number + 2]
        if not len(chunk):
            return sizes, data
        if pa.types.is_string(chunk.type) or pa.types.is_binary(chunk.type):
            whole = pc.fill_null(chunk, pa.scalar(b"", pa.binary()).cast(chunk.type))
            ends = memoryview(whole.buffers()[1]).cast("i")[whole.offset : whole.offset + len(whole) + 1]
            text = memoryview(whole.buffers()[2] or b"")[ends[0] : ends[-1]]
            return zlib.crc32(_numbers(pc.binary_length(whole)), sizes), zlib.crc32(text, data)
        return sizes, zlib.crc32(_numbers(chunk), data)


def _numbers(array: pa.Array) -> memoryview:
    """The bytes of numbers of which none is null."""
    width = array.type.bit_width // 8
    return memoryview(array.buffers()[1])[array.offset * width : (array.offset + len(array)) * width]


def fitting(topics: pa.ChunkedArray, wanted: Iterable[str]) -> pa.ChunkedArray:
    """Return a mask of the rows that have one of these topics."""
    return pc.is_in(topics, pa.array(list(wanted), pa.string()))
