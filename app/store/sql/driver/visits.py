"""Calls of SQLite that come often, each made in one go on another thread.

A connection of aiosqlite changes threads about twenty times for one transaction. That takes more of the processor
than all that is asked (docs/performance.md), and nodes ask twice a second whether the directory has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine

from app.runtime.worker import Worker
from app.store.sql.driver.connect import WRITES

T = TypeVar("T")
Work = Callable[[Connection], T]


class Visits:
    """Visits to a file. Readers and writers have a thread each: others may keep the file locked for writers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers: Final = Worker("homing-sqlite-reads")
        self._writers: Final = Worker("homing-sqlite-writes")

    async def make(self, work: Work[T], *, writes: bool) -> T:
        """Return the result of `work`, committed.

        When nobody waits any more: what has begun goes on, what has not never does.
        """

        def visit() -> T:
            with self._engine.connect().execution_options(**{WRITES: writes}) as connection, connection.begin():
                return work(connection)

        return await (self._writers if writes else self._readers).do(visit, at_all_events=False)

    def close(self) -> None:
        """Let go of the connections, and of the threads when they are done."""
        self._readers.stop()
        self._writers.stop()
        self._engine.dispose()
