"""Removes old lines of the audit, so that its database does not grow for ever."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

import structlog

from app.core.audit.chain import Author
from app.core.clock import Clock, wall_us
from app.core.errors import DirectoryError, UnavailableError
from app.store.audit import AuditStore

INTERVAL: Final = timedelta(hours=1)
PAUSE_SECONDS: Final = 0.1
"""The pause between two calls, in which others write."""


async def remove_older(store: AuditStore, now_us: int, age: timedelta, author: Author) -> int:
    """Remove all lines that are older; how many. DirectoryUnavailableError: some may have been removed."""
    total = 0
    while count := await store.remove(now_us - age // timedelta(microseconds=1), author):
        total += count
        await asyncio.sleep(PAUSE_SECONDS)
    return total


class Retention:
    """Lines are kept for `age`, and up to an hour more. All nodes do it: whoever comes second finds nothing to do."""

    def __init__(self, store: AuditStore, clock: Clock, age: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._age = age
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Remove what is too old every hour, until cancelled."""
        while True:
            now_us = wall_us(self._clock)
            try:
                removed = await remove_older(self._store, now_us, self._age, Author(at_us=now_us, via="retention"))
                if removed:
                    self._log.info("audit_lines_removed", lines=removed)
            except (UnavailableError, DirectoryError) as error:
                self._log.warning("audit_lines_not_removed", reason=str(error))
            await asyncio.sleep(INTERVAL.total_seconds())
