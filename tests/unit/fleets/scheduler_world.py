"""Nodes with schedulers over one store, and a clock that stands until it is set on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from app.access.conditions import Precondition
from app.core.schedules.schedule import Schedule, ScheduleSpec
from app.fleets.administration import RunOwner
from app.fleets.scheduler import Scheduler
from app.fleets.schedules import ScheduleAdministrator
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import ManualClock

MINUTE = timedelta(minutes=1)
NODES = ("node-a", "node-b", "node-c")
ANY = Precondition()


class Killed(BaseException):
    """The process of the node is gone."""


class Work:
    """Begins things as nodes do, by their ids, and fails as it is told to."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.fails: BaseException | None = None
        self.dies_after: BaseException | None = None
        self.ends_nothing: BaseException | None = None
        self.open: set[str] = set()
        self.ended: list[str] = []

    async def check(self, spec: ScheduleSpec, owner: RunOwner) -> None:
        del spec, owner

    def id_of(self, schedule: Schedule, at: int) -> str:
        return schedule.command_id_of(at)

    async def begin(self, schedule: Schedule, at: int) -> None:
        if self.fails is not None:
            raise self.fails
        self.begun[self.id_of(schedule, at)] += 1
        if self.dies_after is not None:
            raise self.dies_after

    async def end_last(self, schedule: Schedule) -> None:
        if self.ends_nothing is not None:
            raise self.ends_nothing
        self.ended.append(schedule.last_begun)

    async def has_ended(self, schedule: Schedule) -> bool:
        await asyncio.sleep(0)  # the others have read the same meanwhile
        return schedule.last_begun not in self.open


class World:
    """Nodes, a clock and a store."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStateStore(self.clock)
        self.work = Work()
        self.live: Sequence[str] = NODES
        self.counters: Counter[str] = Counter()
        work: Any = self.work
        self.nodes = {one: self.node(one) for one in NODES}
        self.desk = ScheduleAdministrator(store=self.store.schedules, commands=self.store, work=work)

    def node(self, node_id: str) -> Scheduler:
        async def live() -> Sequence[str]:
            return self.live

        work: Any = self.work
        return Scheduler(
            store=self.store.schedules,
            commands=self.store,
            work=work,
            live=live,
            node_id=node_id,
            interval=1.0,
            counters=self.counters,
        )

    async def put(self, **members: Any) -> Schedule:
        plain = {"cron": "* * * * *", "zone": "UTC", "device": "dock-1", "command": {"method": "ok"}}
        spec = ScheduleSpec(**{**plain, "catch_up": 600_000_000, **members})
        return (await self.desk.put("nightly", spec, RunOwner(tenant="", principal="pat", caller=None), ANY))[0]

    def advance(self, duration: timedelta) -> None:
        self.clock.now += duration.total_seconds()

    async def look(self, *nodes: str) -> None:
        for one in nodes or NODES:
            await self.nodes[one].look()

    async def known(self) -> Schedule:
        return await self.desk.get("", "nightly")

    async def results(self) -> list[str]:
        return [str(one.result) for one in (await self.known()).occurrences]
