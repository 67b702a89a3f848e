"""Reads a shard of the RocksDB: the streams that may meet a filter, in one order, generation by generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from rocksdict import Rdict

from app.core.errors import DamagedEventsError
from app.core.events.event import BEGINNING, Event, Position, Shard
from app.core.events.reading import EVERYTHING, MOST_READ_BYTES, MOST_SCANNED, Reading, Slice
from app.core.events.record import unpack_entry
from app.core.events.structures import OTHERS, Structures
from app.core.topics import matches
from app.store.rocks import keys
from app.store.rocks.rows import keys_from, rows_from

MOST_MERGED: Final = 64
"""Structures whose streams are read side by side; where a filter meets more, all events are passed in their order."""
MOST_OF_ALL: Final = 8
"""The same where all events are read, which nothing is faster for than their order."""
_FETCHED: Final = 64
"""Records that are looked up at once, of those that an index or the order names."""


class DamagedGenerationError(DamagedEventsError):
    """A generation cannot be read."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"generation {number} of the event log cannot be read: {reason}")
        self.number = number
        self.reason = reason


class _Row(NamedTuple):
    position: Position
    record: bytes


class GenerationSource(NamedTuple):
    """A generation to be read. `ordered`: it has an order, which 0.2.0 did not write."""

    number: int
    table: Rdict
    structures: Structures
    ordered: bool


def scan(shard: Shard, sources: Sequence[GenerationSource], reading: Reading, limit: int) -> Slice:
    """`reading.until` is not beyond what is durable. Raises DamagedGenerationError."""
    found: list[Event] = []
    fits, scanned, size = reading.matcher(), 0, 0
    for source in sources:
        with _damage(source):
            for row in _rows(shard.number, source, reading):
                if len(found) == limit or scanned == MOST_SCANNED or size >= MOST_READ_BYTES:
                    # The row that follows shows that there is more.
                    return Slice(found, row.position - 1, more=True)
                scanned += 1
                if row.record and fits((entry := unpack_entry(row.record)).topic):
                    found.append(Event(row.position, shard.number, entry))
                    size += len(row.record)
    return Slice(found, reading.until, more=False)


def picked(shard: Shard, sources: Sequence[GenerationSource], positions: Sequence[Position]) -> dict[Position, Event]:
    """The events at these positions, which are in their order and durable. Raises DamagedGenerationError."""
    found: dict[Position, Event] = {}
    for source in sources:
        with _damage(source):
            for row in (
                _named(shard.number, source.table, positions)
                if source.ordered
                else (
                    row for one in positions for row in _rows(shard.number, source, Reading(EVERYTHING, one - 1, one))
                )
            ):
                if row.record:
                    found[row.position] = Event(row.position, shard.number, unpack_entry(row.record))
    return found


@contextmanager
def _damage(source: GenerationSource) -> Iterator[None]:
    """A generation is read meanwhile; DamagedGenerationError where that is not possible."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
        raise DamagedGenerationError(source.number, str(error)) from None


def _rows(shard: int, source: GenerationSource, reading: Reading) -> Iterator[_Row]:
    structures, everything = source.structures, reading.topic_filter in (EVERYTHING, "#")
    if source.ordered and everything and len(structures) > MOST_OF_ALL:
        return _in_order(shard, source.table, None, reading)
    names, streams = structures.meeting(reading.topic_filter)
    if source.ordered and len(names) > MOST_MERGED:
        return _in_order(shard, source.table, streams, reading)
    found = [_of_structure(shard, source, one, reading) for one in names]
    return found[0] if len(found) == 1 else merge(*found)


def _of_structure(shard: int, source: GenerationSource, structure: str, reading: Reading) -> Iterator[_Row]:
    """The events of a structure, or those that an index names."""
    stream = source.structures.stream(structure)
    prefix = keys.of_stream(shard, stream)
    level, value = _sought(source, structure, reading.topic_filter)
    if value is None:
        return _by_stream(source.table, prefix, reading)
    return _by_index(source.table, keys.of_level(shard, stream, level, value), prefix, reading)


def _sought(source: GenerationSource, structure: str, topic_filter: str) -> tuple[int, str | None]:
    """A level that varies and for which the filter has a value, and that; of what has no structure a part in front."""
    if structure == OTHERS:
        return keys.FRONT, keys.front_of(topic_filter) if source.ordered and topic_filter else None
    wanted = topic_filter.split("/")
    levels = (one for one in source.structures.varying(structure) if one < len(wanted) and wanted[one] not in "+#")
    level = next(levels, None)
    return (0, None) if level is None else (level, wanted[level])


def _in_order(shard: int, table: Rdict, wanted: AbstractSet[int] | None, reading: Reading) -> Iterator[_Row]:
    """All events in the order of their positions, or those of the wanted streams. A row without a record is of others.

    It counts as one, like an event, so that what is passed over has a bound as well.
    """
    prefix = keys.of_order(shard)
    for key, row in rows_from(table, keys.placed(prefix, reading.after + 1)):
        if not key.startswith(prefix):
            return
        last, streams = keys.place_of(key), keys.streams_of(row)
        places = range(last - len(streams) + 1, last + 1)
        if places[0] > reading.until:
            return
        found = [
            (place, keys.of_event(shard, stream, place))
            for place, stream in zip(places, streams, strict=True)
            if (wanted is None or stream in wanted) and reading.after < place <= reading.until
        ]
        if not found:
            yield _Row(min(last, reading.until), b"")
        for at in range(0, len(found), _FETCHED):
            yield from _looked_up(table, found[at : at + _FETCHED])


def _named(shard: int, table: Rdict, positions: Sequence[Position]) -> Iterator[_Row]:
    """The records at these positions, where the order names them."""
    prefix, last = keys.of_order(shard), BEGINNING
    streams: tuple[int, ...] = ()
    there: list[tuple[Position, bytes]] = []
    for position in positions:
        if position > last:
            key, row = next(rows_from(table, keys.placed(prefix, position)), (b"", b""))
            if not key.startswith(prefix):
                break
            last, streams = keys.place_of(key), keys.streams_of(row)
        place = position - (last - len(streams) + 1)
        if place >= 0:
            there.append((position, keys.of_event(shard, streams[place], position)))
    for at in range(0, len(there), _FETCHED):
        yield from _looked_up(table, there[at : at + _FETCHED])


def _by_stream(table: Rdict, prefix: bytes, reading: Reading) -> Iterator[_Row]:
    last = keys.placed(prefix, reading.until)
    for key, record in rows_from(table, keys.placed(prefix, reading.after + 1)):
        if key > last:
            return
        yield _Row(keys.place_of(key), record)


def _by_index(table: Rdict, index: bytes, prefix: bytes, reading: Reading) -> Iterator[_Row]:
    left = _places(table, index, reading)
    while places := list(islice(left, _FETCHED)):
        yield from _looked_up(table, [(place, keys.placed(prefix, place)) for place in places])


def _looked_up(table: Rdict, places: Sequence[tuple[Position, bytes]]) -> Iterator[_Row]:
    """The records at these positions, which have these keys; DamagedEventsError."""
    records = table.get([key for _, key in places])
    for (place, _), record in zip(places, records or (), strict=True):
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
