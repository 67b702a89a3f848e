"""Appends to an event log whose files may not grow any more, says what was acknowledged and refused, and goes on."""

from __future__ import annotations

import asyncio
import resource
import sys
from itertools import count
from pathlib import Path

from app.core.errors import StoreUnavailableError
from app.core.events.event import Database, Entry, Shard
from app.runtime.system import SystemClock
from app.store.rocks.events import RocksEventLog
from app.store.rocks.folder import RocksFolder

MOST_BYTES = 2 * 1024 * 1024
"""The size of a file at which the kernel refuses to write, as on a full disk."""
REFUSALS = 5
AFTERWARDS = 3


async def _main(folder: str) -> None:
    log = RocksEventLog(RocksFolder(Path(folder)), [Database("events", 1)], SystemClock())
    await log.start()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, hard))
    refused, left = 0, AFTERWARDS
    for number in count():
        value = b"%d " % number + b"x" * 10_000
        try:
            await log.append(Shard("events", 0), [Entry(f"site/{number % 7}/up", value)])
        except StoreUnavailableError as error:
            sys.stdout.write(f"refused {error}\n")
            refused += 1
            await asyncio.sleep(0.05)
            if refused == REFUSALS:
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        else:
            sys.stdout.write(f"acknowledged {number}\n")
            left -= refused >= REFUSALS
        if not left:
            break
    await log.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
