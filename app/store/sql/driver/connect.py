"""Engines: how a database of a URL is reached, and how transactions begin there."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, unquote

import aiosqlite
from aiosqlite.core import _connection_worker_thread
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.core.addresses import check_access_url, split_address, sqlite_file
from app.core.errors import ConfigurationError, DirectoryUnavailableError

POOL_SIZE: Final = 3
"""Connections of one process: people ask for this directory, and not requests."""
WRITES: Final = "homing_writes"
"""The execution option of a connection whose transactions change something."""
UNBOUNDED: Final = "homing_unbounded"
"""The execution option of a connection whose statements may take as long as they do: a migration's."""

_MAKING: Final = Lock()


def _work(statements: SimpleQueue[Any], ended: Event) -> None:
    """Run as aiosqlite's thread does, but survive that the loop which asked is closed: then nobody can be told."""
    while True:
        try:
            _connection_worker_thread(statements)
        except RuntimeError:
            if not (ended.is_set() and statements.empty()):
                continue
        return


class _SqliteConnection(aiosqlite.Connection):
    """Ends once: aiosqlite 0.22.1 waits for ever in `close` when it was stopped meanwhile, as SQLAlchemy does."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._ended = Event()
        # A daemon, as SQLAlchemy has it: a disk that hangs must not keep the process.
        self._thread = Thread(target=_work, args=(self._tx, self._ended), daemon=True)

    def stop(self) -> asyncio.Future[Any] | None:
        if self._ended.is_set():
            return None
        self._ended.set()
        return super().stop()


async def _connect_sqlite(database: str, **options: Any) -> aiosqlite.Connection:
    return await _SqliteConnection(partial(sqlite3.connect, database, **options))


def open_sql(url: str, budget: timedelta) -> AsyncEngine:
    """An engine that has not connected yet; ConfigurationError when the URL cannot be used, without repeating it."""
    parts = _parts(url)
    return _sqlite(parts, budget) if parts.scheme == "sqlite" else _postgresql(parts, budget)


def open_blocking(url: str, budget: timedelta) -> Engine | None:
    """An engine of SQLite whose calls block; None for another database."""
    parts = _parts(url)
    if parts.scheme != "sqlite":
        return None
    path = Path(sqlite_file(parts))
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        hide_parameters=True,
        connect_args={"timeout": budget.total_seconds()},
    )
    _keep_to_ourselves(engine, path)
    return engine


def _parts(url: str) -> SplitResult:
    try:
        check_access_url(url)
        return split_address(url)
    except ValueError as error:
        raise ConfigurationError(f"the URL of the access directory {error}") from None


def _engine(url: URL, budget: timedelta, connect_args: dict[str, Any]) -> AsyncEngine:
    return create_async_engine(
        url,
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=budget.total_seconds(),
        pool_pre_ping=True,
        hide_parameters=True,  # digests, and hashes of passwords
        connect_args=connect_args,
    )


def _sqlite(parts: SplitResult, budget: timedelta) -> AsyncEngine:
    path = Path(sqlite_file(parts))
    url = URL.create("sqlite+aiosqlite", database=str(path))
    engine = _engine(url, budget, {"timeout": budget.total_seconds(), "async_creator_fn": _connect_sqlite})
    _keep_to_ourselves(engine.sync_engine, path)
    return engine


def _keep_to_ourselves(engine: Engine, path: Path) -> None:
    """Make the file so that nobody else reads it, and transactions begin where we say so."""

    @event.listens_for(engine, "do_connect")
    def _before_connecting(*_: object) -> None:
        _make_file(path)

    @event.listens_for(engine, "connect")
    def _prepare(connection: DBAPIConnection, _: object) -> None:
        connection.isolation_level = None  # transactions begin where we say so
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        with suppress(Exception):  # another process is switching it in this moment, for all of us
            cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")  # a revocation must outlive a power cut
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _make_file(path: Path) -> None:
    """Make the file where there is none; one that is there is left to SQLite alone.

    Whoever closes any descriptor of a file gives up all POSIX locks that their process has on it, those of SQLite's
    connections, too. The next process that leaves then takes itself for the last one, and removes the files beside it
    under us (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """
    with _MAKING:  # nobody in this process connects to the file before its only descriptor of ours is closed
        try:
            # SQLite gives the files beside it the mode of this one.
            os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            raise DirectoryUnavailableError(f"the access directory cannot be opened: {error.strerror}") from None


def _postgresql(parts: SplitResult, budget: timedelta) -> AsyncEngine:
    url = URL.create(
        "postgresql+psycopg",
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        host=parts.hostname,
        port=parts.port,
        database=unquote(parts.path.removeprefix("/")),
        query={name: tuple(values) for name, values in parse_qs(parts.query).items()},
    )
    seconds = budget.total_seconds()
    engine = _engine(
        url,
        budget,
        {
            "connect_timeout": max(2, round(seconds)),  # libpq takes no less
            # A peer that is gone without a word is found out within ten seconds.
            "tcp_user_timeout": 10_000,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 2,
            "application_name": "homing",
        },
    )

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Connection) -> None:
        # For this transaction alone, so that it holds behind PgBouncer, too.
        if not connection.get_execution_options().get(UNBOUNDED):
            for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
                connection.exec_driver_sql(f"SET LOCAL {name} = {round(seconds * 1000)}")

    return engine
