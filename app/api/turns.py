"""Lets callers who ask for much take turns, so that those with one command get theirs in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from app.core.errors import CapacityError

MOST_WAITING: Final = 32
WAIT_SECONDS: Final = 5.0
LONGEST_REST_SECONDS: Final = 0.25


class Turns:
    """One at a time, in order of arrival; a rest as long as the turn was follows each, and is for everybody else."""

    def __init__(self, wait_seconds: float = WAIT_SECONDS) -> None:
        """`wait_seconds` is how long a caller waits for its turn."""
        self._wait_seconds = wait_seconds
        self._free = asyncio.Semaphore()
        self._waiting = 0

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Inside the block it is the caller's turn. CapacityError when too many wait, or for too long."""
        if self._waiting >= MOST_WAITING:
            raise CapacityError(f"{MOST_WAITING} lists wait to be read on this node already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            within = f"{self._wait_seconds:g} s"
            raise CapacityError(f"no list could be read within {within}, as others were before it") from None
        finally:
            self._waiting -= 1
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            loop.call_later(min(loop.time() - began, LONGEST_REST_SECONDS), self._free.release)
