"""Schedules in this process's memory."""

from __future__ import annotations

from typing import Final

from app.store.memory.commands.records import Changed, nobody
from app.store.schedules import MOST_SCHEDULES, KeptSchedules, no_room

SCHEDULE_ROW: Final = "d"


class MemorySchedules:
    """`changed` is told what somebody else may keep."""

    def __init__(self, changed: Changed = nobody) -> None:
        self._changed = changed
        self._documents: dict[str, bytes] = {}
        self._changes = 0

    def kept(self, name: str) -> bytes | None:
        """Return a document, if there is one."""
        return self._documents.get(name)

    def restore(self, name: str, document: bytes) -> None:
        """A document as it was."""
        self._documents[name] = document
        self._changes += 1

    async def changes(self) -> int:
        return self._changes

    async def read(self) -> KeptSchedules:
        return KeptSchedules(self._changes, dict(self._documents))

    async def write(self, name: str, document: bytes | None, before: bytes | None) -> bool:
        known = self._documents.get(name)
        if known == document:
            return True
        if known != before:
            return False
        if document is None:
            del self._documents[name]
        elif known is None and len(self._documents) >= MOST_SCHEDULES:
            raise no_room()
        else:
            self._documents[name] = document
        self._changes += 1
        self._changed((SCHEDULE_ROW, name))
        return True
