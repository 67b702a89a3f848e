"""The handlers of `homing queue consume --exec`: for each event a process, in a group of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from tempfile import TemporaryFile
from typing import Final

from app.core.clock import Clock

LONGEST: Final = timedelta(minutes=10)
"""The time for which a handler keeps its event, as a living connection does, where four loans are not longer."""


class HandlerProcesses:
    """The handlers that run. Ctrl-C reaches the consumer alone, as they are in other groups."""

    def __init__(self, command: Sequence[str], clock: Clock) -> None:
        self._command = command
        self._clock = clock
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def run(self, event: bytes, loan: timedelta, extend: Callable[[], bool]) -> int | None:
        """Return its exit code, negative for a signal; None if `end` killed it. OSError where it cannot be started.

        `extend` is called three times in each loan while the handler runs, until it says False or too long has passed.
        The event is a file and no pipe, which who never reads it would fill.
        """
        with TemporaryFile() as given:
            given.write(event)
            given.seek(0)
            with self._lock:
                if self._ended.is_set():
                    return None
                process = subprocess.Popen(self._command, stdin=given, process_group=0)
                self._running.add(process)
        try:
            code = self._waited(process, loan, extend)
        finally:
            with self._lock:
                self._running.discard(process)
        return None if code and self._ended.is_set() else code

    def end(self) -> None:
        """Kill them, with what they have started, and begin no other."""
        with self._lock:
            self._ended.set()
            for one in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(one.pid, signal.SIGKILL)

    def _waited(self, process: subprocess.Popen[bytes], loan: timedelta, extend: Callable[[], bool]) -> int:
        until = self._clock.monotonic() + max(4 * loan, LONGEST).total_seconds()
        while self._clock.monotonic() < until:
            try:
                return process.wait(loan.total_seconds() / 3)
            except subprocess.TimeoutExpired:
                if not extend():
                    break
        return process.wait()
