"""A copy of the access rules that the nodes share, for one that starts while their database is away."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol


class Copies(Protocol):
    """One copy, which is whole or not there. Calls raise StoreUnavailableError."""

    async def keep(self, version: int, at_us: int, copy: bytes, life: timedelta) -> None:
        """Keep a copy of this version, with which the database was in accord at `at_us`, for so long.

        A later version stays, as long as somebody has kept it lately.
        """

    async def kept(self) -> tuple[int, int] | None:
        """Version and instant of the copy that is kept."""

    async def read(self) -> bytes | None:
        """The copy."""
