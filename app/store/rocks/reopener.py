"""Opens a RocksDB again whose disk has failed: after such an error it takes nothing more until it was closed.

It is not closed before the disk takes something again, so that reading goes on as long as it can.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

from app.core.errors import HomingError, StoreUnavailableError
from app.runtime.tasks import end

AGAIN_SECONDS: Final = 1.0
PROBE: Final = "homing-probe"
PROBE_BYTES: Final = 256 * 1024

_log = structlog.get_logger(__name__)


class Reopener:
    """`close` and `reopen` change what everybody uses; nobody does meanwhile. `reopen` raises HomingError.

    `broken` tells whether the last write failed: if not, it has come back by itself. `check` raises HomingError where
    the folder is not the one that is open: to close it would write what is in memory to the wrong place.
    """

    def __init__(
        self,
        folder: Path,
        what: str,
        *,
        broken: Callable[[], bool],
        check: Callable[[], None],
        close: Callable[[], Awaitable[None]],
        reopen: Callable[[], Awaitable[None]],
    ) -> None:
        self._folder = folder
        self._what = what
        self._broken = broken
        self._check = check
        self._close = close
        self._reopen = reopen
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self._mending: asyncio.Task[None] | None = None
        self._is_shut = False

    @contextmanager
    def using(self) -> Iterator[None]:
        """It stays open meanwhile; StoreUnavailableError while it is being opened again."""
        if self._is_shut:
            raise StoreUnavailableError(f"{self._what} is being opened again, as its disk had failed")
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    def failed(self) -> None:
        """Something could not be written: look after it."""
        if self._mending is None:
            self._mending = asyncio.create_task(self._mend(), name="rocks mender")

    async def close(self) -> None:
        """Leave it as it is."""
        if self._mending is not None:
            await end([self._mending])

    async def _mend(self) -> None:
        try:
            await asyncio.sleep(AGAIN_SECONDS)
            while self._broken():
                if await asyncio.to_thread(self._is_back):
                    await self._open_again()
                else:
                    await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._mending = None

    def _is_back(self) -> bool:
        try:
            self._check()
        except HomingError as error:
            _log.warning("events_not_open", reason=str(error))
            return False
        return takes_something(self._folder)

    async def _open_again(self) -> None:
        self._is_shut = True
        await self._unused.wait()
        await self._close()
        while True:
            try:
                await self._reopen()
            except HomingError as error:
                _log.warning("events_not_open", reason=str(error))
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                break
        self._is_shut = False
        _log.warning("events_reopened")


def takes_something(folder: Path) -> bool:
    """True if the disk takes what is written to it."""
    probe = folder / PROBE
    try:
        with probe.open("wb") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return True
