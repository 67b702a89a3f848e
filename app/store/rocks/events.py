"""The event log of one process, in a folder: RocksDB, with one sync for all that waits for it.

RocksDB checks what it reads. A generation that cannot be read is named and left out, and the others are served.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from rocksdict import Rdict, WriteBatch

from app.core.clock import Clock, wall_us
from app.core.errors import DamagedEventsError, HomingError, StoreUnavailableError
from app.core.events.batches import BatchId, CallId
from app.core.events.event import BEGINNING, Database, Entry, Event, Position, Shard
from app.core.events.generation import ColdFile, Generation, GenerationState
from app.core.events.reading import Picked, Reading, Slice
from app.core.events.transaction import Transaction
from app.runtime.telemetry import BurstLog, Fill
from app.store.events import ArchivedError
from app.store.rocks import keys
from app.store.rocks.folder import RocksFolder
from app.store.rocks.named_cursors import RocksCursors
from app.store.rocks.scan import DamagedGenerationError, GenerationSource, last_values, picked, scan, value_of
from app.store.rocks.state import RocksDatabase, RocksState
from app.store.rocks.writer import Addition, RocksWriter

READERS: Final = 2

T = TypeVar("T")


class RocksEventLog:
    """A drawer of a folder, which it may share with others."""

    def __init__(
        self, folder: RocksFolder, databases: Sequence[Database], clock: Clock, drops: BurstLog | None = None
    ) -> None:
        self.databases: Final = tuple(databases)
        self.cursors: Final = RocksCursors(folder, lambda: self._state.database)
        self._folder = folder
        self._clock = clock
        self._drops = drops or BurstLog(Counter(), clock)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="event log reader")
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def stale(self) -> bool:
        """Never: what the disk may not have is read again at once."""
        return False

    def open(self, database: Rdict, families: Sequence[str]) -> None:
        """As `Drawer`."""
        self._state = RocksState(database, families, self.databases)
        self._writer = RocksWriter(self._state, self._clock, self._drops, self._folder.commit)

    def shut(self) -> None:
        """As `Drawer`."""
        if hasattr(self, "_state"):
            self._state.close()

    def pack(self, rows: WriteBatch, jobs: Sequence[Addition]) -> Sequence[Position | Exception]:
        """As `Drawer`."""
        return self._writer.pack(rows, jobs)

    def kept(self) -> None:
        """As `Drawer`."""
        self._writer.kept()

    def lost(self) -> None:
        """As `Drawer`."""
        self._writer.lost()

    async def start(self) -> None:
        await self._folder.start(self)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._changed.set()
        await asyncio.to_thread(self._readers.shutdown)
        await self._folder.close(self)

    def fills(self) -> dict[str, Fill]:
        return {"events_writes": self._folder.fill()}

    async def append(
        self, shard: Shard, entries: Sequence[Entry], epoch: int | None = None, batch: BatchId | CallId | None = None
    ) -> Position:
        return await self._put(Addition(shard, entries, epoch, batch))

    async def claim(self, database: str, call: CallId) -> None:
        self._state.book(database).claimed.claim(call, wall_us(self._clock))

    async def commit(self, transaction: Transaction) -> Position:
        return await self._put(
            Addition(transaction.shard, transaction.entries, conditions=transaction.conditions, strict=True)
        )

    async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        self._state.book(shard.database)
        until = min(reading.until, self._writer.durable[shard])
        if until <= reading.after:
            return Slice([], reading.after, more=False)
        bounded = replace(reading, until=until)
        while True:
            book = self._state.book(shard.database)
            sources = _sources(book, reading.after, until, reading.generation)
            cold = book.cold.get(shard.number, BEGINNING)
            if reading.after < min(cold, until) if reading.generation is None else _is_elsewhere(book, reading):
                raise ArchivedError(cold)
            try:
                return await self._ask(partial(scan, shard, sources, bounded, limit))
            except DamagedGenerationError as error:
                await self._quarantine(shard.database, error)

    async def pick(self, shard: Shard, positions: Sequence[Position]) -> Picked:
        self._state.book(shard.database)
        wanted = sorted({one for one in positions if one <= self._writer.durable[shard]})
        while wanted:
            book = self._state.book(shard.database)
            sources, archived = _sources(book, wanted[0] - 1, wanted[-1]), book.cold.get(shard.number, BEGINNING)
            try:
                found = await self._ask(partial(picked, shard, sources, wanted))
            except DamagedGenerationError as error:
                await self._quarantine(shard.database, error)
                continue
            cuts = [cut.about for cut in book.all_cuts() if cut.about.state is GenerationState.DAMAGED]
            return Picked(
                found, [one for one in wanted if one not in found and any(_has(cut, one) for cut in cuts)], archived
            )
        return Picked({})

    async def wait(self, database: str, after: Sequence[Position]) -> Sequence[Position]:
        shards = self._state.book(database).database.all_shards()
        while True:
            changed = self._changed
            if self._closed:
                raise StoreUnavailableError("the event log is closed")
            heads = [self._writer.durable[shard] for shard in shards]
            if any(head > position for head, position in zip(heads, after, strict=True)):
                return heads
            await changed.wait()

    async def value(self, shard: Shard, topic: str) -> Event | None:
        self._state.book(shard.database)
        found = await self._ask(lambda: self._state.values.get(keys.of_shard(shard) + topic.encode()))
        return None if found is None else (await self._synced(shard, [value_of(shard, found)]))[0]

    async def values(self, shard: Shard, topic_filter: str, after: str, limit: int) -> Sequence[Event]:
        self._state.book(shard.database)
        found = await self._ask(lambda: last_values(self._state.values, shard, topic_filter, after, limit))
        return await self._synced(shard, found)

    async def structures(self, database: str) -> Sequence[str]:
        return sorted(self._state.book(database).structures())

    async def generations(self, database: str) -> Sequence[Generation]:
        with self._folder.using():
            return [cut.about for cut in self._state.book(database).all_cuts()]

    async def rotate(self, database: str, expected: int) -> None:
        self._state.book(database)
        await self._folder.alone(lambda: self._writer.rotate(database, expected))

    async def cool(self, database: str, number: int, files: Sequence[ColdFile]) -> None:
        self._state.book(database)
        await self._folder.alone(lambda: self._writer.cool(database, number, files))

    async def allow(self, database: str, room: int | None) -> None:
        self._state.book(database)
        await self._folder.alone(lambda: self._writer.allow(database, room))

    async def drop(self, database: str, number: int) -> None:
        self._state.book(database)
        await self._folder.alone(lambda: self._writer.drop(database, number))

    async def _put(self, addition: Addition) -> Position:
        self._state.book(addition.shard.database)
        with self._folder.using():
            position: Position = await self._folder.submit(self, addition)
        self._changed.set()
        self._changed = asyncio.Event()
        return position

    async def _synced(self, shard: Shard, found: Sequence[Event]) -> Sequence[Event]:
        """The same, once they are durable: what is being written can be read a moment before it is synced."""
        if any(event.position > self._writer.durable[shard] for event in found):
            await self._folder.alone(lambda: None)  # its turn comes behind that write
        return found

    async def _quarantine(self, database: str, error: DamagedGenerationError) -> None:
        await self._folder.alone(lambda: self._writer.quarantine(database, error.number, error.reason))

    async def _ask(self, question: Callable[[], T]) -> T:
        if self._closed:
            raise StoreUnavailableError("the event log is closed")
        try:
            with self._folder.using():
                return await asyncio.get_running_loop().run_in_executor(self._readers, question)
        except HomingError:
            raise
        except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
            raise DamagedEventsError(f"the event log cannot be read: {error}") from None


def _sources(
    book: RocksDatabase, after: Position, until: Position, generation: int | None = None
) -> list[GenerationSource]:
    """The generations that may have events between these positions; with a `generation`, this one alone."""
    return [
        GenerationSource(cut.about.number, cut.table, cut.structures, cut.ordered)
        for cut in book.all_cuts()
        if cut.table is not None and generation in (None, cut.about.number) and _may_have(cut.about, after, until)
    ]


def _is_elsewhere(book: RocksDatabase, reading: Reading) -> bool:
    """True if the generation that is to be read is not here any more."""
    cut = book.cuts.get(reading.generation or 0)
    return cut is None or cut.table is None


def _has(about: Generation, position: Position) -> bool:
    return about.first <= position <= about.last


def _may_have(about: Generation, after: Position, until: Position) -> bool:
    """True if a generation is to be looked at for events between these positions."""
    if about.state is GenerationState.SEALED:
        return about.count > 0 and about.last > after and about.first <= until
    return about.state is GenerationState.CURRENT
