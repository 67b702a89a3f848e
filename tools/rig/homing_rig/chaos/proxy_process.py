"""Fault proxies in a process of their own: what they carry takes no time from the loop of callers and devices."""

from __future__ import annotations

import asyncio
import itertools
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import orjson

from homing_rig.chaos.options import ChaosError
from homing_rig.programs import environment

_ANSWER_SECONDS: Final = 30.0
"""A bound against hanging: the process may be short of a processor."""
_END_SECONDS: Final = 5.0


class ProxyProcess:
    """Opens proxies in a process that begins with the first one. Async context manager: at its end all are closed.

    The process ends with the one that began it, even by SIGKILL. What it has to complain of stands in `log`.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: Process | None = None
        self._numbers = itertools.count()
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    @property
    def pid(self) -> int:
        """The id of the process; ChaosError when there is none yet."""
        if self._process is None:
            raise ChaosError("no proxy was opened")
        return self._process.pid

    async def open(self, target: int, *, seed: int = 0) -> RemoteProxy:
        """Open a proxy that leads to this port; ChaosError when the process ends or never answers."""
        said = await self.call("open", 0, target, seed)
        return RemoteProxy(said["port"], said["proxy"], self)

    async def call(self, name: str, proxy: int, argument: float = 0, seed: int = 0) -> dict[str, Any]:
        """The answer to a call of `proxy_server`; ChaosError when there is none."""
        async with self._turn:
            if self._process is None:
                self._process = await self._begin()
            number = next(self._numbers)
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    return await _ask(self._process, number, name, proxy, argument, seed)
        said = self._log.read_text("utf-8", errors="replace")
        raise ChaosError(f"the process of the fault proxies does not answer: {said[-1500:]}")

    async def _begin(self) -> Process:
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "homing_rig.chaos.proxy_server"),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env=environment({}),
            )


async def _ask(process: Process, number: int, *call: object) -> dict[str, Any]:
    if process.stdin is None or process.stdout is None:
        raise ChaosError("the process of the fault proxies has no pipes")
    process.stdin.write(orjson.dumps([number, *call], option=orjson.OPT_APPEND_NEWLINE))
    await process.stdin.drain()
    while line := await process.stdout.readline():
        said: dict[str, Any] = orjson.loads(line)
        if said["number"] == number:  # not the answer to a call that was given up
            return said
    raise ConnectionResetError("the pipe was closed")


@dataclass(frozen=True, slots=True)
class RemoteProxy:
    """A `FaultProxy` of a `ProxyProcess`.

    A call returns when it has taken effect, and returns how many connections were open then.
    """

    port: int
    """The port to which clients connect."""
    number: int
    process: ProxyProcess

    async def lead_to(self, port: int) -> int:
        """Lead connections to this port that are made from now on."""
        return await self._do("lead_to", port)

    async def latency(self, delay: timedelta) -> int:
        """Deliver later, in order."""
        return await self._do("latency", delay.total_seconds())

    async def blackhole(self) -> int:
        """Pass nothing and tell nobody."""
        return await self._do("blackhole")

    async def reset(self) -> int:
        """Cut all connections with RST, once."""
        return await self._do("reset")

    async def heal(self) -> int:
        """End all faults."""
        return await self._do("heal")

    async def _do(self, name: str, argument: float = 0) -> int:
        said = await self.process.call(name, self.number, argument)
        return int(said["met"])
