"""The port of cursors that are kept under a name, beside the events that they are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class CursorStore(Protocol):
    """Documents by owner and name. StoreUnavailableError when the engine does not answer."""

    async def read(self, owner: str) -> Mapping[str, bytes]:
        """All of an owner, by name."""

    async def swap(self, owner: str, name: str, before: bytes | None, after: bytes | None) -> bool:
        """Write a document, or delete it (None), durably; False where it is not what it was `before`, nor `after`.

        CapacityError where the owner has MOST_OF_OWNER others. It may be repeated when its answer was lost.
        """
