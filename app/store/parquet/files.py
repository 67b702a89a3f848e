"""Writes and reads one Parquet file of events. Everything here may wait for a disk, and belongs in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.events.cold import VERSION
from app.core.events.event import Event, Position
from app.core.events.reading import Reading
from app.store.parquet.rows import GROUP_EVENTS, SCHEMA, Checksum, by_position, by_topic, events_of, fitting, table_of

METADATA: Final = {"homing.events": str(VERSION)}
_POSITION: Final = 0
"""The column that has it."""
_TOPIC: Final = 1
_LAST: Final = "\U0010ffff"


class FileWriter:
    """Encodes a slice at a time, into memory: what is compressed of an hour of a shard and generation is not much."""

    def __init__(self, group_events: int = GROUP_EVENTS) -> None:
        """`group_events` is the number of events of a row group."""
        self._group_events = group_events
        self.events = 0
        self.first: Position = 0
        self.last: Position = 0
        self.checksum: Final = Checksum()
        self._sink = pa.BufferOutputStream()
        self._parquet = pq.ParquetWriter(
            self._sink,
            SCHEMA,
            compression="zstd",
            compression_level=6,
            use_dictionary=["topic", "device_id", "kind", "bytes"],
            column_encoding={"logged_at": "DELTA_BINARY_PACKED"},
            write_statistics=["logged_at", "topic", "device_id", "kind"],
            write_page_checksum=True,
            store_schema=False,  # readers get plain columns, whatever they know of Arrow
        )

    @property
    def size(self) -> int:
        """Bytes so far."""
        return int(self._sink.tell())

    def add(self, events: Sequence[Event]) -> None:
        """A slice: what comes next in the order of the log."""
        self.first = self.first or events[0].position
        self.last = events[-1].position
        self.events += len(events)
        table = table_of(events)
        self.checksum.add(table)
        self._parquet.write_table(by_topic(table), row_group_size=self._group_events)

    def finish(self) -> memoryview:
        """The file."""
        self._parquet.add_key_value_metadata(METADATA)
        self._parquet.close()
        return memoryview(self._sink.getvalue())


class Group(NamedTuple):
    """A row group, by its statistics."""

    first: Position
    last: Position
    number: int
    rows: int
    first_topic: str
    last_topic: str


def open_file(source: object, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """The file; what Arrow raises when it is none, or no version that this node reads."""
    file = pq.ParquetFile(source, metadata=footer, page_checksum_verification=True)
    if file.schema_arrow.names[: len(SCHEMA)] != SCHEMA.names:
        raise pa.ArrowInvalid("it has other columns than files of events")
    return file


def slices(footer: pq.FileMetaData, reading: Reading) -> Iterator[list[Group]]:
    """The row groups that may have what is read, those together that overlap in time, in its order."""
    low, high = topics_between(reading.topic_filter)
    together: list[Group] = []
    end = 0
    for group in sorted(_groups(footer)):
        if group.last <= reading.after or group.first > reading.until:
            continue
        if together and group.first > end:
            yield together
            together = []
        end = max(end, group.last)
        if low <= group.last_topic and group.first_topic <= high:
            together.append(group)
    if together:
        yield together


def topics_between(topic_filter: str) -> tuple[str, str]:
    """The least and the greatest topic that may fit."""
    levels = topic_filter.split("/")
    wild = next((place for place, level in enumerate(levels) if level in ("+", "#")), None)
    if not topic_filter or wild == 0:
        return "", _LAST
    if wild is None:
        return topic_filter, topic_filter
    prefix = "/".join(levels[:wild])
    return prefix, f"{prefix}/{_LAST}"


def read_slice(file: pq.ParquetFile, groups: Iterable[Group], reading: Reading) -> pa.Table:
    """The rows of a slice that fit, in the order of the log, whatever their positions."""
    if not reading.topic_filter:
        return by_position(_read(file, [group.number for group in groups], SCHEMA.names))
    parts = []
    fits = reading.matcher()
    for group in groups:
        topics = _read(file, [group.number], ["topic"])["topic"]
        wanted = [topic for topic in topics.unique().to_pylist() if fits(topic)]
        if wanted:
            parts.append(_read(file, [group.number], SCHEMA.names).filter(fitting(topics, wanted)))
    return by_position(pa.concat_tables(parts)) if parts else SCHEMA.empty_table()


def checksum_of(file: pq.ParquetFile) -> tuple[int, str]:
    """Return the number of events of a whole file, and their checksum."""
    checksum, events = Checksum(), 0
    everything = Reading("")
    for groups in slices(file.metadata, everything):
        table = read_slice(file, groups, everything)
        checksum.add(table)
        events += len(table)
    return events, str(checksum)


def within(table: pa.Table, shard: int, after: Position, until: Position, limit: int) -> tuple[list[Event], bool]:
    """The first events between two positions, and whether there are more."""
    import pyarrow.compute as pc  # noqa: PLC0415 - takes a moment, and only readers need it

    at = table["logged_at"].cast(pa.int64())
    chosen = table.filter(pc.and_(pc.greater(at, after), pc.less_equal(at, until)))
    return events_of(chosen.slice(0, limit), shard), len(chosen) > limit


def at_positions(table: pa.Table, shard: int, positions: Sequence[Position]) -> list[Event]:
    """The events at these positions, in the order of these."""
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    wanted = pc.is_in(table["logged_at"].cast(pa.int64()), value_set=pa.array(positions, pa.int64()))
    return events_of(table.filter(wanted), shard)


def _read(file: pq.ParquetFile, groups: list[int], columns: list[str]) -> pa.Table:
    return file.read_row_groups(groups, columns=columns, use_threads=False)


def _groups(footer: pq.FileMetaData) -> Iterator[Group]:
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        at, topic = group.column(_POSITION).statistics, group.column(_TOPIC).statistics
        if at is None or not at.has_min_max:
            raise pa.ArrowInvalid("it has no statistics")
        bounds = (topic.min, topic.max) if topic is not None and topic.has_min_max else ("", _LAST)
        yield Group(int(at.min_raw), int(at.max_raw), number, group.num_rows, *bounds)
