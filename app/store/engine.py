"""The one place that chooses an engine by the URL of the store. Drivers are imported only where they are used."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from app.core.addresses import EngineKind, EventsKind, engine_kind, events_kind, split_address
from app.core.clock import Clock
from app.core.cluster.identity import NodeIdentity
from app.core.cluster.wakekey import WakeKey
from app.core.errors import ConfigurationError
from app.core.events.event import Database
from app.core.memory import RECORDS_BYTES
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.histograms import StoreMeasures
from app.runtime.telemetry import BurstLog
from app.store.archive import Archive, ArchiveFacts
from app.store.declared import Declared
from app.store.directory import AccessDirectory
from app.store.events import EventStore
from app.store.folders import Folders
from app.store.memory.commands.store import MemoryStateStore
from app.store.memory.events import MemoryEventLog
from app.store.memory.queues import MemoryDeclared, MemoryQueues
from app.store.queues import QueueStore
from app.store.roles import OnlyOne, RoleLease
from app.store.sessions import SessionStore
from app.store.state import StateStore
from app.store.tiered import TieredEventLog

if TYPE_CHECKING:
    from app.store.redis.doctor import RedisFacts
    from app.store.redis.events.facts import EventFacts
    from app.store.rocks.folder import RocksFolder


@dataclass(frozen=True, slots=True)
class Engine:
    """The ports that a URL offers, not started yet. What it can do is asked of its `kind`."""

    kind: EngineKind
    store: StateStore
    identity: NodeIdentity | None = None
    """The identity of the one node that uses the store, where the store knows it."""
    sessions: SessionStore | None = None
    """The store of the sessions of a broker in that node, where there is one."""


def kind_of(url: str) -> EngineKind:
    """Return which engine the URL chooses; ConfigurationError when its scheme is not understood."""
    try:
        return engine_kind(url)
    except ValueError as error:
        raise ConfigurationError(f"the store's {error}") from None


def open_engine(
    url: str,
    *,
    clock: Clock,
    counters: Counter[str],
    wake_key: WakeKey,
    new_secret: Callable[[], str],
    budget: timedelta = timedelta(seconds=2),
    measures: StoreMeasures | None = None,
    folders: Folders | None = None,
    records_bytes: int = RECORDS_BYTES,
    terms: RedisTerms = NO_TERMS,
) -> Engine:
    """The engine of this URL; ConfigurationError when the URL cannot be used.

    `budget` bounds a call of the store; `folders` are shared with the event log; `records_bytes` bounds the commands
    of an engine that has them in this process; `terms` are for a Redis.
    """
    kind = kind_of(url)
    if kind is EngineKind.MEMORY:
        return Engine(kind, MemoryStateStore(clock, max_bytes=records_bytes))
    if kind is EngineKind.ROCKS:
        open_folder = partial(_rocks_engine, clock=clock, counters=counters, wake_key=wake_key, budget=budget)
        return open_folder(folder_of(url), folders or Folders(), new_secret, records_bytes=records_bytes)
    from app.store.redis.commands.store import RedisStateStore  # noqa: PLC0415 - see above

    store = RedisStateStore(
        url,
        clock=clock,
        counters=counters,
        wake_key=wake_key,
        new_secret=new_secret,
        budget=budget,
        measures=measures,
        terms=terms,
    )
    return Engine(kind, store)


def folder_of(url: str) -> Path:
    """The folder that a rocks:// URL names."""
    return Path(unquote(split_address(url).path))


def _rocks_engine(
    path: Path,
    folders: Folders,
    new_secret: Callable[[], str],
    *,
    clock: Clock,
    counters: Counter[str],
    wake_key: WakeKey,
    budget: timedelta,
    records_bytes: int,
) -> Engine:
    def new() -> RocksFolder:
        from app.store.rocks.folder import COMMANDS, RocksFolder  # noqa: PLC0415 - an extra
        from app.store.rocks.layout import identity_of  # noqa: PLC0415 - likewise

        return RocksFolder(path, COMMANDS, identity=identity_of(path, new_secret), tables_bytes=folders.tables_bytes)

    folder = folders.of(path, "HOMING_STORE_URL", new)
    from app.store.rocks.commands import RocksStateStore  # noqa: PLC0415 - an extra, and it is there
    from app.store.rocks.sessions import RocksSessions  # noqa: PLC0415 - likewise

    store = RocksStateStore(folder, clock, counters, budget=budget, wake_key=wake_key, max_bytes=records_bytes)
    return Engine(EngineKind.ROCKS, store, folder.identity, RocksSessions(folder))


