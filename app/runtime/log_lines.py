"""The place of the records of the log, which may be full, or read by nobody any more: a node goes on without it."""

from __future__ import annotations

from threading import Lock
from typing import TextIO

import structlog


class LogLines:
    """Writes records, a line each, from any thread.

    One that cannot be written is lost, and what comes next says how many were: no part of a node has to see to that.
    """

    def __init__(self, file: TextIO | None) -> None:
        """None: whoever began the process has closed it."""
        self._file = file
        self._lock = Lock()
        self._lost = 0

    def msg(self, line: str) -> None:
        """Write a line, whatever its level. It raises nothing."""
        lost = self._written(line)
        if lost:
            structlog.get_logger().warning("log_lines_lost", count=lost)

    debug = info = warning = error = critical = exception = log = msg

    def _written(self, line: str) -> int:
        """Return how many lines were lost before this one, if it was written; else 0."""
        if self._file is None:
            return 0
        with self._lock:
            try:
                self._file.write(f"\n{line}\n" if self._lost else f"{line}\n")  # a part of a line may be there
                self._file.flush()
            except (OSError, ValueError):  # it is full, nobody reads it, or it was closed
                self._lost += 1
                return 0
            lost, self._lost = self._lost, 0
            return lost
