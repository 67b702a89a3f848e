"""Reads a shard of the RocksDB: the streams that may meet a filter, in one order, generation by generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from rocksdict import Rdict

from app.core.errors import DamagedEventsError
from app.core.eventlog.event import Event, Position, Shard
from app.core.eventlog.reading import MOST_SCANNED, Reading, Slice
from app.core.eventlog.record import topic_of, unpack_entry
from app.core.eventlog.structures import Structures, stream_id
from app.core.topics import matches
from app.store.rocks import keys
from app.store.rocks.rows import keys_from, rows_from

_FETCHED: Final = 64
"""Records that are looked up at once, of those that an index names."""


class DamagedGenerationError(DamagedEventsError):
    """A generation cannot be read."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"generation {number} of the event log cannot be read: {reason}")
        self.number = number
        self.reason = reason


class _Row(NamedTuple):
    position: Position
    record: bytes


def scan(
    shard: Shard, tables: Sequence[tuple[int, Rdict]], structures: Structures, reading: Reading, limit: int
) -> Slice:
    """`reading.until` is not beyond what is durable. Raises DamagedGenerationError."""
    found: list[Event] = []
    scanned = 0
    for number, table in tables:
        try:
            for row in _rows(shard.number, table, structures, reading):
                if len(found) == limit or scanned == MOST_SCANNED:
                    # The row that follows shows that there is more.
                    return Slice(found, row.position - 1, more=True)
                scanned += 1
                if reading.fits(topic_of(row.record)):
                    found.append(Event(row.position, shard.number, unpack_entry(row.record)))
        except DamagedEventsError as error:
            raise DamagedGenerationError(number, str(error)) from None
        except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
            raise DamagedGenerationError(number, str(error)) from None
    return Slice(found, reading.until, more=False)


def _rows(shard: int, table: Rdict, structures: Structures, reading: Reading) -> Iterator[_Row]:
    streams = []
    for structure in structures.meeting(reading.topic_filter):
        stream = stream_id(structure)
        level = _chosen_level(structures.varying(structure), reading.topic_filter)
        if level is None:
            streams.append(_by_stream(table, keys.of_stream(shard, stream), reading))
        else:
            value = reading.topic_filter.split("/")[level]
            index = keys.of_level(shard, stream, level, value)
            streams.append(_by_index(table, index, keys.of_stream(shard, stream), reading))
    return streams[0] if len(streams) == 1 else merge(*streams)


def _chosen_level(varying: Sequence[int], topic_filter: str) -> int | None:
    """A level that varies and for which the filter has a value."""
    wanted = topic_filter.split("/")
    return next((level for level in varying if level < len(wanted) and wanted[level] not in "+#"), None)


def _by_stream(table: Rdict, prefix: bytes, reading: Reading) -> Iterator[_Row]:
    last = keys.placed(prefix, reading.until)
    for key, record in rows_from(table, keys.placed(prefix, reading.after + 1)):
        if key > last:
            return
        yield _Row(keys.place_of(key), record)


def _by_index(table: Rdict, index: bytes, prefix: bytes, reading: Reading) -> Iterator[_Row]:
    left = _places(table, index, reading)
    while places := list(islice(left, _FETCHED)):
        records = table.get([keys.placed(prefix, place) for place in places])
        for place, record in zip(places, records or (), strict=True):
            if record is None:
                raise DamagedEventsError(f"the record at position {place} is missing")
            yield _Row(place, record)


def _places(table: Rdict, index: bytes, reading: Reading) -> Iterator[Position]:
    last = keys.placed(index, reading.until)
    for key in keys_from(table, keys.placed(index, reading.after + 1)):
        if key > last:
            return
        yield keys.place_of(key)


def last_values(table: Rdict, shard: Shard, topic_filter: str, after: str, limit: int) -> Sequence[Event]:
    """Last values whose topics fit, behind this topic."""
    prefix = keys.of_shard(shard)

    def fitting() -> Iterator[Event]:
        for key, value in rows_from(table, prefix + after.encode() + (b"\0" if after else b"")):
            if not key.startswith(prefix):
                return
            if matches(topic_filter, key[len(prefix) :].decode()):
                yield value_of(shard, value)

    return list(islice(fitting(), limit))


def value_of(shard: Shard, value: bytes) -> Event:
    """A last value as its bytes have it; DamagedEventsError."""
    return Event(keys.PLACE.unpack_from(value)[0], shard.number, unpack_entry(value[keys.PLACE.size :]))
