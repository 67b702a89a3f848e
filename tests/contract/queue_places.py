"""Engines of queues behind one face, each with a clock that the test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from redis.asyncio import Redis

from app.core.events.event import Position
from app.runtime.system import SystemClock
from app.store.declared import Declared
from app.store.memory.queues import MemoryDeclared, MemoryQueues
from app.store.queues import QueueStore
from app.store.redis import queues as redis_queues
from app.store.redis.driver import scripts
from app.store.redis.driver.lane import Script
from app.store.redis.queues import RedisQueues
from app.store.rocks.folder import RocksFolder
from app.store.rocks.queues import RocksQueues
from tests.services import RedisProcess

BEGIN: Final = 1_700_000_000_000_000
CLOCK: Final = "test:clock"


def lives() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"{next(numbers):08x}"


class QueueClock:
    """The time for all engines, in µs. `ahead`: somebody has set the clock on the wall so far ahead, or back."""

    def __init__(self) -> None:
        self.micros: Position = BEGIN
        self.ahead = 0

    def wall(self) -> float:
        return (self.micros + self.ahead) / 1_000_000

    def monotonic(self) -> float:
        return self.micros / 1_000_000


class SetRedisQueues(RedisQueues):
    """Its scripts ask a key for the time."""

    def __init__(self, url: str, clock: QueueClock, admin: str) -> None:
        super().__init__(url, clock=SystemClock(), counters=Counter(), new_life=lives())
        self._clock = clock
        self._admin = Redis.from_url(admin)

    async def now(self) -> Position:
        return self._clock.micros

    async def set(self) -> None:
        await self._admin.hset(
            CLOCK, mapping={"s": self._clock.micros // 1_000_000, "us": self._clock.micros % 1_000_000}
        )

    async def empty(self) -> None:
        await self._admin.flushall()
        await self.set()

    async def close(self) -> None:
        await super().close()
        await self._admin.aclose()


def with_set_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scripts of queues ask CLOCK for the time."""
    changed = []
    every = ("FEED", "TAKE", "SETTLE", "DISMISS", "SEEK", "DYING", "DECLARE", "DECLARED")
    for name in (f"QUEUE_{one}" for one in every):
        script = Script.of(
            getattr(scripts, name).text.replace("redis.call('TIME')", f"redis.call('HMGET', '{CLOCK}', 's', 'us')")
        )
        changed.append(script)
        monkeypatch.setattr(redis_queues, name, script)
    monkeypatch.setattr(redis_queues, "QUEUE_SCRIPTS", tuple(changed))


class QueuePlace:
    """An engine: its windows, what is declared, and the clock."""

    def __init__(self, name: str, request: pytest.FixtureRequest) -> None:
        self.name = name
        self._lives = lives()
        self._folder = 0
        self._path: Path = request.getfixturevalue("tmp_path")
        self.clock = QueueClock()
        self.store: QueueStore
        self.declared: Declared
        if name == "redis":
            server: RedisProcess = request.getfixturevalue("redis_server")
            self._redis = SetRedisQueues(server.url, self.clock, server.url)
            self.store = self.declared = self._redis
        elif name == "rocks":
            self.store = self.declared = self._rocks()
        else:
            self.store = MemoryQueues(self.clock, self._lives)
            self.declared = MemoryDeclared()

    async def start(self) -> None:
        if self.name == "redis":
            await self._redis.empty()
        await self.store.start()

    async def empty(self) -> None:
        if self.name == "redis":
            await self._redis.empty()
        elif self.name == "rocks":
            await self.store.close()
            self._folder += 1
            self.store = self.declared = self._rocks()
            await self.store.start()
        else:
            self.store, self.declared = MemoryQueues(self.clock, self._lives), MemoryDeclared()

    async def restart(self) -> None:
        """End the process that has the folder, and begin another one."""
        if self.name == "rocks":
            await self.store.close()
            self.store = self.declared = self._rocks()
            await self.store.start()

    def _rocks(self) -> RocksQueues:
        return RocksQueues(RocksFolder(self._path / f"queues-{self._folder}"), self.clock, self._lives)

    async def pass_time(self, micros: int) -> None:
        self.clock.micros += micros
        if self.name == "redis":
            await self._redis.set()
