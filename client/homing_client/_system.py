"""The only place that reads this machine's clocks, sleeps, and makes keys; everybody else is given them."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

monotonic = time.monotonic
"""Seconds since an arbitrary point."""

wall = time.time
"""Seconds since the Unix epoch."""


def chance() -> float:
    """A number from 0 to 1, for jitter."""
    return int.from_bytes(os.urandom(6)) / 2**48


def new_key() -> str:
    """An idempotency key that nobody else makes."""
    return os.urandom(16).hex()


def new_consumer_name() -> str:
    """A name that no other program gives itself, and that says where it runs: 64 bytes at most."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{os.urandom(2).hex()}"


async def async_sleep(seconds: float) -> None:
    """Let other tasks run meanwhile."""
    import asyncio  # noqa: PLC0415 - it takes longer to import than all of this package

    await asyncio.sleep(seconds)


def running_loop() -> AbstractEventLoop:
    """Return the event loop that runs this."""
    import asyncio  # noqa: PLC0415 - likewise

    return asyncio.get_running_loop()


def async_within(seconds: float) -> AbstractAsyncContextManager[object]:
    """Raise TimeoutError where what is done inside takes longer."""
    import asyncio  # noqa: PLC0415 - likewise

    return asyncio.timeout(seconds)


def within(seconds: float, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """All of these; TimeoutError after the first one that comes later than that."""
    end = monotonic() + seconds
    for one in chunks:
        if monotonic() > end:
            raise TimeoutError
        yield one


async def async_together(works: Sequence[Callable[[], Any]], stop: Callable[[], None]) -> None:
    """Do all of these at the same time, and raise the first failure when all have ended."""
    import asyncio  # noqa: PLC0415 - likewise

    del stop  # whoever is cancelled cancels them
    ends = await asyncio.gather(*(one() for one in works), return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end


def together(works: Sequence[Callable[[], Any]], stop: Callable[[], None]) -> None:
    """Do each of these in a thread, and raise the first failure when all have ended. An interrupt calls `stop`."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(one,), daemon=True) for one in works]
    for one in threads:
        one.start()
    try:
        for one in threads:
            one.join()
    except BaseException:
        stop()
        for one in threads:
            one.join()
        raise
    if failures:
        raise failures[0]


class AsyncBackground:
    """Work that runs from now on beside whoever has begun it, who joins it in the end."""

    def __init__(self, work: Callable[[], Any]) -> None:
        import asyncio  # noqa: PLC0415 - likewise

        self._task = asyncio.create_task(work())

    async def join(self) -> None:
        """Wait for its end, and raise what it raised."""
        await self._task

    def abandon(self) -> None:
        """End it; nobody will join it."""
        self._task.cancel()


class Background:
    """As AsyncBackground, in a thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for its end, and raise what it raised."""
        self._thread.join()
        if self._failures:
            raise self._failures[0]

    def abandon(self) -> None:
        """Nobody will join it. A thread cannot be ended; it finds out by itself that its work is over."""

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - whoever joins raises it
            self._failures.append(error)


def sleep(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)


class AsyncInbox:
    """A place where others put what one task waits for."""

    def __init__(self) -> None:
        import asyncio  # noqa: PLC0415 - likewise

        self._items: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, item: object) -> None:
        """Put something in."""
        self._items.put_nowait(item)

    async def get(self, seconds: float) -> Any:  # noqa: ANN401 - whatever was put in
        """Take out the first thing; None when there is none for so long."""
        import asyncio  # noqa: PLC0415 - likewise

        try:
            async with asyncio.timeout(seconds):
                return await self._items.get()
        except TimeoutError:
            return None

    def clear(self) -> None:
        """Forget what is in it."""
        while not self._items.empty():
            self._items.get_nowait()


class Inbox:
    """As AsyncInbox, for threads."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, item: object) -> None:
        """Put something in."""
        self._items.put(item)

    def get(self, seconds: float) -> Any:  # noqa: ANN401 - whatever was put in
        """Take out the first thing; None when there is none for so long."""
        try:
            return self._items.get(timeout=seconds)
        except queue.Empty:
            return None

    def clear(self) -> None:
        """Forget what is in it."""
        try:
            while True:
                self._items.get_nowait()
        except queue.Empty:
            return
