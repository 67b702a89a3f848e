"""Looks after which devices are there: the holder of the intake does, and tells each change as an event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from app.core.clock import Clock, wall_us
from app.core.errors import EventLogError, UnavailableError
from app.core.events.event import Database, Entry, Shard
from app.core.events.plan import Plan
from app.core.events.presence import FILTER, Change, Presences, change_of, entry_of
from app.core.profiles.device_events import PresenceSign
from app.runtime.telemetry import Counters
from app.store.events import EventLog

ROUND_SECONDS: Final = 1.0
PAGE: Final = 1000


class PresenceKeeper:
    """The keeper of presences. It reads those on record when the intake begins: another node may have had it."""

    def __init__(self, log: EventLog, plan: Plan, clock: Clock, counters: Counters) -> None:
        self._log = log
        self._database: Database = plan.databases[0]
        self._clock = clock
        self._counters = counters
        self._presences = Presences()
        self._heard = False

    async def begin(self) -> None:
        """Read what is on record, however long that takes."""
        while True:
            try:
                await self._load()
            except (UnavailableError, EventLogError):
                await asyncio.sleep(ROUND_SECONDS)
            else:
                return

    def heard(self, one: PresenceSign, at: float) -> tuple[Shard, Entry] | None:
        """Return the entry to append as a device has given a sign; None when that is no change."""
        change = self._presences.heard(one.device_id, at, one.offline_after, online=one.online)
        return None if change is None else self._told(change)

    def untold(self, entry: Entry) -> None:
        """There was no room for this entry; nothing happens where it tells no change."""
        found = change_of(entry)
        if found is not None:
            self._presences.undo(found[0].device_id, online=found[0].online)

    async def run(self, hears: Callable[[], bool], put: Callable[[Shard, Entry], None]) -> None:
        """Tell which devices fall silent, until cancelled."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            self.look(put, hears=hears())

    def look(self, put: Callable[[Shard, Entry], None], *, hears: bool) -> None:
        """One round. While nothing can be heard, and before, silence says nothing."""
        now, heard_before, self._heard = self._clock.monotonic(), self._heard, hears
        if not heard_before:
            self._presences.again(now)
        elif hears:
            for change in self._presences.silent(now):
                put(*self._told(change))

    def _told(self, change: Change) -> tuple[Shard, Entry]:
        self._counters[f"presence.{'online' if change.online else 'offline'}"] += 1
        entry = entry_of(change, wall_us(self._clock))
        return self._database.shard(change.device_id), entry

    async def _load(self) -> None:
        presences, now = Presences(), self._clock.monotonic()
        for shard in self._database.all_shards():
            after: str | None = ""
            while after is not None:
                page = await self._log.values(shard, FILTER, after, PAGE)
                for found in filter(None, (change_of(event.entry) for event in page)):
                    presences.load(found[0], now)
                after = page[-1].entry.topic if len(page) == PAGE else None
        self._presences, self._heard = presences, False
