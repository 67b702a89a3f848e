"""Group commit: what comes while one batch is written travels together in the next.

All work happens in one thread, one batch after the other, so what it changes needs no locks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from app.core.errors import StoreUnavailableError
from app.runtime.telemetry import Fill

Job = TypeVar("Job")
Result = TypeVar("Result")

MOST_WAITING: Final = 20_000
MOST_TOGETHER: Final = 256
"""Jobs of one batch: it bounds how long others wait for it."""


class GroupCommit(Generic[Job, Result]):
    """`write` takes the jobs of a batch, in the thread, and returns for each one its result or what it failed with."""

    def __init__(
        self, write: Callable[[Sequence[Job]], Sequence[Result | Exception]], what: str = "the event log"
    ) -> None:
        self._write = write
        self._what: Final = what
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="rocks writer")
        self._waiting: deque[tuple[Job, asyncio.Future[Result]]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._closed = False

    def fill(self) -> Fill:
        """Return how many jobs wait."""
        return Fill(len(self._waiting), MOST_WAITING)

    def submit(self, job: Job) -> asyncio.Future[Result]:
        """The result of a job; StoreUnavailableError at once when too many wait, or it is closed."""
        if self._closed:
            raise StoreUnavailableError(f"{self._what} is closed")
        if len(self._waiting) >= MOST_WAITING:
            raise StoreUnavailableError(f"{MOST_WAITING} writes wait for {self._what} already")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._writing is None:
            self._writing = asyncio.create_task(self._serve(), name=self._what)
        return future

    async def alone(self, work: Callable[[], None]) -> None:
        """Do something else in the thread, between two batches."""
        if self._closed:
            raise StoreUnavailableError(f"{self._what} is closed")
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Fail what waits, and return when the last batch is written."""
        self._closed = True
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(StoreUnavailableError(f"{self._what} is closed"))
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await asyncio.to_thread(self._thread.shutdown)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                taken = [self._waiting.popleft() for _ in range(min(MOST_TOGETHER, len(self._waiting)))]
                results: Sequence[Result | Exception]
                try:
                    results = await loop.run_in_executor(self._thread, self._write, [job for job, _ in taken])
                except Exception as error:  # noqa: BLE001 - those who wait are told, and the next batch is tried
                    results = [error] * len(taken)
                for (_, future), result in zip(taken, results, strict=True):
                    if future.done():
                        continue
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
        finally:
            self._writing = None