def inspect_server(
    url: str, clock: Callable[[], float], run_id: str, terms: RedisTerms = NO_TERMS
) -> RedisFacts | None:
    """Return what the server behind this URL is and how it is set up; None when its engine has no server.

    Blocks, and writes nothing. StoreUnavailableError with a reason when nobody answers; ConfigurationError. `clock` is
    monotonic seconds.
    """
    if not kind_of(url).shared:
        return None
    from app.store.redis.doctor import inspect  # noqa: PLC0415 - see above

    return inspect(url, clock, run_id, terms)


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """The facts that were seen of a folder; nothing of it is opened."""

    trouble: str = ""
    """The reason why the folder cannot be used, in a sentence; empty if it can."""
    exists: bool = False
    in_use: bool = False
    free_bytes: int = 0


def inspect_folder(url: str) -> FolderFacts | None:
    """Return what the folder of this URL is like; None when it names none. Blocks, and writes nothing."""
    if kind_of(url) is not EngineKind.ROCKS:
        return None
    path = folder_of(url)
    try:
        from app.store.rocks.folder import RocksFolder  # noqa: F401, PLC0415 - an extra
        from app.store.rocks.layout import is_locked, read_layout  # noqa: PLC0415 - likewise

        read_layout(path)
        there = path
        while not there.exists():
            there = there.parent
        return FolderFacts("", path.exists(), is_locked(path), shutil.disk_usage(there).free)
    except ModuleNotFoundError as error:
        return FolderFacts(f"{error.name} is not installed; rocks:// needs the extra homing[embedded]")
    except (ConfigurationError, OSError) as error:
        return FolderFacts(str(error))


def inspect_event_log(
    url: str, databases: Sequence[Database], name: str, wall: Callable[[], float], terms: RedisTerms = NO_TERMS
) -> EventFacts:
    """Return what the event log behind a redis:// URL holds, and who brings events in.

    Blocks, and writes nothing. StoreUnavailableError; `wall` is seconds since 1970, `name` as in `open_events`.
    """
    from app.store.redis.events.facts import inspect_events  # noqa: PLC0415 - see above

    return inspect_events(url, databases, f"{name}-intake", wall, terms)


def inspect_cold_place(url: str, databases: Sequence[str], clock: Clock, new_secret: Callable[[], str]) -> ArchiveFacts:
    """True if the place of the cold tier takes and gives back files. Blocks, ten seconds at most."""
    with _cold_extra():
        from app.store.parquet.place_facts import inspect_place  # noqa: PLC0415 - an extra
    return inspect_place(url, databases, clock, new_secret)


def open_directory(
    url: str, *, new_cluster_id: Callable[[], str], budget: timedelta = timedelta(seconds=2)
) -> AccessDirectory:
    """The access directory of this URL, not started yet; ConfigurationError when the URL cannot be used.

    `new_cluster_id` names it when its tables are made; `budget` bounds a call.
    """
    try:
        from app.store.sql.access.directory import SqlDirectory  # noqa: PLC0415 - SQLAlchemy costs a second
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"HOMING_ACCESS_URL: {error.name} is not installed; the access directory needs the extra homing[access]"
        ) from None
    return SqlDirectory(url, budget=budget, new_cluster_id=new_cluster_id)


def back_up_directory(url: str, target: Path) -> None:
    """Copy a directory in SQLite while nodes use it. Blocks; errors as `app.store.sql.backup.back_up`."""
    from app.store.sql.backup import back_up  # noqa: PLC0415 - one verb wants it

    back_up(url, target)


def back_up_directory_file(file: Path, target: Path) -> None:
    """Do as `back_up_directory` does, with the file itself."""
    from app.store.sql.backup import back_up_file  # noqa: PLC0415 - one verb wants it

    back_up_file(file, target)


def check_directory_file(file: Path) -> None:
    """Read all of a directory in SQLite. Blocks; errors as `app.store.sql.backup.check_file`."""
    from app.store.sql.backup import check_file  # noqa: PLC0415 - one verb wants it

    check_file(file)


def check_store_folder(path: Path) -> int:
    """Open a RocksDB that nobody uses without writing, and return how many tables it has; ConfigurationError."""
    from app.store.rocks.offline import check_store  # noqa: PLC0415 - an extra

    return check_store(path)


def forget_packet_ids(path: Path) -> None:
    """Make a copy of a store agree with clients again. Blocks; errors as `app.store.rocks.offline`."""
    from app.store.rocks import offline  # noqa: PLC0415 - an extra

    offline.forget_packet_ids(path)


@dataclass(frozen=True, slots=True)
class QueueEngine:
    """Queues over an event log: their windows, and what is declared. Both are in the engine of the log."""

    store: QueueStore
    declared: Declared
    hinted: bool = False
    """The log tells nodes that feed queues that something came; else it wakes its readers."""


