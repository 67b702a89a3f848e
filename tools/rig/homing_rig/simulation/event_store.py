"""The event log as simulated nodes reach it: one log in memory, and the product's own lease of its intake."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

from app.core.clock import Clock
from app.core.events.batches import BatchId, CallId
from app.core.events.event import Database, Entry, Event, Position, Shard
from app.runtime.telemetry import Fill
from app.store.engine import EventEngine, QueueEngine
from app.store.events import EventStore
from app.store.memory.events import MemoryEventLog
from app.store.memory.queues import MemoryDeclared, MemoryQueues
from app.store.redis.driver.lane import Script
from app.store.redis.driver.role import RedisRole
from app.store.redis.driver.store_calls import StoreCalls
from app.store.roles import OnlyOne
from homing_rig.simulation.redis import RedisModel
from homing_rig.simulation.store import FarPart, StorePlaces, Wire, at_once


class WatchedLog(MemoryEventLog):
    """Notes who appends after somebody with a later epoch, which the fence should have kept out."""

    def __init__(self, databases: Sequence[Database], clock: Clock) -> None:
        super().__init__(databases, clock)
        self.unfenced: Final[list[str]] = []
        self._latest: Final[dict[Shard, int]] = {}

    async def append(
        self, shard: Shard, entries: Sequence[Entry], epoch: int | None = None, batch: BatchId | CallId | None = None
    ) -> Position:
        before = self.head(shard)
        position = await super().append(shard, entries, epoch, batch)
        if epoch is not None and position > before:
            latest = self._latest.setdefault(shard, epoch)
            if epoch < latest:
                self.unfenced.append(f"epoch {epoch} wrote to shard {shard} after epoch {latest}")
            self._latest[shard] = max(epoch, latest)
        return position

    def head(self, shard: Shard) -> Position:
        """The position of the last event of a shard."""
        return self._of(shard)[1].head

    def everything(self, database: str) -> list[tuple[Shard, Sequence[Event]]]:
        """All events of a database, by shard."""
        shards = self._database(database).shards
        return [(Shard(database, number), one.events) for number, one in enumerate(shards)]

    def kept(self) -> object:
        """All that it has, for `restore`."""
        return copy.deepcopy(self._states)

    def restore(self, kept: object) -> list[Event]:
        """Go back to what it had; the events that are forgotten."""
        before = [event for one in self.databases for _, events in self.everything(one.name) for event in events]
        self._states = cast("Any", kept)
        there = {event for one in self.databases for _, events in self.everything(one.name) for event in events}
        return [event for event in before if event not in there]


class EventHost:
    """The process that keeps the event log of a run: that of the store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log: WatchedLog | None = None

    @property
    def log(self) -> WatchedLog:
        """The log, which the first node has opened."""
        if self._log is None:
            raise RuntimeError("no node has opened the event log")
        return self._log

    def open(self, databases: Sequence[Database]) -> WatchedLog:
        """The same log for all nodes, as their settings are the same."""
        if self._log is None:
            self._log = WatchedLog(databases, self._clock)
        return self._log


def open_engine(
    host: EventHost,
    places: StorePlaces,
    keys: RedisModel,
    *,
    holder: str,
    lease: timedelta,
    budget: timedelta,
    clock: Clock,
) -> EventEngine:
    """The event log for one process, which `holder` names and no other one."""
    role = RedisRole(cast("StoreCalls", _RoleCalls(places.role, keys)), "intake", holder, lease=lease, clock=clock)

    def open_log(databases: Sequence[Database]) -> EventStore:
        return cast("EventStore", SimEventStore(host.open(databases), places.events, budget.total_seconds()))

    unused = QueueEngine(MemoryQueues(clock, str), MemoryDeclared())
    return EventEngine(open_log, role, OnlyOne(), unused)


class SimEventStore:
    """An `EventStore` of one node; nobody waits for its heads."""

    def __init__(self, log: WatchedLog, wire: Wire, budget: float) -> None:
        self.databases: Final = log.databases
        self.cursors: Final = FarPart(self._far, log.cursors)
        self._log = log
        self._wire = wire
        self._budget = budget

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return partial(self._far, getattr(self._log, name))

    async def start(self) -> None:
        await self._wire.ask(lambda: None, self._budget)

    async def close(self) -> None:
        self._wire.close()

    def fills(self) -> dict[str, Fill]:
        return {}

    async def _far(self, work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        return await self._wire.ask(lambda: at_once(work(*arguments, **named)), self._budget)


class _RoleCalls:
    """The `StoreCalls` of a role, over a simulated connection."""

    def __init__(self, wire: Wire, keys: RedisModel) -> None:
        self._wire = wire
        self._keys = keys

    def start(self) -> None:
        """Connections are made when they are needed."""

    async def call(self, command: tuple[str | bytes | int, ...], timeout: float) -> Any:  # noqa: ANN401 - what Redis replies
        return await self._wire.ask(partial(self._keys.call, *command), timeout)

    async def run_script(
        self, _script: Script, names: Sequence[str], arguments: Sequence[str | bytes | int], timeout: float
    ) -> Any:  # noqa: ANN401 - its reply
        return await self._wire.ask(partial(self._keys.run, "role", names, *arguments), timeout)

    async def close(self) -> None:
        self._wire.close()
