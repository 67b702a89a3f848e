"""Calls of a database: each has a budget, and errors of drivers end here, without what was asked or sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.errors import DirectoryUnavailableError

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]

NO_PLACE: Final = "all connections to it are in use"


class Calls:
    """Calls of one database. `options` of a call are SQLAlchemy's execution options of its connection."""

    def __init__(self, engine: AsyncEngine, budget: timedelta) -> None:
        self._engine = engine
        self._budget = budget
        self._late: set[asyncio.Task[Any]] = set()

    async def transaction(self, work: Work[T], *, budgets: float = 1, **options: Any) -> T:
        """What `work` gives, committed; DirectoryUnavailableError when that took longer than so many budgets.

        A call that is late is not waited for: a driver may take long to notice that nobody answers. Its connection is
        not used again.
        """
        seconds = self._budget.total_seconds() * budgets
        task = asyncio.ensure_future(self._transaction(work, options))
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done():
                self._let_go(task)
        if not task.done():
            raise DirectoryUnavailableError(f"the access directory did not answer within {seconds:.3g} s")
        return task.result()

    async def close(self) -> None:
        """Let go of all connections. Those of late calls follow when their driver gives up."""
        if self._late:
            await asyncio.wait(self._late, timeout=self._budget.total_seconds())
        await self._engine.dispose()

    async def _transaction(self, work: Work[T], options: dict[str, Any]) -> T:
        try:
            async with self._engine.connect() as plain:
                connection = await plain.execution_options(**options)
                async with connection.begin():
                    return await work(connection)
        except (SQLAlchemyError, OSError) as error:
            raise unavailable(error, self._engine) from None

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
