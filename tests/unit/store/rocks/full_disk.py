"""A log with its keeper and a reader on a small disk that fills up, and has room again: see test_faults."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from os import urandom
from pathlib import Path

from app.core.errors import HomingError, StoreUnavailableError
from app.core.events.event import Database, Entry, Shard
from app.core.events.generation import GenerationState
from app.core.events.plan import NamedDatabase
from app.core.events.reading import EVERYTHING, Reading
from app.events.keeper import Keeper
from app.runtime.system import SystemClock
from app.store.rocks.events import RocksEventLog
from app.store.rocks.folder import RocksFolder

SHARD = Shard("events", 0)
BALLAST_BYTES = 8 * 1024 * 1024
"""They go when the disk is full, and so it has room again."""
GENERATION_BYTES = 200_000
REFUSALS = 3
AFTERWARDS = 3
VALUE_BYTES = 20_000


async def _always(look: Callable[[], Awaitable[object]]) -> None:
    """As often as it goes, so that it meets each moment of opening again. What is no error of ours ends the program."""
    while True:
        with suppress(HomingError):
            await look()
        await asyncio.sleep(0)


async def _write(log: RocksEventLog, ballast: Path) -> None:
    refused, left, number = 0, AFTERWARDS, 0
    while left:
        try:
            await log.append(SHARD, [Entry(f"site/{number % 7}/up", b"%d " % number + urandom(VALUE_BYTES))])
        except StoreUnavailableError as error:
            refused += 1
            if refused == REFUSALS:
                sys.stdout.write(f"refused {error}\n")
                ballast.unlink()
            await asyncio.sleep(0.05)
        else:
            sys.stdout.write(f"acknowledged {number}\n")
            number += 1
            left -= refused >= REFUSALS


async def _tell(log: RocksEventLog) -> None:
    found: list[int] = []
    after, more = 0, True
    while more:
        part = await log.read(SHARD, Reading(EVERYTHING, after), 1000)
        found += [int(event.entry.value.split(maxsplit=1)[0]) for event in part.events]
        after, more = part.position, part.more
    sys.stdout.write(f"there {' '.join(map(str, found))}\n")
    unsealed = [one.state for one in await log.generations("events") if one.state is not GenerationState.SEALED]
    sys.stdout.write(f"states {' '.join(unsealed)}\n")


async def _main(folder: Path) -> None:
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    clock = SystemClock()
    log = RocksEventLog(RocksFolder(folder / "log"), [Database("events", 1)], clock)
    await log.start()
    keeper = Keeper(
        log,
        [NamedDatabase("events", timedelta(days=1))],
        generation_bytes=GENERATION_BYTES,
        quota_bytes=10**9,
        discard="new",
        clock=clock,
        counters=Counter(),
    )

    async def read() -> None:
        await log.read(SHARD, Reading(EVERYTHING), 10)
        await log.value(SHARD, "a")
        await log.structures("events")

    async with asyncio.TaskGroup() as group:
        others = [group.create_task(_always(one)) for one in (keeper.look, read)]
        await group.create_task(_write(log, ballast))
        for one in others:
            one.cancel()
    await _tell(log)
    await log.close()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