@dataclass(frozen=True, slots=True)
class EventEngine:
    """The parts that the URL of an event log offers: the log, and the roles of intake and archivist."""

    open_log: Callable[[Sequence[Database]], EventStore]
    role: RoleLease
    cooling: RoleLease
    queues: QueueEngine
    """Queues over this log."""
    archive: Archive | None = None
    """The cold tier, where there is one; `open_log` knows of it then."""


def open_events(
    url: str,
    *,
    clock: Clock,
    counters: Counter[str],
    new_secret: Callable[[], str],
    lease: timedelta = timedelta(seconds=5),
    name: str = "homing",
    node_id: str = "",
    cold: str = "",
    folders: Folders | None = None,
    terms: RedisTerms = NO_TERMS,
) -> EventEngine:
    """The event log of this URL, not started yet; ConfigurationError when the URL cannot be used.

    `lease` is how long a node that died keeps a role, `name` tells this cluster's roles from others, and `node_id`
    tells people who has them. `cold` is where the cold tier is; there is none when it is empty. `folders` are shared
    with the store, and `terms` are for a Redis.
    """
    try:
        kind = events_kind(url)
    except ValueError as error:
        raise ConfigurationError(f"HOMING_EVENTS_URL {error}") from None
    drops = BurstLog(counters, clock)
    if kind is EventsKind.MEMORY:
        engine = EventEngine(
            lambda databases: MemoryEventLog(databases, clock, drops),
            OnlyOne(),
            OnlyOne(),
            QueueEngine(MemoryQueues(clock, lambda: _life(new_secret)), MemoryDeclared()),
        )
    elif kind is EventsKind.ROCKS:
        engine = _rocks(folder_of(url), folders or Folders(), clock, drops, new_secret)
    else:
        engine = _redis_events(
            url, f"{node_id or 'node'} {new_secret()}", name, lease, clock, counters, new_secret, drops, terms
        )
    if not cold:
        return engine
    archive = _archive(cold, clock, new_secret)
    return replace(
        engine,
        open_log=lambda databases: TieredEventLog(engine.open_log(databases), archive, counters),
        archive=archive,
    )


def _redis_events(
    url: str,
    holder: str,
    name: str,
    lease: timedelta,
    clock: Clock,
    counters: Counter[str],
    new_secret: Callable[[], str],
    drops: BurstLog,
    terms: RedisTerms,
) -> EventEngine:
    from app.store.redis.driver.role import open_role  # noqa: PLC0415 - see above
    from app.store.redis.events.log import RedisEventLog  # noqa: PLC0415 - see above
    from app.store.redis.queues import RedisQueues  # noqa: PLC0415 - see above

    queues = RedisQueues(url, clock=clock, counters=counters, new_life=lambda: _life(new_secret), terms=terms)

    def role(what: str) -> RoleLease:
        return open_role(url, f"{name}-{what}", holder, lease=lease, clock=clock, counters=counters, terms=terms)

    return EventEngine(
        lambda databases: RedisEventLog(
            url, databases, counters=counters, drops=drops, new_secret=new_secret, terms=terms
        ),
        role("intake"),
        role("cooler"),
        QueueEngine(queues, queues, hinted=True),
    )


def _life(new_secret: Callable[[], str]) -> str:
    """Return what tells windows of a queue apart that began at different times."""
    return blake2b(new_secret().encode(), digest_size=4).hexdigest()


def _archive(url: str, clock: Clock, new_secret: Callable[[], str]) -> Archive:
    with _cold_extra():
        from app.store.parquet.archive import ParquetArchive  # noqa: PLC0415 - an extra
        from app.store.parquet.place import ObjectStore  # noqa: PLC0415 - likewise
    return ParquetArchive(ObjectStore(url, clock, new_secret))


@contextmanager
def _cold_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"HOMING_EVENTS_COLD: {error.name} is not installed; the cold tier needs the extra homing[latency]"
        ) from None


def _rocks(path: Path, folders: Folders, clock: Clock, drops: BurstLog, new_secret: Callable[[], str]) -> EventEngine:
    def new() -> RocksFolder:
        from app.store.rocks.folder import RocksFolder  # noqa: PLC0415 - an extra

        return RocksFolder(path, tables_bytes=folders.tables_bytes)

    folder = folders.of(path, "HOMING_EVENTS_URL", new)
    from app.store.rocks.events import RocksEventLog  # noqa: PLC0415 - an extra, and it is there
    from app.store.rocks.queues import RocksQueues  # noqa: PLC0415 - likewise

    queues = RocksQueues(folder, clock, lambda: _life(new_secret))
    return EventEngine(
        lambda databases: RocksEventLog(folder, databases, clock, drops),
        OnlyOne(),
        OnlyOne(),
        QueueEngine(queues, queues),
    )
