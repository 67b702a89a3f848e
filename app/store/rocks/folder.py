"""A folder with one RocksDB: one thread writes, and one sync serves all drawers that wait for it.

A drawer is what one plane keeps there: its column families, and how its jobs become rows of the batch that all share.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import structlog
from rocksdict import BlockBasedOptions, Cache, Checkpoint, DBCompressionType, Options, Rdict, WriteBatch

from app.core.errors import ConfigurationError, HomingError, StoreUnavailableError
from app.core.memory import TABLES_BYTES
from app.store.rocks.checkpoints import CheckpointServer
from app.store.rocks.groups import GroupCommit
from app.store.rocks.layout import FolderLock, begin_layout
from app.store.rocks.reopener import Reopener

if TYPE_CHECKING:
    from pathlib import Path

    from app.core.cluster.identity import NodeIdentity
    from app.runtime.telemetry import Fill

MEMTABLE_BYTES: Final = 16 * 1024 * 1024
MEMTABLES_SHARE: Final = 2 / 3
"""The largest table in memory of a folder is written out when all of them together are larger than this."""
CACHE: Final = Cache(TABLES_BYTES // 3)
"""The cache for the blocks of all tables; else each table would have one of its own."""
WAL_BYTES: Final = 128 * 1024 * 1024
"""The oldest tables in memory are written out when the log in front of the tables is larger than this."""
_FULL: Final = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))
"""RocksDB's words for a disk that has no room, which are those of the system."""
RESTORE: Final = "put a backup in its place (for `homing up` with `homing restore`), or begin with an empty folder"
"""The way on from damage."""

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Drawer(Protocol):
    """The calls that the thread of a folder makes. An instance is in one folder."""

    @property
    def stale(self) -> bool:
        """True if it has to be opened anew, as it knows more than the disk has."""

    def open(self, database: Rdict, families: Sequence[str], /) -> None:
        """Begin with a database that has these column families; ConfigurationError."""

    def shut(self) -> None:
        """Let go of all tables, as the database is about to be closed."""

    def pack(self, rows: WriteBatch, jobs: Sequence[Any]) -> Sequence[Any]:
        """Put the rows of these jobs into a batch; for each job its result, or the error that refuses it."""

    def kept(self) -> None:
        """The rows that were packed last are on the disk."""

    def lost(self) -> None:
        """The rows that were packed last may not be on the disk."""


@dataclass(frozen=True, slots=True)
class FolderUse:
    """The opener of a folder, for its errors: the name of the setting, and what is kept there in words."""

    setting: str = "HOMING_EVENTS_URL"
    what: str = "the event log"


EVENTS: Final = FolderUse()
COMMANDS: Final = FolderUse("HOMING_STORE_URL", "the store")


def options(tables_bytes: int = TABLES_BYTES) -> Options:
    """Return how tables are written, and what all of a database may take in memory."""
    made = Options(raw_mode=True)
    made.create_if_missing(True)
    made.create_missing_column_families(True)
    made.set_compression_type(DBCompressionType.zstd())
    made.set_write_buffer_size(MEMTABLE_BYTES)
    made.set_db_write_buffer_size(round(tables_bytes * MEMTABLES_SHARE))
    blocks = BlockBasedOptions()
    blocks.set_block_cache(CACHE)
    made.set_block_based_table_factory(blocks)
    made.set_max_total_wal_size(WAL_BYTES)
    made.set_keep_log_file_num(2)
    return made


def table_of(database: Rdict, family: str) -> Rdict:
    """The column family, which is created when there is none."""
    try:
        return database.get_column_family(family)
    except Exception:  # noqa: BLE001 - rocksdict has no error of its own
        return database.create_column_family(family, options())


