"""Engines of the event log behind one face, so that no test asks which one it has."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Protocol

from redis.asyncio import Redis

from app.core.events.event import Database
from app.runtime.system import SystemClock, new_secret
from app.runtime.telemetry import BurstLog
from app.store.events import EventStore
from app.store.memory.events import MemoryEventLog
from app.store.redis.events.log import RedisEventLog
from app.store.rocks.events import RocksEventLog
from app.store.rocks.folder import RocksFolder
from tests.sharded import Sharded

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


class RedisEvents:
    """A Redis. `open` is the same log again, from another node; `fresh` is it when it was emptied."""

    def __init__(self, url: str, node_url: str) -> None:
        self._url = url
        self._node_url = node_url
        self._opened: list[EventStore] = []

    def make(
        self, databases: Sequence[Database] = DATABASES, budget: timedelta = timedelta(seconds=30)
    ) -> RedisEventLog:
        """One that is not started."""
        counters: Counter[str] = Counter()
        drops = BurstLog(counters, SystemClock())
        return RedisEventLog(
            self._node_url, databases, counters=counters, drops=drops, new_secret=new_secret, budget=budget
        )

    async def open(self, databases: Sequence[Database] = DATABASES) -> EventStore:
        log = self.make(databases)
        await log.start()
        self._opened.append(log)
        return log

    async def fresh(self, databases: Sequence[Database]) -> EventStore:
        async with Redis.from_url(self._url) as client:
            await client.flushall()
        return await self.open(databases)

    async def close(self) -> None:
        for log in self._opened:
            await log.close()


class ShardedEvents(RedisEvents):
    """A Redis Cluster."""

    def __init__(self, cluster: Sharded) -> None:
        super().__init__(cluster.admin_url, cluster.url)
        self._cluster = cluster

    async def fresh(self, databases: Sequence[Database]) -> EventStore:
        await asyncio.to_thread(self._cluster.empty)
        return await self.open(databases)


class RocksEvents:
    """A folder. `open` is the same log again, `fresh` another one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: list[EventStore] = []
        self._numbers = count(1)

    async def open(self, databases: Sequence[Database] = DATABASES) -> EventStore:
        return await self._open(self.folder / "log", databases)

    async def fresh(self, databases: Sequence[Database]) -> EventStore:
        return await self._open(self.folder / str(next(self._numbers)), databases)

    async def close(self) -> None:
        for log in self._opened:
            await log.close()

    async def _open(self, folder: Path, databases: Sequence[Database]) -> EventStore:
        log = RocksEventLog(RocksFolder(folder), databases, SystemClock())
        await log.start()
        self._opened.append(log)
        return log
