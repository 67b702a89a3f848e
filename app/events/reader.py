"""Reads databases in pages: all their shards as one order, from an instant or a cursor on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from app.core.errors import DatabaseNotFoundError, EventNotFoundError, InvalidInputError
from app.core.events.cursors import Scope, parsed, room, written
from app.core.events.event import BEGINNING, END, Database, Event, Position, Shard
from app.core.events.generation import Generation, GenerationState
from app.core.events.plan import NamedDatabase, Plan
from app.core.events.reading import Cursor, Reading
from app.events.merge import May, Merge, MergedPage
from app.store.events import EventStore

MAX_PAGE: Final = 1000
"""Events of one page."""


Databases = str | tuple[str, ...]
"""The name of one, or several that are read as one."""


class EventsReader:
    """Every call raises DatabaseNotFoundError where there is no such database, and StoreUnavailableError.

    `check` raises while the log is not open.
    """

    def __init__(self, store: EventStore, plan: Plan, check: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._check = check
        self._plan = plan
        self._by_name = {one.name: one for one in plan.databases}

    def database(self, name: str) -> Database:
        """The database of this name."""
        found = self._plan.database(name)
        if found is None:
            names = ", ".join(one.name for one in self._plan.databases)
            raise DatabaseNotFoundError(f"there is no database {name[:64]!a}; there are {names}")
        return found

    def scope(self, database: str | None, topic_filter: str) -> Scope:
        """The scope that the filter reads: the database that is named, else all."""
        self._check()
        if database is not None:
            return Scope((self.database(database).name,), topic_filter, every=False)
        return Scope(tuple(self._by_name), topic_filter, every=True)

    def start(self, scope: Scope, cursor: str | None, since: Position | None) -> tuple[Scope, Cursor]:
        """The scope to read, and where to begin: at a cursor, at an instant, or at the beginning. InvalidInputError."""
        if cursor is not None:
            if since is not None:
                raise InvalidInputError("from", "and cursor contradict each other; one is allowed")
            return parsed(cursor, scope, self._by_name)
        begin = max(BEGINNING, (since or BEGINNING + 1) - 1)
        return scope, Cursor((begin,) * len(self.shards(scope.databases)))

    def text(self, cursor: Cursor, scope: Scope) -> str:
        """The cursor, to be given out."""
        return written(cursor, scope, self._by_name)

    @property
    def room(self) -> int:
        """Bytes of the longest cursor."""
        return room(self._plan.databases)

    def shards(self, databases: Databases) -> tuple[Shard, ...]:
        """The shards of these databases, in the order in which cursors and events count them."""
        names = (databases,) if isinstance(databases, str) else databases
        return tuple(shard for name in names for shard in self.database(name).all_shards())

    async def page(
        self,
        databases: Databases,
        topic_filter: str,
        cursor: Cursor,
        limit: int,
        until: Position = END,
        may: May | None = None,
    ) -> MergedPage:
        """At most `limit` events behind the cursor, and not behind `until`: of those that the reader `may` know of."""
        self._check()
        return await Merge(self.shards(databases), cursor, limit, may).page(self._store, topic_filter, until)

    async def event(self, shard: Shard, position: Position) -> Event:
        """The event at a position. EventNotFoundError says whether it cannot be read any more, or not by this node."""
        self._check()
        if shard not in self.shards(shard.database):
            raise EventNotFoundError(f"database {shard.database!a} has no shard {shard.number}")
        picked = await self._store.pick(shard, [position])
        if position in picked.damaged:
            raise EventNotFoundError(f"what was at position {position} of shard {shard} cannot be read any more")
        if position not in picked.events:
            if position <= picked.archived:
                raise EventNotFoundError(
                    f"events of shard {shard} up to position {picked.archived} are in the cold tier or were dropped; "
                    "this node has no cold tier (HOMING_EVENTS_COLD)"
                )
            raise EventNotFoundError(f"shard {shard} has no event at position {position}")
        return picked.events[position]

    async def heads(self, databases: Databases) -> Cursor:
        """Return a cursor at the present ends of these databases."""
        self._check()
        shards = self.shards(databases)
        cold: Counter[Shard] = Counter()
        for name in dict.fromkeys(one.database for one in shards):
            for generation in await self._store.generations(name):
                for file in generation.files:
                    shard = Shard(name, file.shard)
                    cold[shard] = max(cold[shard], file.last)  # nobody has to look for the end before that
        ends = await asyncio.gather(*(self._end(shard, cold[shard]) for shard in shards))
        return Cursor(tuple(ends))

    async def gap(self, databases: Databases, cursor: Cursor) -> Position | None:
        """The instant until which events behind the cursor may be gone or unreadable; None when all are there."""
        self._check()
        read: dict[str, Position] = {}  # shards are read together: what is before this was read in all of a database
        for shard, position in zip(self.shards(databases), cursor.positions, strict=True):
            read[shard.database] = max(position, read.get(shard.database, BEGINNING))
        gaps = [await self._gap(name, position) for name, position in read.items()]
        return max((one for one in gaps if one is not None), default=None)

    async def structures(self, database: str | None) -> list[tuple[str, str]]:
        """The structures of topics, each with the name of its database."""
        names = self.scope(database, "#").databases
        return [(name, structure) for name in names for structure in await self._store.structures(name)]

    async def generations(self) -> list[tuple[NamedDatabase, Sequence[Generation]]]:
        """All databases with their generations."""
        self._check()
        return [(kept, await self._store.generations(kept.name)) for kept in self._plan.kept]

    async def _gap(self, database: str, read: Position) -> Position | None:
        generations = await self._store.generations(database)
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
