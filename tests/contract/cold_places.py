"""Engines of the event log with a cold tier: every generation is brought there as soon as it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from app.core.events.event import Database
from app.core.events.plan import NamedDatabase
from app.events.cooler import Cooler
from app.runtime.system import SystemClock, new_secret
from app.store.archive import Archive
from app.store.events import EventStore
from app.store.parquet.archive import ParquetArchive
from app.store.parquet.place import ObjectStore
from app.store.roles import OnlyOne
from app.store.tiered import TieredEventLog
from tests.contract.event_places import DATABASES, EventPlace

LONG = timedelta(days=3650)


class ColdEvents:
    """Another place, with a folder beside it."""

    def __init__(self, hot: EventPlace, folder: Path) -> None:
        self._hot = hot
        self.folder = folder

    async def open(self, databases: Sequence[Database] = DATABASES) -> EventStore:
        return self._cold(await self._hot.open(databases))

    async def fresh(self, databases: Sequence[Database]) -> EventStore:
        return self._cold(await self._hot.fresh(databases))

    async def close(self) -> None:
        await self._hot.close()

    def _cold(self, hot: EventStore) -> EventStore:
        return Cooling(hot, archive_at(self.folder))


def archive_at(folder: Path) -> ParquetArchive:
    return ParquetArchive(ObjectStore(str(folder), SystemClock(), new_secret))


def cooler_of(store: EventStore, archive: Archive, retention: timedelta = LONG) -> Cooler:
    """One that finds everything due that has ended."""
    kept = [NamedDatabase(one.name, retention) for one in store.databases]
    return Cooler(
        store, archive, kept, OnlyOne(), hot=timedelta(0), quota_bytes=0, clock=SystemClock(), counters=Counter()
    )


class Cooling(TieredEventLog):
    """Cools what has ended at once, as a keeper and a cooler would do after a while."""

    def __init__(self, hot: EventStore, archive: Archive) -> None:
        super().__init__(hot, archive, Counter())
        self.cooler = cooler_of(self, archive)

    async def rotate(self, database: str, expected: int) -> None:
        await super().rotate(database, expected)
        await self.cooler.look()
