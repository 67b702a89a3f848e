"""A column family whose rows somebody has in memory as well: they are read when it is opened, and never after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rocksdict import ColumnFamily, Rdict, WriteBatch

from app.core.errors import ConfigurationError, DamagedEventsError, StoreUnavailableError
from app.store.rocks.folder import RESTORE, RocksFolder, close_table, table_of
from app.store.rocks.rows import rows_from

Rows = Mapping[bytes, bytes | None]
"""The rows to write, by key; None deletes the row."""


class RowTable:
    """A drawer. `load` takes all rows, in the thread of the folder, while nobody uses it; ConfigurationError.

    After a write that failed, memory is ahead of the disk: nothing more is written before all was loaded anew.
    """

    def __init__(self, folder: RocksFolder, family: str, load: Callable[[Mapping[bytes, bytes]], None]) -> None:
        self._folder = folder
        self._family: Final = family
        self._load = load
        self._table: Rdict | None = None
        self._handle: ColumnFamily | None = None
        self.stale = True

    def write(self, rows: Rows) -> asyncio.Future[None]:
        """Done once they are on the disk, together or not at all. StoreUnavailableError; the folder is in use."""
        return self._folder.submit(self, rows)

    def check(self) -> None:
        """StoreUnavailableError while memory may be ahead of the disk, or too much waits for it."""
        waiting = self._folder.fill()
        if waiting.size >= waiting.bound:
            raise StoreUnavailableError(f"{waiting.bound} writes wait for the store already")
        if self.stale:
            raise StoreUnavailableError("the store could not be written to, and is not opened again yet")

    def open(self, database: Rdict, _families: Sequence[str]) -> None:
        """As `Drawer`."""
        self._table = table_of(database, self._family)
        self._handle = database.get_column_family_handle(self._family)
        try:
            self._load(dict(rows_from(self._table, b"")))
        except DamagedEventsError as error:
            raise ConfigurationError(
                f"{self._folder.setting}: the rows of {self._family} in {self._folder.path} cannot be read ({error}); "
                f"{RESTORE}"
            ) from None
        self.stale = False

    def shut(self) -> None:
        """As `Drawer`."""
        if self._table is not None:
            close_table(self._table)
        self._table = self._handle = None

    def pack(self, rows: WriteBatch, jobs: Sequence[Rows]) -> Sequence[None]:
        """As `Drawer`."""
        if self.stale:
            raise StoreUnavailableError("the store could not be written to, and is not opened again yet")
        for job in jobs:
            for key, row in job.items():
                if row is None:
                    rows.delete(key, self._handle)
                else:
                    rows.put(key, row, self._handle)
        return [None] * len(jobs)

    def kept(self) -> None:
        """As `Drawer`."""

    def lost(self) -> None:
        """As `Drawer`."""
        self.stale = True
