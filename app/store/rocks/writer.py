"""The event log writes in the thread of its folder: additions become rows of the batch that is synced once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog
from rocksdict import WriteBatch

from app.core.clock import Clock, wall_us
from app.core.errors import FencedError, HomingError, StoreUnavailableError, ValueChangedError
from app.core.events.batches import BatchId, CallId
from app.core.events.event import Entry, Position, Shard, size_of
from app.core.events.generation import ColdFile, GenerationState
from app.core.events.quota import check_room
from app.core.events.record import pack_entry, value_size
from app.core.events.structures import OTHERS, Structures
from app.core.events.transaction import ValueCondition
from app.core.events.values import Size
from app.runtime.telemetry import BurstLog
from app.store.rocks import keys
from app.store.rocks.state import OpenGeneration, RocksDatabase, RocksState, ShardHead, written

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Addition:
    """The events that somebody wants to append."""

    shard: Shard
    entries: Sequence[Entry]
    epoch: int | None = None
    batch: BatchId | CallId | None = None
    conditions: Sequence[ValueCondition] = ()
    strict: bool = False
    """True if all topics must get their last values."""


class _PendingWrites:
    """The changes of one batch, so that its later jobs see what the earlier ones do."""

    def __init__(self, rows: WriteBatch | None = None) -> None:
        self.rows: Final = WriteBatch(raw_mode=True) if rows is None else rows
        self.values: Final[dict[bytes, Position | None]] = {}
        self.books: Final[dict[str, RocksDatabase]] = {}
        self.shards: Final[set[Shard]] = set()


class RocksWriter:
    """Used by one thread only, but for `durable`, which is replaced as a whole."""

    def __init__(self, state: RocksState, clock: Clock, drops: BurstLog, commit: Callable[[WriteBatch], None]) -> None:
        self._state = state
        self._clock = clock
        self._drops = drops
        self._make_durable = commit
        self._packed = _PendingWrites()
        self.durable: dict[Shard, Position] = {
            shard: head.position
            for book in state.books.values()
            for shard, head in zip(book.database.all_shards(), book.heads, strict=True)
        }
        """The position up to which readers may see each shard."""

    def pack(self, rows: WriteBatch, additions: Sequence[Addition]) -> Sequence[Position | Exception]:
        """All of them in one batch; for each one its last position, or why it is not written."""
        batch = self._packed = _PendingWrites(rows)
        results: list[Position | Exception] = []
        for one in additions:
            try:
                results.append(self._add(batch, one))
            except HomingError as error:
                results.append(error)
        self._finish(batch)
        return results

    def kept(self) -> None:
        """The rows that were packed last are durable, and may be read."""
        batch, self._packed = self._packed, _PendingWrites()
        for book in batch.books.values():
            book.current.unsaved.clear()
        self.durable = self.durable | {
            shard: self._state.book(shard.database).heads[shard.number].position for shard in batch.shards
        }

    def lost(self) -> None:
        """The rows that were packed last may not be on the disk."""
        self._state.reload()

    def rotate(self, database: str, expected: int) -> None:
        """Begin a new generation, if this one is current."""
        book = self._state.book(database)
        old = book.current
        if old.about.number != expected:
            return
        batch = _PendingWrites()
        new = self._state.begin(book, expected + 1, old.structures.inherited())
        if old.about.state is GenerationState.CURRENT:
            old.about = replace(old.about, state=GenerationState.SEALED)
        for cut in (old, new):
            batch.rows.put(keys.of_generation(database, cut.about.number), written(cut.about))
        try:
            self._commit(batch)
        except StoreUnavailableError:
            del book.cuts[new.about.number]  # or the old one would never be sealed
            raise
        if old.table is not None:
            old.table.flush(wait=False)

    def allow(self, database: str, room: int | None) -> None:
        """Allow so many bytes more in each shard; None: no bound."""
        book = self._state.book(database)
        book.rooms = {} if room is None else dict.fromkeys(range(book.database.shards), room)

    def drop(self, database: str, number: int) -> None:
        """Forget a generation that is not current. The catalogue says so first: a table without entry is nobody's."""
        book = self._state.book(database)
        if number not in book.cuts or number == book.current.about.number:
            return
        batch = _PendingWrites()
        batch.rows.delete(keys.of_generation(database, number))
        self._forget_structures(batch, book, number)
        self._commit(batch)
        if book.cuts.pop(number).table is not None:
            self._state.database.drop_column_family(keys.family(database, number))

    def cool(self, database: str, number: int, files: Sequence[ColdFile]) -> None:
        """A generation is in these files from now on. The catalogue says so before its table is dropped."""
        cut = self._state.book(database).cuts.get(number)
        if cut is None or cut.about.state not in (GenerationState.SEALED, GenerationState.COLD):
            return
        about = replace(cut.about, state=GenerationState.COLD, files=tuple(files))
        batch = _PendingWrites()
        batch.rows.put(keys.of_generation(database, number), written(about))
        self._forget_structures(batch, self._state.book(database), number)
        self._commit(batch)
        # Readers list tables first, and look then up to where the shard is cold.
        self._state.book(database).cooled(files)
        cut.about = about
        if cut.table is not None:
            cut.table = cut.handle = None
            cut.structures = Structures()
            self._state.database.drop_column_family(keys.family(database, number))

    def quarantine(self, database: str, number: int, note: str) -> None:
        """Leave a generation out from now on; when it is the current one, another one begins."""
        book = self._state.book(database)
        cut = book.cuts.get(number)
        if cut is None or cut.about.state is GenerationState.DAMAGED:
            return
        _log.error("events_damaged", database=database, generation=number, reason=note)
        cut.about = replace(cut.about, state=GenerationState.DAMAGED, note=note[:500])
        batch = _PendingWrites()
        batch.rows.put(keys.of_generation(database, number), written(cut.about))
        self._commit(batch)
        self.rotate(database, number)

    def _add(self, batch: _PendingWrites, one: Addition) -> Position:
        book = self._state.book(one.shard.database)
        head = book.heads[one.shard.number]
        taken = book.taken(one.shard, one.batch)
        if taken is not None:
            batch.shards.add(one.shard)  # to be synced: what it was written with may have failed at just that
            return taken
        if one.epoch is not None and one.epoch < head.epoch:
            raise FencedError(f"epoch {head.epoch} writes to shard {one.shard}, and this is {one.epoch}", head.epoch)
        room = book.rooms.get(one.shard.number)
        check_room(one.shard.database, room, one.entries)
        for condition in one.conditions:
            found = self._position_of(batch, one.shard, condition.topic)
            if found != condition.position:
                raise ValueChangedError(condition.topic, condition.position, found)
        latest = {entry.topic: place for place, entry in enumerate(one.entries)}
        if one.strict:
            prefix = keys.of_shard(one.shard)
            given = [entry for entry in map(one.entries.__getitem__, latest.values()) if entry.value]
            book.held[one.shard.number].check(
                {
                    entry.topic: Size(
                        hash(prefix + entry.topic.encode()), value_size(entry), book.database.tenants.of(entry.device)
                    )
                    for entry in given
                }
            )
        position = max(head.position, wall_us(self._clock) - 1)
        cut = book.current
        first, size = position + 1, 0
        records = [pack_entry(entry) for entry in one.entries]
        streams = []
        for entry, record in zip(one.entries, records, strict=True):
            position += 1
            streams.append(self._put(batch, cut, one.shard.number, entry.topic, record, position))
            size += size_of(entry)
        batch.rows.put(keys.placed(keys.of_order(one.shard.number), position), b"".join(streams), cut.handle)
        cut.named += len(streams)
        for place in latest.values():
            self._remember(batch, book, one.shard, one.entries[place], records[place], first + place)
        book.heads[one.shard.number] = ShardHead(position, head.epoch if one.epoch is None else one.epoch)
        if room is not None:
            book.rooms[one.shard.number] = room - size
        about = cut.about
        cut.about = replace(
            about,
            first=min(about.first or first, first),
            last=max(about.last, position),
            count=about.count + len(one.entries),
            size=about.size + size,
        )
        if one.batch is not None:
            self._note(batch, book, one.shard, one.batch, position)
        batch.shards.add(one.shard)
        batch.books[one.shard.database] = book
        return position

    def _note(
        self, batch: _PendingWrites, book: RocksDatabase, shard: Shard, taken: BatchId | CallId, position: Position
    ) -> None:
        if isinstance(taken, CallId):
            batch.rows.put(keys.of_call(shard, taken.text), keys.PLACE.pack(position))
            for old in book.calls[shard.number].put(taken, position):
                batch.rows.delete(keys.of_call(shard, old))
            return
        batch.rows.put(keys.of_writer(shard, taken.writer), keys.TAKEN.pack(taken.number, position))
        forgotten = book.batches[shard.number].put(taken, position)
        if forgotten is not None:
            batch.rows.delete(keys.of_writer(shard, forgotten))

    def _put(
        self, batch: _PendingWrites, cut: OpenGeneration, shard: int, topic: str, record: bytes, position: Position
    ) -> bytes:
        """Under its stream, which is returned, and for each level of it that varies."""
        rows, structures = batch.rows, cut.structures
        known = len(structures)
        structure = structures.of(topic)
        if len(structures) > known:
            cut.unsaved.add(structure)
        stream = structures.stream(structure)
        rows.put(keys.placed(keys.of_stream(shard, stream), position), record, cut.handle)
        varying = structures.varying(structure)
        if varying:
            levels = topic.split("/")
            for level in varying:
                prefix = keys.of_level(shard, stream, level, levels[level])
                rows.put(keys.placed(prefix, position), b"", cut.handle)
        elif structure == OTHERS:
            for value in keys.fronts_of(topic):
                rows.put(keys.placed(keys.of_level(shard, stream, keys.FRONT, value), position), b"", cut.handle)
        return stream

    def _forget_structures(self, batch: _PendingWrites, book: RocksDatabase, number: int) -> None:
        """Forget those that went with a generation, and what is known of its order."""
        for structure in book.only_in(number):
            batch.rows.delete(keys.of_structure(book.database.name, structure))
        batch.rows.delete(keys.of_ordered(book.database.name, number))

    def _remember(
        self, batch: _PendingWrites, book: RocksDatabase, shard: Shard, entry: Entry, record: bytes, position: Position
    ) -> None:
        """As the last value of its topic, if it is one and there is room; else there is none any more."""
        key = keys.of_shard(shard) + entry.topic.encode()
        held, topic_hash = book.held[shard.number], hash(key)
        size = Size(topic_hash, len(entry.topic.encode()) + len(record), book.database.tenants.of(entry.device))
        bound = held.bound(entry.topic, size) if entry.value else None
        if bound is not None:
            self._drops.drop(bound, topic=entry.topic)
        if entry.value and bound is None:
            held.put(size)
            batch.rows.put(key, keys.PLACE.pack(position) + record, self._state.values_handle)
            batch.values[key] = position
        elif bound not in ("last_value", "last_value_share"):  # that topic has none
            held.forget(topic_hash)
            batch.rows.delete(key, self._state.values_handle)
            batch.values[key] = None

    def _position_of(self, batch: _PendingWrites, shard: Shard, topic: str) -> Position | None:
        key = keys.of_shard(shard) + topic.encode()
        if key in batch.values:
            return batch.values[key]
        found = self._state.values.get(key)
        position: Position | None = None if found is None else keys.PLACE.unpack_from(found)[0]
        return position

    def _finish(self, batch: _PendingWrites) -> None:
        for name, book in batch.books.items():
            cut = book.current
            batch.rows.put(keys.of_generation(name, cut.about.number), written(cut.about))
            batch.rows.put(keys.of_ordered(name, cut.about.number), keys.PLACE.pack(cut.named))
            for structure in cut.unsaved:
                batch.rows.put(keys.STRUCTURE + structure.encode(), b"", cut.handle)
                batch.rows.put(keys.of_structure(name, structure), b"")
        for shard in batch.shards:
            head = self._state.book(shard.database).heads[shard.number]
            batch.rows.put(keys.of_head(shard), keys.HEAD.pack(head.position, head.epoch))

    def _commit(self, batch: _PendingWrites) -> None:
        """Durable when it returns; StoreUnavailableError."""
        try:
            self._make_durable(batch.rows)
        except StoreUnavailableError:
            self._state.reload()
            raise
