"""One background thread that does what it is asked to, in order. It never holds up the end of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", bool]


class Worker:
    """Not an executor of the standard library: those wait for their threads at exit, and a disk may hang for ever."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: Thread | None = None

    def do(self, work: Callable[[], _Result], *, at_all_events: bool = True) -> asyncio.Future[_Result]:
        """Have it done in the thread, after all that was asked before; the future of what it returns or raises.

        Not `at_all_events` means that it never begins once the future was cancelled.
        """
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, future, at_all_events))
        return future

    def stop(self) -> None:
        """Let the thread end when it has done what it was asked; does not wait for that."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future, at_all_events = job
            if future.cancelled() and not at_all_events:
                continue
            settle: Callable[[], None]
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - whoever awaits the future gets it
                settle = _failing(future, error)
            else:
                settle = _succeeding(future, result)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                future.get_loop().call_soon_threadsafe(settle)
            del job, work, future, settle


def _succeeding(future: asyncio.Future[Any], result: object) -> Callable[[], None]:
    def settle() -> None:
        if not future.done():
            future.set_result(result)

    return settle


def _failing(future: asyncio.Future[Any], error: BaseException) -> Callable[[], None]:
    def settle() -> None:
        if not future.done():
            future.set_exception(error)

    return settle
