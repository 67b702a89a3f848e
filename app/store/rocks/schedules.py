"""Schedules in a folder: those in memory, each step of which is on the disk when it returns."""

from __future__ import annotations

from app.store.rocks.webhooks import Journalled
from app.store.schedules import KeptSchedules


class RocksSchedules:
    """`app/store/schedules.py`."""

    def __init__(self, change: Journalled) -> None:
        self._change = change

    async def changes(self) -> int:
        return await self._change(lambda memory: memory.schedules.changes())

    async def read(self) -> KeptSchedules:
        return await self._change(lambda memory: memory.schedules.read())

    async def write(self, name: str, document: bytes | None, before: bytes | None) -> bool:
        return await self._change(lambda memory: memory.schedules.write(name, document, before))
