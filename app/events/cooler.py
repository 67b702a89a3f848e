"""Brings sealed generations into the cold tier: one node at a time, under a role of its own.

Files are written and read again before the catalogue names them, and the log forgets its events with that very step. A
node that dies in between leaves files that nobody names; the next one writes them again, under the same names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Final

import structlog

from app.core.clock import Clock, wall_us
from app.core.errors import HomingError
from app.core.events.event import Database, Event, Shard
from app.core.events.generation import Generation, GenerationState
from app.core.events.plan import NamedDatabase
from app.core.events.reading import EVERYTHING, Reading
from app.runtime.tasks import end
from app.runtime.telemetry import Counters
from app.store.archive import Archive
from app.store.events import ArchivedError, EventStore
from app.store.roles import RoleLease

ROUND_SECONDS: Final = 2.0
SWEEP_SECONDS: Final = 600.0
STEP: Final = 2_048
"""Events that are read at once."""

_log = structlog.get_logger(__name__)


class Cooler:
    """`hot` is how long events stay in the log itself, but when they take half of the quota."""

    def __init__(
        self,
        store: EventStore,
        archive: Archive,
        kept: Sequence[NamedDatabase],
        role: RoleLease,
        *,
        hot: timedelta,
        quota_bytes: int,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._store = store
        self._archive = archive
        self._kept = kept
        self._databases = {one.name: one for one in store.databases}
        self._role = role
        self._hot_us = hot // timedelta(microseconds=1)
        self._quota_bytes = quota_bytes
        self._clock = clock
        self._counters = counters
        self._stuck: set[tuple[str, int]] = set()
        self._swept = float("-inf")
        self._waits = False

    async def run(self) -> None:
        """Do it while the role is held, until cancelled."""
        while True:
            await self._role.hold()
            self._stuck.clear()
            working = asyncio.create_task(self._work(), name="cold tier")
            lost = asyncio.ensure_future(self._role.lost())
            try:
                await asyncio.wait([working, lost], return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    working.result()
            finally:
                await end([working, lost])
            await self._role.release()

    async def close(self) -> None:
        """Let another node do it."""
        await self._role.close()

    async def look(self) -> None:
        """One round: everything that is due."""
        now = wall_us(self._clock)
        found = [(one, await self._store.generations(one.name)) for one in self._kept]
        left = sum(one.hot_size for _, there in found for one in there)
        for kept, there in found:
            database = self._databases[kept.name]
            for one in there:
                if one.state is not GenerationState.SEALED or (kept.name, one.number) in self._stuck:
                    continue
                if one.last + self._hot_us < now or left > self._quota_bytes // 2:
                    await self._cool(database, one)
                    left -= one.size
        if self._clock.monotonic() - self._swept >= SWEEP_SECONDS:
            for kept, there in found:
                await self._sweep(kept, there, now)
            self._swept = self._clock.monotonic()

    async def _work(self) -> None:
        while True:
            try:
                await self.look()
                self._waits = False
            except HomingError as error:
                self._counters["events.cold_retried"] += 1
                if not self._waits:
                    _log.warning("events_cold_wait", reason=str(error))
                self._waits = True
            await asyncio.sleep(ROUND_SECONDS)

    async def _cool(self, database: Database, one: Generation) -> None:
        files = list(one.files)
        done = {file.shard for file in files}
        try:
            for shard in database.all_shards():
                if shard.number not in done:
                    files += await self._archive.put(shard, one.number, self._events(shard, one.number))
        except ArchivedError:
            return  # somebody else has done it, or it was dropped
        readable = sum(file.events for file in files)
        if readable != one.count:
            await self._leave(database.name, one, readable)
            return
        await self._store.cool(database.name, one.number, files)
        self._counters["events.cooled"] += one.count
        self._counters["events.cold_files"] += len(files)
        self._counters["events.cold_bytes"] += sum(file.size for file in files)
        _log.info("events_cooled", database=database.name, generation=one.number, events=one.count, files=len(files))

    async def _events(self, shard: Shard, number: int) -> AsyncIterator[Sequence[Event]]:
        """All that a generation has of a shard."""
        reading = Reading(EVERYTHING, generation=number)
        while True:
            part = await self._store.read(shard, reading, STEP)
            yield part.events
            if not part.more:
                return
            reading = Reading(EVERYTHING, part.position, generation=number)

    async def _leave(self, database: str, one: Generation, readable: int) -> None:
        """Something of it cannot be read: it stays where it is, until its retention is over."""
        there = await self._store.generations(database)
        if not any(other.number == one.number and other.state is GenerationState.SEALED for other in there):
            return
        self._stuck.add((database, one.number))
        self._counters["events.cold_stuck"] += 1
        reason = f"it has {one.count} events, and {readable} can be read"
        _log.error("events_cold_stuck", database=database, generation=one.number, reason=reason)

    async def _sweep(self, kept: NamedDatabase, there: Sequence[Generation], now: int) -> None:
        named = [(one.number, file) for one in there for file in one.files]
        gone = await self._archive.sweep(kept.name, now - kept.retention_us, named)
        if gone:
            self._counters["events.cold_removed"] += gone
            _log.info("events_cold_swept", database=kept.name, files=gone)
