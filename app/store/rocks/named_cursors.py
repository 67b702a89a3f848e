"""Cursors under a name in RocksDB: a row for each, written by the thread of the folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile

from rocksdict import Rdict, WriteBatch

from app.core.events.named_cursors import check_room
from app.store.rocks import keys
from app.store.rocks.folder import RocksFolder
from app.store.rocks.rows import rows_from


class RocksCursors:
    """`database` gives the database that is open at present; it is asked in the thread of the folder."""

    def __init__(self, folder: RocksFolder, database: Callable[[], Rdict]) -> None:
        self._folder = folder
        self._database = database

    async def read(self, owner: str) -> Mapping[str, bytes]:
        found: list[Mapping[str, bytes]] = []
        await self._folder.alone(lambda: found.append(self._of(owner)))
        return found[0]

    async def swap(self, owner: str, name: str, before: bytes | None, after: bytes | None) -> bool:
        done: list[bool] = []
        await self._folder.alone(lambda: done.append(self._swap(owner, name, before, after)))
        return done[0]

    def _of(self, owner: str) -> Mapping[str, bytes]:
        prefix = keys.of_cursor(owner, "")
        found = takewhile(lambda one: one[0].startswith(prefix), rows_from(self._database(), prefix))
        return {key[len(prefix) :].decode(): row for key, row in found}

    def _swap(self, owner: str, name: str, before: bytes | None, after: bytes | None) -> bool:
        known = self._of(owner)
        if known.get(name) not in (before, after):
            return False
        rows = WriteBatch(raw_mode=True)
        if after is None:
            rows.delete(keys.of_cursor(owner, name))
        else:
            check_room(known, name)
            rows.put(keys.of_cursor(owner, name), after)
        self._folder.commit(rows)
        return True
