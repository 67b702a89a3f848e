"""The gate of the event log: nobody calls the log before it is open, and callers wait for it only so long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from app.core.errors import StoreUnavailableError

CALL_SECONDS: Final = 5.0
"""The budget of a call of the API."""


class LogGate:
    """The gate of the log, which is open or closed. The node opens and closes it; the parts of the log check it."""

    def __init__(self) -> None:
        self.is_open = False

    def check(self) -> None:
        """StoreUnavailableError while the log is not open."""
        if not self.is_open:
            raise StoreUnavailableError("the event log is not open yet")


@asynccontextmanager
async def call_budget() -> AsyncIterator[None]:
    """Bound the work of a call of the API; StoreUnavailableError when it takes longer."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            yield
    except TimeoutError:
        raise StoreUnavailableError(f"the event log did not answer within {CALL_SECONDS:g} s") from None
