"""The event log with a cold tier: readers see one order, wherever its parts lie. The catalogue of the log decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import structlog

from app.core.errors import DamagedEventsError
from app.core.events.batches import BatchId, CallId
from app.core.events.event import BEGINNING, Database, Entry, Event, Position, Shard
from app.core.events.generation import ColdFile, Generation, GenerationState
from app.core.events.reading import MOST_READ_BYTES, Picked, Reading, Slice, forgotten_until
from app.core.events.transaction import Transaction
from app.runtime.telemetry import Counters, Fill
from app.store.archive import Archive
from app.store.events import ArchivedError, EventStore

MOST_PIECES: Final = 4
"""Times that one reading goes on with the next part of the log."""
MOST_FILES: Final = 16
"""Files that one of them looks at, where what is read is not in them: both bound how long it takes."""

_log = structlog.get_logger(__name__)


class TieredEventLog:
    """All is as in the log itself, but for what it says is cold."""

    def __init__(self, hot: EventStore, archive: Archive, counters: Counters) -> None:
        self.databases: Sequence[Database] = hot.databases
        self.cursors: Final = hot.cursors
        self._hot = hot
        self._archive = archive
        self._counters = counters

    async def start(self) -> None:
        """See EventLog."""
        await self._hot.start()
        await self._archive.start()

    async def close(self) -> None:
        """See EventLog."""
        await self._archive.close()
        await self._hot.close()

    def fills(self) -> dict[str, Fill]:
        """See EventLog."""
        return {**self._hot.fills(), **self._archive.fills()}

    async def append(
        self, shard: Shard, entries: Sequence[Entry], epoch: int | None = None, batch: BatchId | CallId | None = None
    ) -> Position:
        """See EventLog."""
        return await self._hot.append(shard, entries, epoch, batch)

    async def claim(self, database: str, call: CallId) -> None:
        """See EventLog."""
        await self._hot.claim(database, call)

    async def commit(self, transaction: Transaction) -> Position:
        """See EventLog."""
        return await self._hot.commit(transaction)

    async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        """See EventLog. What is in a damaged file is left out, as what is in a damaged generation is."""
        found: list[Event] = []
        after, more, lost, size = reading.after, True, BEGINNING, 0
        for _ in range(MOST_PIECES):
            part = await self._part(shard, replace(reading, after=after), limit - len(found))
            found += part.events
            after, more, lost = part.position, part.more, max(lost, part.lost)
            size += sum([len(event.entry.value) for event in part.events])
            if not more or len(found) == limit or size >= MOST_READ_BYTES:
                break
        return Slice(found, after, more, lost)

    async def pick(self, shard: Shard, positions: Sequence[Position]) -> Picked:
        """See Pickable."""
        found, damaged, archived, beside = await self._hot.pick(shard, positions)
        left = [one for one in positions if one <= archived and one not in found and one not in damaged]
        if not left:
            return Picked(found, damaged, beside=beside)
        cold, gone = dict(found), set(damaged)
        for one in await self._hot.generations(shard.database):
            for file in one.files:
                there = [each for each in left if file.shard == shard.number and file.first <= each <= file.last]
                if not there:
                    continue
                events = await self._at(shard, one, file, there)
                if events is None:
                    gone.update(there)
                else:
                    cold.update((event.position, event) for event in events)
        return Picked(cold, gone, beside=beside)

    async def wait(self, database: str, after: Sequence[Position]) -> Sequence[Position]:
        """See EventLog."""
        return await self._hot.wait(database, after)

    async def value(self, shard: Shard, topic: str) -> Event | None:
        """See EventLog. Last values are never cold."""
        return await self._hot.value(shard, topic)

    async def values(self, shard: Shard, topic_filter: str, after: str, limit: int) -> Sequence[Event]:
        """See EventLog."""
        return await self._hot.values(shard, topic_filter, after, limit)

    async def structures(self, database: str) -> Sequence[str]:
        """See EventLog."""
        return await self._hot.structures(database)

    async def generations(self, database: str) -> Sequence[Generation]:
        """See Generations."""
        return await self._hot.generations(database)

    async def rotate(self, database: str, expected: int) -> None:
        """See Generations."""
        await self._hot.rotate(database, expected)

    async def cool(self, database: str, number: int, files: Sequence[ColdFile]) -> None:
        """See Generations."""
        await self._hot.cool(database, number, files)

    async def allow(self, database: str, room: int | None) -> None:
        """See Generations."""
        await self._hot.allow(database, room)

    async def drop(self, database: str, number: int) -> None:
        """See Generations. Its files go when the cold tier is swept."""
        await self._hot.drop(database, number)

    async def _part(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        """Read one piece of the log."""
        try:
            return await self._hot.read(shard, reading, limit)
        except ArchivedError as error:
            part = await self._cold(shard, reading, limit, min(error.until, reading.until))
            forgotten = forgotten_until(error.forgotten, reading.after, part.position)
            return part._replace(lost=max(part.lost, forgotten))

    async def _cold(self, shard: Shard, reading: Reading, limit: int, border: Position) -> Slice:
        looked, lost = 0, BEGINNING
        for one in await self._hot.generations(shard.database):
            if one.state is GenerationState.CURRENT or one.last <= reading.after:
                continue
            if one.state is GenerationState.SEALED and not any(file.shard == shard.number for file in one.files):
                part = await self._left_hot(shard, one, replace(reading, until=border), limit)
                lost = max(lost, part.lost)
                if part.events or part.more:
                    return Slice(part.events, part.position if part.more else part.events[-1].position, True, lost)
            for file in _own(one, shard, reading, border):
                until = min(border, file.last)
                part = await self._of_file(shard, one, file, replace(reading, until=until), limit)
                looked, lost = looked + 1, max(lost, part.lost)
                if part.more:
                    return part._replace(lost=lost)
                if part.events or looked == MOST_FILES:
                    return Slice(part.events, until, until < reading.until, lost)
        return Slice([], border, border < reading.until, lost)

    async def _left_hot(self, shard: Shard, one: Generation, reading: Reading, limit: int) -> Slice:
        """Read a generation that could not become cold, while later ones are."""
        try:
            return await self._hot.read(shard, replace(reading, generation=one.number), limit)
        except ArchivedError:  # meanwhile it is, or it was dropped
            return Slice([], reading.after, more=True)

    async def _of_file(self, shard: Shard, one: Generation, file: ColdFile, reading: Reading, limit: int) -> Slice:
        if file.note:
            return Slice([], reading.until, more=False, lost=file.last)
        try:
            return await self._archive.read(shard.database, one.number, file, reading, limit)
        except DamagedEventsError as error:
            known = await self._quarantine(shard.database, one.number, file, str(error))
            return Slice([], reading.until, more=False, lost=file.last if known else BEGINNING)

    async def _at(
        self, shard: Shard, one: Generation, file: ColdFile, positions: Sequence[Position]
    ) -> Sequence[Event] | None:
        """The events of a file at these positions; None where it is damaged."""
        if file.note:
            return None
        try:
            return await self._archive.pick(shard.database, one.number, file, positions)
        except DamagedEventsError as error:
            return None if await self._quarantine(shard.database, one.number, file, str(error)) else ()

    async def _quarantine(self, database: str, number: int, file: ColdFile, reason: str) -> bool:
        """Leave a file out from now on, if the catalogue has it still: it may have been dropped meanwhile."""
        for one in await self._hot.generations(database):
            if one.number == number and file in one.files:
                marked = [each._replace(note=reason[:300]) if each == file else each for each in one.files]
                await self._hot.cool(database, number, marked)
                self._counters["events.damaged_files"] += 1
                _log.error("events_damaged", database=database, generation=number, reason=reason)
                return True
        return False


def _own(one: Generation, shard: Shard, reading: Reading, border: Position) -> Iterator[ColdFile]:
    """The files of a shard that have something of what is read, in the order of their events."""
    own = (file for file in one.files if file.shard == shard.number)
    return iter(sorted(file for file in own if file.last > reading.after and file.first <= border))
