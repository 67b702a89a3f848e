"""The cold tier in Parquet: reads and writes files in threads of its own, so that the event loop waits for none."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.errors import DamagedEventsError, HomingError, StoreUnavailableError
from app.core.events.cold import folder_of, hour_named, hour_of, parse_name, path_of
from app.core.events.event import Event, Position, Shard, size_of
from app.core.events.generation import HOUR_US, ColdFile
from app.core.events.reading import EVERYTHING, MOST_SCANNED, Reading, Slice
from app.runtime.telemetry import Fill
from app.store.parquet.files import FileWriter, Group, at_positions, checksum_of, open_file, read_slice, slices, within
from app.store.parquet.place import ObjectStore
from app.store.parquet.rows import GROUP_EVENTS, SLICE_BYTES, SLICE_EVENTS

READERS: Final = 2
MOST_READING: Final = 64
"""Calls under way or waiting for a thread."""
MOST_FOOTERS: Final = 256
CACHE_BYTES: Final = 32 * 1024 * 1024
"""The bytes of slices that were read and are kept: pages follow each other."""
FILE_BYTES: Final = 64 * 1024 * 1024
"""Compressed; then another file begins."""

T = TypeVar("T")


class ParquetArchive:
    """Files of events at a place."""

    def __init__(self, place: ObjectStore) -> None:
        self.group_events = GROUP_EVENTS
        self._place = place
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="cold tier")
        self._waiting = 0
        self._footers = Footers()
        self._slices = Slices()

    async def start(self) -> None:
        return

    async def close(self) -> None:
        # Not waited for: a place that does not answer must not keep the node from ending.
        self._threads.shutdown(wait=False, cancel_futures=True)

    def fills(self) -> dict[str, Fill]:
        return {"cold_reads": Fill(self._waiting, MOST_READING)}

    async def put(self, shard: Shard, generation: int, events: AsyncIterator[Sequence[Event]]) -> Sequence[ColdFile]:
        done: list[ColdFile] = []
        writer: FileWriter | None = None
        async for piece in _pieces(events):
            if writer is not None and (hour_of(writer.first) != hour_of(piece[0].position) or writer.size > FILE_BYTES):
                done.append(await self._do(partial(self._publish, shard, generation, writer)))
                writer = None
            writer = writer or FileWriter(self.group_events)
            await self._do(partial(writer.add, piece))
        if writer is not None:
            done.append(await self._do(partial(self._publish, shard, generation, writer)))
        return done

    async def read(self, database: str, generation: int, file: ColdFile, reading: Reading, limit: int) -> Slice:
        path = path_of(database, generation, file)
        return await self._ask(path, lambda parquet: self._scan(path, parquet, file, reading, limit))

    async def pick(
        self, database: str, generation: int, file: ColdFile, positions: Sequence[Position]
    ) -> Sequence[Event]:
        path = path_of(database, generation, file)
        return await self._ask(path, lambda parquet: self._pick(path, parquet, file, positions))

    async def sweep(self, database: str, before: Position, named: Collection[tuple[int, ColdFile]]) -> int:
        paths = {path_of(database, generation, file) for generation, file in named}
        return await self._do(partial(self._sweep, database, hour_of(before), paths))

    async def _ask(self, path: str, question: Callable[[pq.ParquetFile], T]) -> T:
        if self._waiting >= MOST_READING:
            raise StoreUnavailableError(f"{MOST_READING} readings wait for the cold tier already")
        self._waiting += 1
        try:
            return await self._do(partial(self._decoded, path, question))
        finally:
            self._waiting -= 1

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except RuntimeError as error:  # it is closed
            raise StoreUnavailableError(f"the cold tier cannot be used: {error}") from None

    def _publish(self, shard: Shard, generation: int, writer: FileWriter) -> ColdFile:
        whole = writer.finish()
        file = ColdFile(shard.number, writer.first, writer.last, writer.events, len(whole), str(writer.checksum))
        path = path_of(shard.database, generation, file)
        self._place.put(path, whole)
        found = self._decoded(path, checksum_of)
        if found != (file.events, file.checksum):
            raise DamagedEventsError(
                f"{path} has {found[0]} events with checksum {found[1]} when it is read again; "
                f"written were {file.events} with {file.checksum}"
            )
        return file

    def _scan(self, path: str, parquet: pq.ParquetFile, file: ColdFile, reading: Reading, limit: int) -> Slice:
        found: list[Event] = []
        scanned = 0
        for groups in slices(parquet.metadata, reading):
            if scanned >= MOST_SCANNED or len(found) == limit:
                return Slice(found, groups[0].first - 1, more=True)
            table = self._table(path, parquet, groups, reading)
            scanned += sum(group.rows for group in groups)
            events, more = within(table, file.shard, reading.after, reading.until, limit - len(found))
            found += events
            if more:
                return Slice(found, found[-1].position, more=True)
        return Slice(found, min(reading.until, file.last), more=False)

    def _pick(self, path: str, parquet: pq.ParquetFile, file: ColdFile, positions: Sequence[Position]) -> list[Event]:
        found: list[Event] = []
        everything = Reading(EVERYTHING)
        for groups in slices(parquet.metadata, everything):
            first, last = groups[0].first, max(group.last for group in groups)
            there = [one for one in positions if first <= one <= last]
            if there:
                found += at_positions(self._table(path, parquet, groups, everything), file.shard, there)
        return found

    def _table(self, path: str, parquet: pq.ParquetFile, groups: Sequence[Group], reading: Reading) -> pa.Table:
        """Return the rows of these groups that fit the filter, whatever their positions."""
        key = (path, tuple(group.number for group in groups), reading.topic_filter)
        table = self._slices.get(key)
        if table is None:
            table = read_slice(parquet, groups, reading)
            self._slices.put(key, table)
        return table

    def _decoded(self, path: str, work: Callable[[pq.ParquetFile], T]) -> T:
        """Return the work's result on a file; DamagedEventsError when it cannot be read, though the place can be."""
        footer = self._footers.take(path)
        try:
            return self._decode(path, footer, work)
        except DamagedEventsError:
            if footer is None:
                raise
            return self._decode(path, None, work)  # it may have been written again since

    def _decode(self, path: str, footer: pq.FileMetaData | None, work: Callable[[pq.ParquetFile], T]) -> T:
        try:
            source = self._place.open(path)
        except FileNotFoundError:
            raise DamagedEventsError(f"{path} is missing") from None
        try:
            parquet = open_file(source, footer)
            result = work(parquet)
            self._footers.put(path, parquet.metadata)
            return result
        except HomingError:
            raise
        except (OSError, ValueError, KeyError, UnicodeDecodeError, pa.ArrowException) as error:
            if source.failed is not None:
                raise source.failed from error
            raise DamagedEventsError(f"{path} cannot be read: {error}".splitlines()[0][:400]) from error
        finally:
            source.close()

    def _sweep(self, database: str, before: int, named: Collection[str]) -> int:
        gone = 0
        for date in self._place.folders(f"db={database}"):
            for name in self._place.folders(f"db={database}/{date}"):
                hour = hour_named(date, name)
                if hour is None:
                    continue
                folder = folder_of(database, hour)
                if hour < before:
                    for file in self._place.names(folder):
                        if parse_name(file) is not None and f"{folder}/{file}" not in named:
                            self._place.remove(f"{folder}/{file}")
                            gone += 1
                self._place.tidy(folder)
            self._place.tidy(f"db={database}/{date}")
        return gone


