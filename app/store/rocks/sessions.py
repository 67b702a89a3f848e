"""The rows of the broker in a node, in the folder of the node's store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from app.core.errors import StoreUnavailableError
from app.store.rocks.folder import RocksFolder
from app.store.rocks.rowtable import RowTable

FAMILY: Final = "sessions"


class RocksSessions:
    """A drawer of a folder. The broker is right about what it has, so rows that are read anew are not looked at."""

    def __init__(self, folder: RocksFolder) -> None:
        self._folder = folder
        self._table: Final = RowTable(folder, FAMILY, self._load)
        self._rows: Mapping[bytes, bytes] | None = {}

    async def start(self) -> Mapping[bytes, bytes]:
        await self._folder.start(self._table)
        rows, self._rows = self._rows, None
        return rows or {}

    async def close(self) -> None:
        await self._folder.close(self._table)
        self._rows = {}

    def check(self) -> None:
        """Return: a folder has a lock."""

    async def write(self, rows: Mapping[bytes, bytes | None]) -> None:
        with self._folder.using():
            if self._table.stale:
                raise StoreUnavailableError("the store could not be written to, and is not opened again yet")
            await asyncio.shield(self._table.write(rows))

    def _load(self, rows: Mapping[bytes, bytes]) -> None:
        if self._rows is not None:
            self._rows = rows
