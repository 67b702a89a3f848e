"""Calls of a database: each has a budget, and errors of drivers end here, without what was asked or sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.errors import DirectoryUnavailableError
from app.store.sql.driver.connect import WRITES
from app.store.sql.driver.visits import Visits

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]
Brief = Callable[[Connection], T]

NO_PLACE: Final = "all connections to it are in use"


class Calls:
    """Calls of one database. `options` of a call are SQLAlchemy's execution options of its connection."""

    def __init__(self, engine: AsyncEngine, budget: timedelta, visits: Visits | None = None) -> None:
        self._engine = engine
        self._visits = visits
        self._budget = budget
        self._late: set[asyncio.Task[Any]] = set()

    async def transaction(self, work: Work[T], *, budgets: float = 1, **options: Any) -> T:
        """Return the result of `work`, committed; DirectoryUnavailableError when that took longer than so many budgets.

        A call that is late is not waited for: a driver may take long to notice that nobody answers. Its connection is
        not used again.
        """
        return await self._within(self._budget.total_seconds() * budgets, self._transaction(work, options))

    async def brief(self, work: Brief[T], *, writes: bool = False) -> T:
        """`transaction`, for what is asked often and takes little, done as the database does it with least effort."""
        if self._visits is None:
            asked = self._transaction(lambda connection: connection.run_sync(work), {WRITES: writes})
        else:
            asked = self._visits.make(work, writes=writes)
        return await self._within(self._budget.total_seconds(), asked)

    async def _within(self, seconds: float, asked: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(asked)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done():
                self._let_go(task)
        if not task.done():
            raise DirectoryUnavailableError(f"the access directory did not answer within {seconds:.3g} s")
        try:
            return task.result()
        except (SQLAlchemyError, OSError) as error:
            raise unavailable(error, self._engine) from None

    async def close(self) -> None:
        """Let go of all connections. Those of late calls follow when their driver gives up."""
        if self._late:
            await asyncio.wait(self._late, timeout=self._budget.total_seconds())
        await self._engine.dispose()
        if self._visits is not None:
            self._visits.close()

    async def _transaction(self, work: Work[T], options: dict[str, Any]) -> T:
        async with self._engine.connect() as plain:
            connection = await plain.execution_options(**options)
            async with connection.begin():
                return await work(connection)

    def _let_go(self, task: asyncio.Task[Any]) -> None:
        self._late.add(task)
        task.add_done_callback(self._forget)
        task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # nobody waits for it any more


def unavailable(error: Exception, engine: AsyncEngine) -> DirectoryUnavailableError:
    """The driver's error in a sentence that holds no value that was sent, and no password."""
    if isinstance(error, PoolTimeoutError):
        reason = NO_PLACE
    elif isinstance(error, DBAPIError):
        reason = _reason(error.orig)
    else:
        reason = type(error).__name__
    password = engine.url.password
    if password:
        reason = reason.replace(str(password), "…")
    return DirectoryUnavailableError(f"the access directory is away: {reason}")


def _reason(error: BaseException | None) -> str:
    """The driver's main words, which name tables and hosts; its details name values, and are left out."""
    diagnosis = getattr(error, "diag", None)
    words = getattr(diagnosis, "message_primary", None) or str(error).partition("\n")[0]
    return f"{type(error).__name__}: {words[:300]}"