class Footers:
    """The last ones that were read: what a file has, and where in it. For threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, pq.FileMetaData] = OrderedDict()

    def take(self, path: str) -> pq.FileMetaData | None:
        """Take out the footer of the file at this path; the caller who could use it puts it back."""
        with self._lock:
            return self._kept.pop(path, None)

    def put(self, path: str, footer: pq.FileMetaData) -> None:
        """Keep it for a while."""
        with self._lock:
            self._kept[path] = footer
            while len(self._kept) > MOST_FOOTERS:
                self._kept.popitem(last=False)


class Slices:
    """The last slices that were read, as they fit a filter. For threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[object, pa.Table] = OrderedDict()
        self._size = 0

    def get(self, key: object) -> pa.Table | None:
        """As it was kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: object, table: pa.Table) -> None:
        """Keep it for a while."""
        with self._lock:
            self._size += table.nbytes - (self._kept[key].nbytes if key in self._kept else 0)
            self._kept[key] = table
            while self._size > CACHE_BYTES:
                self._size -= self._kept.popitem(last=False)[1].nbytes


async def _pieces(events: AsyncIterator[Sequence[Event]]) -> AsyncIterator[Sequence[Event]]:
    """The same, in slices of one hour."""
    waiting: list[Event] = []
    size = 0
    async for some in events:
        for event in some:
            full = len(waiting) == SLICE_EVENTS or size >= SLICE_BYTES
            if waiting and (full or event.position // HOUR_US != waiting[0].position // HOUR_US):
                yield waiting
                waiting, size = [], 0
            waiting.append(event)
            size += size_of(event.entry)
    if waiting:
        yield waiting
