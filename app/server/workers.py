"""Several nodes behind one port: starts a process per node, restarts the ones that die, stops them together."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import structlog

from app.core.errors import ConfigurationError
from app.runtime.exits import Exit
from app.server.sockets import url_of
from app.settings import Settings, load_settings
from app.store.engine import kind_of

STABLE: Final = timedelta(seconds=10)
"""A worker that lived that long started well: the next one may follow it at once."""
LONGEST_PAUSE: Final = 5.0
STOP_SECONDS: Final = 45.0
"""More than a node may take to stop (open requests, then its steps); after that it is killed."""


def check_store(count: int, settings: Settings) -> None:
    """ConfigurationError when the store of the settings holds only one node."""
    if not kind_of(settings.store.url).shared:
        raise ConfigurationError(
            f"HOMING_STORE_URL: {kind_of(settings.store.url)}:// is for one process; "
            f"--workers {count} needs redis://… or rediss://…"
        )


def run_workers(
    count: int,
    settings: Settings,
    listener: socket.socket,
    own: Sequence[socket.socket] = (),
    probed: Sequence[socket.socket] = (),
    *,
    stable: timedelta = STABLE,
) -> int:
    """Run `count` workers on the listening socket until SIGTERM or SIGINT; return the exit code.

    `own` has one socket more for each of them, or none: whoever wants a certain worker, as for its metrics, asks there.
    So has `probed`, for health and metrics alone. A worker that lived for `stable` has started well.
    """
    names = [f"{settings.node.id}-{number}" if settings.node.id else "" for number in range(1, count + 1)]
    for name in names:
        load_settings(node={"id": name})
    return asyncio.run(_Supervisor(listener, own, probed, stable).run(names))


class _Supervisor:
    def __init__(
        self,
        listener: socket.socket,
        own: Sequence[socket.socket],
        probed: Sequence[socket.socket],
        stable: timedelta,
    ) -> None:
        self._listener = listener
        self._own = own
        self._probed = probed
        self._stable = stable.total_seconds()
        self._stopping = asyncio.Event()
        self._code: int = Exit.OK
        self._log = structlog.get_logger()

    async def run(self, names: list[str]) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        self._log.info("workers_start", count=len(names), url=url_of(self._listener))
        async with asyncio.TaskGroup() as group:
            for place, name in enumerate(names):
                listeners = [self._listener, *self._own[place : place + 1]]
                group.create_task(self._keep(name, listeners, self._probed[place : place + 1]))
        return self._code

    async def _keep(self, name: str, listeners: Sequence[socket.socket], probed: Sequence[socket.socket]) -> None:
        """Keep one worker running. One that cannot even start the first time stops all: it would never start."""
        loop = asyncio.get_running_loop()
        pause, ever_lived = 0.0, False
        while not self._stopping.is_set():
            began = loop.time()
            code = await self._run_one(name, [one.fileno() for one in listeners], [one.fileno() for one in probed])
            if self._stopping.is_set():
                return
            # However slow the machine: what ends with USAGE has found out that it cannot start, and has not lived.
            lived = code != Exit.USAGE and loop.time() - began >= self._stable
            ever_lived = ever_lived or lived or code < 0
            if not ever_lived:
                self._code = Exit.USAGE if code == Exit.USAGE else Exit.FAILED
                self._stopping.set()
                return
            pause = 0.0 if lived else min(LONGEST_PAUSE, pause * 2 or 0.2)
            self._log.error("worker_died", node_id=name or None, exit_code=code, restarts_in=pause)
            await self._sleep(pause)

    async def _run_one(self, name: str, descriptors: Sequence[int], probed: Sequence[int]) -> int:
        # In a session of its own, so that Ctrl-C reaches it through us alone. Its standard input ends when we do.
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "app.cli", "serve", "--node-id", name),
            *(f"--listen-fd={one}" for one in descriptors),
            *(f"--ops-fd={one}" for one in probed),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(*descriptors, *probed),
            start_new_session=True,
        )
        ended = asyncio.create_task(worker.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            worker.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await asyncio.shield(ended)
            except TimeoutError:
                self._log.error("worker_killed", pid=worker.pid, after_seconds=STOP_SECONDS)
                worker.kill()
                self._code = Exit.FAILED
        return await ended

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass
