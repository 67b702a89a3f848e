"""Cursors under a name, in this process's memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from app.core.events.named_cursors import check_room


class MemoryCursors:
    """It promises nothing across the end of the process."""

    def __init__(self) -> None:
        self._known: Final[defaultdict[str, dict[str, bytes]]] = defaultdict(dict)

    async def read(self, owner: str) -> Mapping[str, bytes]:
        return dict(self._known[owner])

    async def swap(self, owner: str, name: str, before: bytes | None, after: bytes | None) -> bool:
        known = self._known[owner]
        if known.get(name) not in (before, after):
            return False
        if after is None:
            known.pop(name, None)
        else:
            check_room(known, name)
            known[name] = after
        return True
