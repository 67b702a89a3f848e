"""Engines of the event log behind one face, so that no test asks which one it has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from app.core.eventlog.event import Database
from app.store.eventlog import EventStore
from app.store.memory.eventlog import MemoryEventLog
from app.system import SystemClock

DATABASES = (Database("events", 4, ("thing/product/+/osd",)), Database("telemetry", 1))


class EventPlace(Protocol):
    """A place where events are kept."""

    async def open(self, databases: Sequence[Database] = DATABASES) -> EventStore:
        """The log, started; closed with the place."""

    async def fresh(self, databases: Sequence[Database]) -> EventStore:
        """An empty one, started."""

    async def close(self) -> None: ...


class MemoryEvents:
    def __init__(self, _folder: Path) -> None:
        self._opened: list[EventStore] = []

    async def open(self, databases: Sequence[Database] = DATABASES) -> EventStore:
        log = MemoryEventLog(databases, SystemClock())
        await log.start()
        self._opened.append(log)
        return log

    async def fresh(self, databases: Sequence[Database]) -> EventStore:
        return await self.open(databases)

    async def close(self) -> None:
        for log in self._opened:
            await log.close()
