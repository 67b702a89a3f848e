"""Calls of SQLite that come often, each made in one go on another thread.

A connection of aiosqlite changes threads about twenty times for one transaction. That takes five times as much of the
processor as what is asked (docs/performance.md), and nodes ask twice a second whether the directory has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine

from app.store.sql.connect import WRITES

T = TypeVar("T")
Work = Callable[[Connection], T]
_Asked = tuple["Future[Any]", Callable[[], Any]]


class Visits:
    """Who reads and who writes have a thread each, as somebody else may keep the file locked for those who write."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers: Final = _Thread()
        self._writers: Final = _Thread()

    async def make(self, work: Work[T], *, writes: bool) -> T:
        """What `work` gives, committed. One that began goes on to its end also when nobody waits for it any more."""
        thread = self._writers if writes else self._readers
        return await asyncio.wrap_future(thread.ask(partial(self._transaction, work, {WRITES: writes})))

    def close(self) -> None:
        """Let go of the connections, and of the threads when they are done."""
        self._readers.end()
        self._writers.end()
        self._engine.dispose()

    def _transaction(self, work: Work[T], options: dict[str, bool]) -> T:
        with self._engine.connect().execution_options(**options) as connection, connection.begin():
            return work(connection)


class _Thread:
    """A daemon, as a disk that hangs must not keep the process. It begins when it is asked for something."""

    def __init__(self) -> None:
        self._asked: Final[SimpleQueue[_Asked | None]] = SimpleQueue()
        self._began = False

    def ask(self, work: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()
        self._asked.put((answer, work))
        if not self._began:
            self._began = True
            Thread(target=self._serve, name="homing-sqlite", daemon=True).start()
        return answer

    def end(self) -> None:
        self._asked.put(None)

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            answer, work = asked
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(work())
                except BaseException as error:  # noqa: BLE001 - who asked gets it
                    answer.set_exception(error)
