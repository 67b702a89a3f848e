"""The event log in memory: for tests, and for nodes that may forget."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from app.core.clock import Clock, wall_us
from app.core.errors import DatabaseNotFoundError, FencedError, StoreUnavailableError, ValueChangedError
from app.core.events.batches import BatchId, CallId, ClaimedKeys, KnownCalls, LastBatches
from app.core.events.event import BEGINNING, END, Database, Entry, Event, Position, Shard, size_of
from app.core.events.generation import ColdFile, Generation, GenerationState
from app.core.events.quota import check_room
from app.core.events.reading import MOST_READ_BYTES, MOST_SCANNED, Picked, Reading, Slice
from app.core.events.record import value_size
from app.core.events.structures import Structures
from app.core.events.transaction import Transaction
from app.core.events.values import Size, ValueUsage
from app.core.topics import matches
from app.runtime.telemetry import BurstLog, Fill
from app.store.events import ArchivedError
from app.store.memory.named_cursors import MemoryCursors


@dataclass(slots=True)
class _ShardState:
    held: ValueUsage
    events: list[Event] = field(default_factory=list)
    head: Position = 0
    cold: Position = 0
    """The position up to which events are only in the cold tier."""
    epoch: int = 0
    batches: LastBatches = field(default_factory=LastBatches)
    calls: KnownCalls = field(default_factory=KnownCalls)
    room: int | None = None
    values: dict[str, Event] = field(default_factory=dict)
    topics: list[str] = field(default_factory=list)
    """The topics that have a value, in order."""


class _DatabaseState:
    def __init__(self, database: Database) -> None:
        self.shards: Final = [_ShardState(ValueUsage(database)) for _ in range(database.shards)]
        self.about: Final = database
        self.structures: Final = Structures(database.taught)
        self.generations: Final = [Generation(1, GenerationState.CURRENT)]
        self.begins: Final = {1: [BEGINNING] * database.shards}
        """The heads of the shards when a generation began, by generation: the clock may be set back, so instants do not
        tell."""
        self.claimed: Final = ClaimedKeys()
        self.changed = asyncio.Event()

    def within(self, shard: int, reading: Reading) -> Reading:
        """Bounded to its generation; ArchivedError when that is not here any more."""
        for one in self.generations:
            if one.number == reading.generation and one.state is not GenerationState.COLD:
                begin = max(reading.after, self.begins[one.number][shard])
                end = self.begins.get(one.number + 1)
                return replace(reading, after=begin, until=max(begin, min(reading.until, end[shard] if end else END)))
        raise ArchivedError(self.shards[shard].cold)

    def forget(self, number: int) -> None:
        """The events of a generation that is not current."""
        begins, ends = self.begins[number], self.begins[number + 1]
        for shard, begin, end in zip(self.shards, begins, ends, strict=True):
            shard.events = [event for event in shard.events if not begin < event.position <= end]


class MemoryEventLog:
    """`clock` gives positions their instants."""

    def __init__(self, databases: Sequence[Database], clock: Clock, drops: BurstLog | None = None) -> None:
        self.databases: Final = tuple(databases)
        self.cursors: Final = MemoryCursors()
        self._clock = clock
        self._drops = drops or BurstLog(Counter(), clock)
        self._states: Mapping[str, _DatabaseState] = {one.name: _DatabaseState(one) for one in databases}
        self._closed = False

    async def start(self) -> None:
        return

    async def close(self) -> None:
        self._closed = True
        for state in self._states.values():
            state.changed.set()

    def fills(self) -> dict[str, Fill]:
        return {}

    async def append(
        self, shard: Shard, entries: Sequence[Entry], epoch: int | None = None, batch: BatchId | CallId | None = None
    ) -> Position:
        database, state = self._of(shard)
        known = state.calls.position_of(batch) if isinstance(batch, CallId) else state.batches.position_of(batch)
        if known is not None:
            return known
        if epoch is not None and epoch < state.epoch:
            raise FencedError(f"epoch {state.epoch} writes to shard {shard}, and this is {epoch}", state.epoch)
        check_room(shard.database, state.room, entries)
        state.epoch = state.epoch if epoch is None else epoch
        position = self._put(database, state, shard.number, entries)
        if isinstance(batch, CallId):
            state.calls.put(batch, position)
        elif batch is not None:
            state.batches.put(batch, position)
        return position

    async def claim(self, database: str, call: CallId) -> None:
        self._database(database).claimed.claim(call, wall_us(self._clock))

    async def commit(self, transaction: Transaction) -> Position:
        database, state = self._of(transaction.shard)
        check_room(transaction.shard.database, state.room, transaction.entries)
        for condition in transaction.conditions:
            found = state.values.get(condition.topic)
            position = None if found is None else found.position
            if position != condition.position:
                raise ValueChangedError(condition.topic, condition.position, position)
        given = {one.topic: one for one in transaction.entries}
        state.held.check({topic: _size(database, one) for topic, one in given.items() if one.value})
        return self._put(database, state, transaction.shard.number, transaction.entries)

    async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        database, state = self._of(shard)
        if reading.generation is not None:
            reading = database.within(shard.number, reading)
        elif reading.after < min(state.cold, reading.until):
            raise ArchivedError(state.cold)
        events = state.events
        start = bisect_right(events, reading.after, key=_position)
        end = bisect_right(events, reading.until, lo=start, key=_position)
        found: list[Event] = []
        fits, size = reading.matcher(), 0
        for index in range(start, min(end, start + MOST_SCANNED)):
            if fits(events[index].entry.topic):
                found.append(events[index])
                size += len(events[index].entry.value)
                if len(found) == limit or size >= MOST_READ_BYTES:
                    return Slice(found, events[index].position, more=index + 1 < end)
        if end > start + MOST_SCANNED:
            return Slice(found, events[start + MOST_SCANNED - 1].position, more=True)
        return Slice(found, max(reading.after, min(reading.until, state.head)), more=False)

    async def pick(self, shard: Shard, positions: Sequence[Position]) -> Picked:
        state = self._of(shard)[1]
        places = ((one, bisect_left(state.events, one, key=_position)) for one in positions)
        there = ((one, state.events[place]) for one, place in places if place < len(state.events))
        return Picked({one: event for one, event in there if event.position == one}, archived=state.cold)

    async def wait(self, database: str, after: Sequence[Position]) -> Sequence[Position]:
        state = self._database(database)
        while all(one.head <= position for one, position in zip(state.shards, after, strict=True)):
            await state.changed.wait()
            if self._closed:
                raise StoreUnavailableError("the event log is closed")
        return [one.head for one in state.shards]

    async def value(self, shard: Shard, topic: str) -> Event | None:
        return self._of(shard)[1].values.get(topic)

    async def values(self, shard: Shard, topic_filter: str, after: str, limit: int) -> Sequence[Event]:
        _, state = self._of(shard)
        start = bisect_right(state.topics, after.encode(), key=str.encode)
        fitting = (topic for topic in state.topics[start:] if matches(topic_filter, topic))
        return [state.values[topic] for topic, _ in zip(fitting, range(limit), strict=False)]

    async def structures(self, database: str) -> Sequence[str]:
        return sorted(self._database(database).structures)

    async def generations(self, database: str) -> Sequence[Generation]:
        return tuple(self._database(database).generations)

    async def rotate(self, database: str, expected: int) -> None:
        generations = self._database(database).generations
        if generations[-1].number == expected:
            generations[-1] = replace(generations[-1], state=GenerationState.SEALED)
            generations.append(Generation(expected + 1, GenerationState.CURRENT))
            self._database(database).begins[expected + 1] = [one.head for one in self._database(database).shards]

    async def cool(self, database: str, number: int, files: Sequence[ColdFile]) -> None:
        state = self._database(database)
        for place, one in enumerate(state.generations):
            if one.number == number and one.state in (GenerationState.SEALED, GenerationState.COLD):
                state.generations[place] = replace(one, state=GenerationState.COLD, files=tuple(files))
                state.forget(number)
                for shard in state.shards:
                    ends = [file.last for file in files if state.shards[file.shard] is shard]
                    shard.cold = max(shard.cold, *ends, 0)

    async def allow(self, database: str, room: int | None) -> None:
        for one in self._database(database).shards:
            one.room = room

    async def drop(self, database: str, number: int) -> None:
        state = self._database(database)
        for one in state.generations[:-1]:
            if one.number == number:
                state.forget(number)
                state.generations.remove(one)

    def _put(self, database: _DatabaseState, state: _ShardState, number: int, entries: Sequence[Entry]) -> Position:
        if state.room is not None:
            state.room -= sum(map(size_of, entries))
        position = max(state.head, wall_us(self._clock) - 1)
        first = position + 1
        latest: dict[str, Event] = {}
        for entry in entries:
            position += 1
            event = Event(position, number, entry)
            state.events.append(event)
            database.structures.of(entry.topic)
            latest[entry.topic] = event
        for event in latest.values():
            self._remember(database, state, event)
        state.head = position
        current = database.generations[-1]
        database.generations[-1] = replace(
            current,
            first=min(current.first or first, first),
            last=max(current.last, position),
            count=current.count + len(entries),
            size=current.size + sum(map(size_of, entries)),
        )
        database.changed.set()
        database.changed = asyncio.Event()
        return position

    def _remember(self, database: _DatabaseState, state: _ShardState, event: Event) -> None:
        topic, size = event.entry.topic, _size(database, event.entry)
        bound = state.held.bound(topic, size) if event.entry.value else None
        if bound is not None:
            self._drops.drop(bound, topic=topic)
        if event.entry.value and bound is None:
            if topic not in state.values:
                insort(state.topics, topic, key=str.encode)
            state.values[topic] = event
            state.held.put(size)
        elif state.values.pop(topic, None) is not None:
            state.topics.remove(topic)
            state.held.forget(topic)

    def _of(self, shard: Shard) -> tuple[_DatabaseState, _ShardState]:
        database = self._database(shard.database)
        return database, database.shards[shard.number]

    def _database(self, name: str) -> _DatabaseState:
        state = self._states.get(name)
        if state is None:
            raise DatabaseNotFoundError(f"there is no database {name[:64]!a}; there are {', '.join(self._states)}")
        return state


def _size(database: _DatabaseState, entry: Entry) -> Size:
    return Size(entry.topic, value_size(entry), database.about.tenants.of(entry.device))


def _position(event: Event) -> Position:
    return event.position
