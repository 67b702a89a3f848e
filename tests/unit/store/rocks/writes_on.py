"""Appends to an event log until it is killed, and says after each append what is acknowledged."""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from pathlib import Path

from app.core.events.event import Database, Entry, Shard
from app.runtime.system import SystemClock
from app.store.rocks.events import RocksEventLog
from app.store.rocks.folder import RocksFolder


async def _write(log: RocksEventLog, shard: int, begin: int, batch: int) -> None:
    for first in count(begin, batch):
        entries = [Entry(f"site/{number % 7}/up", b"%d" % number) for number in range(first, first + batch)]
        await log.append(Shard("events", shard), entries)
        sys.stdout.write(f"{shard} {first + batch}\n")
        sys.stdout.flush()


async def _main(folder: str, *begins: str) -> None:
    log = RocksEventLog(RocksFolder(Path(folder)), [Database("events", len(begins))], SystemClock())
    await log.start()
    async with asyncio.TaskGroup() as group:
        for shard, begin in enumerate(begins):
            group.create_task(_write(log, shard, int(begin), 1 + 30 * shard))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
