"""Trials of profiles that this node does not speak, each in a process of its own that is killed if it takes long."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from app.core.clock import IdFactory
from app.core.errors import CapacityError, InvalidInputError, UnavailableError
from app.core.sizes import MIB
from app.kernel import Kernel

SECONDS: Final = 10.0
"""A process needs half a second of them to begin, and more on a busy machine; its CPU time is bounded by itself."""
MODULE: Final = "app.profiles.tools.draft"
MOST_MEMORY: Final = 1024 * MIB
"""The address space of a process beside a node whose own memory has no bound."""
LEAST_MEMORY: Final = 96 * MIB
"""The least address space of such a process. The largest of the shipped profiles takes 60 MiB."""
GIVEN: Final = ("PATH", "PYTHONPATH", "LANG", "LC_ALL")
"""The variables that a process that tries profiles is given: others of this environment may have secrets."""


class DraftTrials:
    """Tries one draft of a profile at a time. `now_us` and `new_ulid` are of the command that is made up for it."""

    def __init__(
        self, now_us: Callable[[], int], new_ulid: IdFactory, command: tuple[str, ...], seconds: float
    ) -> None:
        self._now_us = now_us
        self._new_ulid = new_ulid
        self._command = command
        self._seconds = seconds
        self._busy = False

    async def run(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `app.profiles.tools.draft` says; CapacityError while another one is tried.

        InvalidInputError for a profile that takes too much time or memory, and for what is asked of it.
        """
        if self._busy:
            raise CapacityError("another profile is being tried on this node, and only one may be at once")
        self._busy = True
        try:
            answer = await self._answer({**asked, "now": self._now_us(), "ulid": self._new_ulid()})
        finally:
            self._busy = False
        if "invalid" in answer:
            field, reason = answer["invalid"]
            raise InvalidInputError(field, reason)
        return answer

    async def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={name: os.environ[name] for name in GIVEN if name in os.environ},
            )
        except OSError as error:
            raise UnavailableError(f"no process for a trial can be begun: {error.strerror}") from None
        try:
            async with asyncio.timeout(self._seconds):
                said, _ = await process.communicate(orjson.dumps(question))
        except TimeoutError:
            raise InvalidInputError("toml", f"takes longer than {self._seconds:g} s to be tried") from None
        finally:
            await _end(process)
        if process.returncode:
            raise InvalidInputError("toml", "takes too much time or memory to be tried")
        return dict(orjson.loads(said))


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def memory_of_trial(process_bytes: int) -> int:
    """Return the bytes that a trial may take beside a node that may take so many: a quarter. 0 has no bound."""
    return min(max(process_bytes // 4, LEAST_MEMORY), MOST_MEMORY) if process_bytes else MOST_MEMORY


def open_drafts(kernel: Kernel) -> DraftTrials:
    """The trials of this node."""
    memory = memory_of_trial(kernel.settings.broker.max_process_bytes)
    command = (sys.executable, "-m", MODULE, str(memory))
    return DraftTrials(kernel.now_us, kernel.adapters.new_ulid, command, SECONDS)
