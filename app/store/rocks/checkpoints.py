"""A socket in a folder, over which a process of the same user gets a checkpoint while this one uses the folder.

Whoever connects is told one line of JSON, `{}` or `{"error": "…"}`, and finds the checkpoint in `checkpoint/` until the
connection ends. Its files are links to those of the store, so it costs no time and, at first, no room.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import structlog

from app.core.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

SOCKET: Final = "homing.sock"
CHECKPOINT: Final = "checkpoint"
ANSWER_SECONDS: Final = 60.0
"""The time that a checkpoint may take."""
LONGEST_SECONDS: Final = 6 * 3600.0
"""The time for which somebody may have a checkpoint, whose files take room that the store would give back."""
_LONGEST_ADDRESS: Final = 100
"""The longest address of a socket, in bytes: the system allows a little more."""

_log = structlog.get_logger(__name__)


class CheckpointServer:
    """Listens from `start` to `close`, one who asks at a time. `make` makes a checkpoint; StoreUnavailableError."""

    def __init__(self, folder: Path, make: Callable[[Path], Awaitable[None]]) -> None:
        self._folder = folder
        self._make = make
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.Task[None]] = {}
        """The task of who is served, and the one that lends."""

    async def start(self) -> None:
        """Listen, in a folder that this process has; where it cannot, that is in the log."""
        try:
            await asyncio.to_thread(self._remove)
            self._server = await asyncio.start_unix_server(self._serve, sock=_listener(self._folder))
        except OSError as error:
            _log.warning("checkpoints_off", reason=str(error))

    async def close(self) -> None:
        """Listen no more, and take back the checkpoint that somebody has."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for lending in self._serving.values():
            lending.cancel()
        if self._serving:
            await asyncio.wait(self._serving)
        with suppress(OSError):
            (self._folder / SOCKET).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if self._serving or task is None:
            await _tell(writer, {"error": "another backup is under way"})
            writer.close()
            return
        self._serving[task] = asyncio.create_task(self._lend(reader, writer))
        try:
            with suppress(asyncio.CancelledError):  # the folder is closed, and the connection ends
                await self._serving[task]
        finally:
            await asyncio.to_thread(self._remove)
            del self._serving[task]
            writer.close()

    async def _lend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.to_thread(self._remove)
            await self._make(self._folder / CHECKPOINT)
        except (OSError, StoreUnavailableError) as error:
            await _tell(writer, {"error": str(error)})
            return
        _log.info("checkpoint_made")
        await _tell(writer, {})
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(LONGEST_SECONDS):
                await reader.read(1)

    def _remove(self) -> None:
        for one in (self._folder / CHECKPOINT, self._folder / f"{CHECKPOINT}.tmp"):
            shutil.rmtree(one, ignore_errors=True)


async def _tell(writer: asyncio.StreamWriter, said: dict[str, str]) -> None:
    with suppress(OSError):
        writer.write(f"{json.dumps(said)}\n".encode())
        await writer.drain()


def connect_to(folder: Path) -> socket.socket:
    """A connection to the process that uses the folder; OSError."""
    with _addressed(folder) as (found, address):
        found.settimeout(ANSWER_SECONDS)
        found.connect(address)
    return found


def _listener(folder: Path) -> socket.socket:
    (folder / SOCKET).unlink(missing_ok=True)  # of a process that was killed
    with _addressed(folder) as (found, address):
        os.fchmod(found.fileno(), 0o600)  # the file is made with this mode
        found.bind(address)
    return found


@contextmanager
def _addressed(folder: Path) -> Iterator[tuple[socket.socket, str]]:
    """Yield a new socket, which is closed if the block fails, and its address: by the open folder if it is too long."""
    directory = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    found = socket.socket(socket.AF_UNIX)
    path = str(folder / SOCKET)
    try:
        yield found, path if len(os.fsencode(path)) <= _LONGEST_ADDRESS else f"/proc/self/fd/{directory}/{SOCKET}"
    except BaseException:
        found.close()
        raise
    finally:
        os.close(directory)
