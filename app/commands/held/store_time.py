"""The time by the store's clock, as this node can tell it between two readings.

Held commands are judged in the store by its clock. A node that compared the store's instants with its own clock would
try too late, or again and again too early, by as much as both differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from app.core.clock import Clock, wall_us
from app.store.commands import CommandReader


class StoreTime:
    """`now` and `date` are those of the store, in microseconds; before the first reading this node's own clock counts.

    Right to half of what a reading takes. A clock that was set is known by the next reading.
    """

    def __init__(self, clock: Clock, store: CommandReader) -> None:
        self._clock: Final = clock
        self._store: Final = store
        self._now: int | None = None
        """The instant by the store's clock at 0 on the monotonic one."""
        self._date: int | None = None

    @property
    def known(self) -> bool:
        """True if it was read."""
        return self._date is not None

    async def read(self) -> None:
        """Learn it anew. StoreUnavailableError."""
        self._now = await self._offset(self._store.now)
        self._date = await self._offset(self._store.date)

    def now(self) -> int:
        """Return the time by which the store dates what happens."""
        return self._at_present(self._now)

    def date(self) -> int:
        """Return the time by which instants count that people name."""
        return self._at_present(self._date)

    async def _offset(self, read: Callable[[], Awaitable[int]]) -> int:
        asked_at = self._clock.monotonic()
        store_us = await read()
        return store_us - round((asked_at + self._clock.monotonic()) / 2 * 1_000_000)

    def _at_present(self, offset: int | None) -> int:
        return wall_us(self._clock) if offset is None else offset + round(self._clock.monotonic() * 1_000_000)
