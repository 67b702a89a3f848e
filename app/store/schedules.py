"""The port of schedules: documents by name, with one number that grows with each change of any of them.

Each node keeps all of them in its memory and looks at the number, so that a schedule costs nothing while it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from app.core.errors import CapacityError

MOST_SCHEDULES: Final = 500
MOST_OF_TENANT: Final = MOST_SCHEDULES // 2


class KeptSchedules(NamedTuple):
    """All schedules by the names of their documents, and the number of changes."""

    changes: int
    documents: Mapping[str, bytes]


def no_room() -> CapacityError:
    """The error where there are as many schedules as there may be."""
    return CapacityError(f"there are {MOST_SCHEDULES} schedules, which is all that a cluster keeps: delete others")


class ScheduleStore(Protocol):
    """Each call is atomic, and safe to repeat; StoreUnavailableError means that it may have happened."""

    async def changes(self) -> int:
        """The number of changes; 0 where there never was a schedule."""

    async def read(self) -> KeptSchedules:
        """All of them."""

    async def write(self, name: str, document: bytes | None, before: bytes | None) -> bool:
        """Write a document, or delete it (None), where it still stands as `before` (None: where there is none).

        Return whether it stands so then. CapacityError where a new one would be one too many.
        """