class RocksFolder:
    """It is open while it has drawers. `flush` makes a batch durable; tests have one that fails.

    `identity` is the node's, which a folder that has none gets.
    """

    def __init__(
        self,
        path: Path,
        use: FolderUse = EVENTS,
        flush: Callable[[Rdict], None] | None = None,
        identity: NodeIdentity | None = None,
        tables_bytes: int = TABLES_BYTES,
    ) -> None:
        self.path: Final = path
        self._tables_bytes: Final = tables_bytes
        self.identity: Final = identity
        self._use: Final = use
        self._flush = flush or _sync
        self._lock = FolderLock(path)
        self._checkpoints = CheckpointServer(path, self.checkpoint)
        self._turns = asyncio.Lock()
        self._drawers: list[Drawer] = []
        self._database: Rdict | None = None
        self._broken = False

    @property
    def setting(self) -> str:
        """The name of the setting that opens it."""
        return self._use.setting

    @property
    def broken(self) -> bool:
        """True if RocksDB may take nothing more until it is opened again, or a drawer has to be."""
        return self._broken or any(one.stale for one in self._drawers)

    async def start(self, drawer: Drawer) -> None:
        """Open the drawer, in the folder that is opened for the first one; ConfigurationError.

        StoreUnavailableError while the disk is full, as opening it takes some room.
        """
        async with self._turns:
            if not self._drawers:
                await self._begin()
            try:
                await self._group.alone(lambda: self._fill_in(drawer))
            except BaseException:
                if not self._drawers:
                    await self._end()
                raise
            self._drawers.append(drawer)

    async def close(self, drawer: Drawer) -> None:
        """Close the drawer, and the folder with the last one."""
        async with self._turns:
            if drawer not in self._drawers:
                return
            if len(self._drawers) == 1:
                await self._end()
                self._drawers.clear()
            else:
                with self._mender.using():
                    self._drawers.remove(drawer)
                    await self._group.alone(drawer.shut)

    def fill(self) -> Fill:
        """Return how many jobs wait."""
        return self._group.fill()

    @contextmanager
    def using(self) -> Iterator[None]:
        """It stays open meanwhile; StoreUnavailableError while it is being opened again."""
        with self._mender.using():
            yield

    def submit(self, drawer: Drawer, job: object) -> asyncio.Future[Any]:
        """The result of a job once it is durable, awaited `using` it. StoreUnavailableError if too many wait."""
        future = self._group.submit((drawer, job))
        future.add_done_callback(self._look_after)
        return future

    async def alone(self, work: Callable[[], None]) -> None:
        """Do it in the thread between two batches; StoreUnavailableError where the disk fails."""
        with self._mender.using():
            try:
                await self._group.alone(lambda: self._tried(work))
            except StoreUnavailableError:
                self._mend()
                raise

    async def checkpoint(self, path: Path) -> None:
        """Make a folder on the same disk that has all of now, as links; StoreUnavailableError where that fails."""
        with self._mender.using():
            # RocksDB's checkpoint writes out what is in memory, and rocksdict holds the GIL meanwhile; not so here.
            await asyncio.to_thread(self._write_out)
            await self._group.alone(lambda: self._checkpoint(path))

    def commit(self, rows: WriteBatch) -> None:
        """In the thread: durable when it returns; StoreUnavailableError.

        `write` with sync would hold the GIL while the disk works; `flush_wal` does not.
        """
        if self._database is None:
            raise StoreUnavailableError(f"{self._use.what} is being opened again")
        try:
            self._database.write(rows)
            self._flush(self._database)
            self._broken = False
        except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
            self._broken = True
            raise StoreUnavailableError(f"{self._use.what} cannot be written to: {error}") from None

    async def _begin(self) -> None:
        self._group: GroupCommit[tuple[Drawer, Any], Any] = GroupCommit(self._write, self._use.what)
        self._mender = Reopener(
            self.path,
            self._use.what,
            broken=lambda: self.broken,
            check=self._lock.check_place,
            close=lambda: self._group.alone(self._shut),
            reopen=lambda: self._group.alone(self._open),
        )
        try:
            await self._group.alone(self._open)
        except BaseException:
            await self._end()
            raise
        await self._checkpoints.start()

    async def _end(self) -> None:
        await self._checkpoints.close()
        await self._mender.close()
        await self._group.close()
        await asyncio.to_thread(self._shut)
        self._lock.release()

    def _open(self) -> None:
        try:
            self._families = self._open_database()
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
            self._shut()
            raise self._cannot(error) from None
        try:
            for one in self._drawers:
                self._fill_in(one)
        except HomingError:
            self._shut()
            raise
        self._broken = False

    def _open_database(self) -> Sequence[str]:
        try:
            if not self._lock.is_held:
                self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            begin_layout(self.path, self.identity)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self._use.setting}: {error}") from None
        families = Rdict.list_cf(str(self.path), options()) if (self.path / "CURRENT").exists() else ["default"]
        CACHE.set_capacity(self._tables_bytes // 3)
        tables = dict.fromkeys(set(families) - {"default"}, options())
        self._database = Rdict(str(self.path), options(self._tables_bytes), tables)
        return families

    def _write_out(self) -> None:
        if (database := self._database) is None:
            return
        try:
            self._lock.check_place()  # else the links would be made where the folder was
            names = Rdict.list_cf(str(self.path), options())
        except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
            raise StoreUnavailableError(f"{self._use.what} cannot be copied: {error}") from None
        for name in names:
            with suppress(Exception):  # it was dropped meanwhile, or the disk fails, which the checkpoint says
                table = database.get_column_family(name)
                table.flush(True)
                close_table(table)

    def _checkpoint(self, path: Path) -> None:
        if self._database is None:
            raise StoreUnavailableError(f"{self._use.what} is being opened again")
        try:
            self._flush(self._database)
            Checkpoint(self._database).create_checkpoint(str(path))
        except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
            raise StoreUnavailableError(f"{self._use.what} cannot be copied: {error}") from None

    def _fill_in(self, drawer: Drawer) -> None:
        if self._database is None:
            raise StoreUnavailableError(f"{self._use.what} is being opened again")
        try:
            drawer.open(self._database, self._families)
        except HomingError:
            drawer.shut()
            raise
        except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
            drawer.shut()
            raise self._cannot(error) from None

    def _cannot(self, error: Exception) -> HomingError:
        said = f"{self._use.setting}: {self._use.what} cannot be opened: {error}"
        if "Corruption" in said:  # RocksDB's word for what is damaged
            said += f"; {RESTORE}"
        return StoreUnavailableError(said) if any(one in said for one in _FULL) else ConfigurationError(said)

    def _shut(self) -> None:
        for one in self._drawers:
            one.shut()
        if self._database is not None:
            # RocksDB lets go of its lock when nobody has a handle any more.
            database, self._database = self._database, None
            close_table(database)

    def _write(self, jobs: Sequence[tuple[Drawer, Any]]) -> Sequence[Any]:
        rows = WriteBatch(raw_mode=True)
        places: dict[int, list[int]] = {}
        for place, (drawer, _) in enumerate(jobs):
            places.setdefault(id(drawer), []).append(place)
        results: list[Any] = [StoreUnavailableError(f"{self._use.what} is closed")] * len(jobs)
        packed = [one for one in self._drawers if id(one) in places]
        try:
            for drawer in packed:
                of_drawer = places[id(drawer)]
                found = self._tried(lambda: drawer.pack(rows, [jobs[one][1] for one in of_drawer]))  # noqa: B023
                for place, result in zip(of_drawer, found, strict=True):
                    results[place] = result
            if not rows.is_empty():
                self.commit(rows)
        except StoreUnavailableError:
            for drawer in packed:
                drawer.lost()
            raise
        for drawer in packed:
            drawer.kept()
        return results

    def _tried(self, work: Callable[[], T]) -> T:
        """Return what RocksDB cannot do meanwhile is a StoreUnavailableError, and it is broken."""
        if self._database is None:
            raise StoreUnavailableError(f"{self._use.what} is being opened again")
        try:
            return work()
        except HomingError:
            raise
        except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
            self._broken = True
            raise StoreUnavailableError(f"{self._use.what} cannot be written to: {error}") from None

    def _look_after(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and isinstance(future.exception(), StoreUnavailableError):
            self._mend()

    def _mend(self) -> None:
        if self.broken:
            self._mender.failed()


def close_table(table: Rdict) -> None:
    """Close it; what it still wanted to write is in no log either, so nobody was told of it: it is only named."""
    try:
        table.close()
    except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
        _log.warning("events_not_closed", reason=str(error))


def _sync(database: Rdict) -> None:
    database.flush_wal(True)
