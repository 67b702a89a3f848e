"""Brings a generation into the cold tier, and kills itself in the middle: `URL FOLDER STEP`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from app.core.events import keys
from app.core.events.event import Database
from app.runtime.system import SystemClock, new_secret
from app.store.engine import open_events
from app.store.parquet import place
from app.store.parquet.place import ObjectStore
from app.store.redis.events.log import RedisEventLog
from app.store.tiered import TieredEventLog
from tests.contract.cold_places import cooler_of

DATABASE = Database("events", 2, ("site/+/up",))
STEPS = ("half written", "written", "not named", "half named")
FORGOTTEN_FIRST = "forgotten before it is named"
"""No step of ours, but a mistake, and a death in the middle of it."""


def die(*_: object, **__: object) -> Any:  # noqa: ANN401 - it takes the place of anything
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(ObjectStore):
    """Dies while a file is written, or when it is there."""

    step = ""

    def put(self, path: str, data: memoryview) -> None:
        if self.step == "half written":
            place._put_local(Path(self._url) / path, memoryview(bytes(data)[: len(data) // 2]), "1")
            half = Path(self._url) / path
            half.rename(half.with_name(f".{half.name}.1.tmp"))
            die()
        super().put(path, data)
        if self.step == "written":
            die()


def at_half(log: Any, url: str) -> None:  # noqa: ANN401 - of any engine
    """Die when the catalogue has changed, and not all that follows from it is done."""
    if url.startswith("rocks://"):
        log._writer._state.database = Dropping(log._writer._state.database)
        return
    original = log._calls.run

    async def once(*arguments: object) -> object:
        await original(*arguments)
        return die()

    log._calls.run = once


def forget_first(log: Any) -> None:  # noqa: ANN401 - a RedisEventLog with its private parts
    """Forget what is brought into the cold tier before the catalogue has its files, and die in between."""

    async def cool(database: str, number: int, _files: object) -> None:
        shards = [shard for one in log.databases if one.name == database for shard in one.all_shards()]
        for shard in shards:
            await log._calls.call("UNLINK", f"{keys.slabs(shard)}{number}")
        die()

    log.cool = cool


class Dropping:
    """A RocksDB whose process dies when it drops a table."""

    def __init__(self, database: Any) -> None:  # noqa: ANN401 - a Rdict
        self._database = database
        self.drop_column_family = die

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a Rdict's
        return getattr(self._database, name)


async def main(url: str, folder: str, step: str) -> None:
    from app.store.parquet.archive import ParquetArchive  # noqa: PLC0415 - after the place

    hot = open_events(url, clock=SystemClock(), counters=Counter(), new_secret=new_secret).open_log([DATABASE])
    where = Deadly(folder, SystemClock(), new_secret)
    where.step = step
    log = TieredEventLog(hot, ParquetArchive(where), Counter())
    await log.start()
    if step == "not named":
        hot.cool = die  # type: ignore[method-assign]
    if step == FORGOTTEN_FIRST and isinstance(hot, RedisEventLog):
        forget_first(hot)
    if step == "half named":
        at_half(hot, url)
    await cooler_of(log, log._archive).look()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
