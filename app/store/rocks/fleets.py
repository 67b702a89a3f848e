"""Fleet runs in a folder: those in memory, each step of which is on the disk when it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from app.store.fleets import NewRecord, RunChange, RunRecord, Written
from app.store.memory.fleets import MemoryFleets
from app.store.rocks.webhooks import Journalled

T = TypeVar("T")


class RocksFleets:
    """`app/store/fleets.py`. A lease ends with the process that holds it, so only its epoch is on the disk."""

    def __init__(self, change: Journalled) -> None:
        self._change = change

    async def create(self, record: NewRecord) -> str:
        return await self._do(lambda one: one.create(record))

    async def relist(self, record: RunRecord) -> None:
        await self._do(lambda one: one.relist(record))

    async def read(self, run_id: str) -> RunRecord | None:
        return await self._do(lambda one: one.read(run_id))

    async def targets(self, run_id: str, begin: int = 0, end: int | None = None) -> Sequence[Sequence[str]]:
        return await self._do(lambda one: one.targets(run_id, begin, end))

    async def results(self, run_id: str, indexes: Sequence[int]) -> Sequence[Sequence[Any] | None]:
        return await self._do(lambda one: one.results(run_id, indexes))

    async def write(self, run_id: str, change: RunChange) -> Written:
        return await self._do(lambda one: one.write(run_id, change))

    async def open_runs(self) -> Sequence[str]:
        return await self._do(lambda one: one.open_runs())

    async def runs(self) -> Sequence[RunRecord]:
        return await self._do(lambda one: one.runs())

    async def drive(self, run_id: str, holder: str, lease: timedelta, gone: str = "") -> int:
        return await self._do(lambda one: one.drive(run_id, holder, lease, gone))

    async def let_go(self, run_id: str, holder: str) -> None:
        await self._do(lambda one: one.let_go(run_id, holder))

    async def _do(self, work: Callable[[MemoryFleets], Awaitable[T]]) -> T:
        return await self._change(lambda memory: work(memory.fleets))
