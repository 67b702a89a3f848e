"""Reads a database in pages: all its shards as one order, from an instant or a cursor on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.core.errors import DatabaseNotFoundError, InvalidInputError
from app.core.eventlog.event import BEGINNING, END, Database, Event, Position, Shard
from app.core.eventlog.generation import GenerationState
from app.core.eventlog.plan import Plan
from app.core.eventlog.reading import Cursor, Reading, merged, parse_cursor
from app.store.eventlog import EventStore

MAX_PAGE: Final = 1000
"""Events of one page."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events by position, and where to read on. `more` when there may be some right now.

    Up to `lost` something was left out that cannot be read any more; 0: nothing was.
    """

    events: Sequence[Event]
    cursor: Cursor
    more: bool
    lost: Position = BEGINNING


class EventsReader:
    """Every call raises DatabaseNotFoundError where there is no such database, and StoreUnavailableError."""

    def __init__(self, store: EventStore, plan: Plan) -> None:
        self._store = store
        self._plan = plan

    def database(self, name: str) -> Database:
        """The database of this name."""
        found = self._plan.database(name)
        if found is None:
            names = ", ".join(one.name for one in self._plan.databases)
            raise DatabaseNotFoundError(f"there is no database {name[:64]!a}; there are {names}")
        return found

    def start(self, database: str, cursor: str | None, since: Position | None) -> Cursor:
        """Where to begin: at a cursor, at an instant, or at the beginning. InvalidInputError."""
        shards = self.database(database).shards
        if cursor is not None:
            if since is not None:
                raise InvalidInputError("from", "and cursor contradict each other; one is allowed")
            return parse_cursor(cursor, shards)
        return Cursor((max(BEGINNING, (since or BEGINNING + 1) - 1),) * shards)

    async def page(
        self, database: str, topic_filter: str, cursor: Cursor, limit: int, until: Position = END
    ) -> EventPage:
        """At most `limit` events behind the cursor, and not behind `until`."""
        shards = self.database(database).all_shards()
        slices = await asyncio.gather(
            *(
                self._store.read(shard, Reading(topic_filter, after, max(after, until)), limit)
                for shard, after in zip(shards, cursor.positions, strict=True)
            )
        )
        events, places, more = merged(dict(enumerate(slices)), limit)
        lost = max(one.lost for one in slices)
        return EventPage(events, Cursor(tuple(places[number] for number in range(len(shards)))), more, lost)

    async def heads(self, database: str) -> Cursor:
        """Where the database ends now."""
        cold: Counter[int] = Counter()
        for one in await self._store.generations(database):
            for file in one.files:
                cold[file.shard] = max(cold[file.shard], file.last)  # nobody has to look for the end before that
        shards = self.database(database).all_shards()
        ends = await asyncio.gather(*(self._end(shard, cold[shard.number]) for shard in shards))
        return Cursor(tuple(ends))

    async def gap(self, database: str, cursor: Cursor) -> Position | None:
        """Until when events behind the cursor may be gone, or cannot be read any more; None when all are there."""
        generations = await self._store.generations(database)
        read = max(cursor.positions)  # shards are read together: what is before this position was read in all of them
        gone = [one.last for one in generations if one.state is GenerationState.DAMAGED and one.last > read]
        known = 0
        for one in generations:
            if one.number > known + 1 and one.first > read + 1:
                gone.append(one.first - 1)
            known = one.number
        return max(gone, default=None)

    async def _end(self, shard: Shard, at: Position) -> Position:
        reading = Reading(NOTHING, after=at)
        while True:
            part = await self._store.read(shard, reading, 1)
            at = part.position
            if not part.more:
                return at
            reading = Reading(NOTHING, after=at)


NOTHING: Final = "$homing/nothing"
"""A topic that nobody has: reading it tells where a shard ends."""
