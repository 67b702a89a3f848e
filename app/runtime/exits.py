"""Exit codes of the `homing` command: docs/cli.md."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The meaning of a command's exit code."""

    OK = 0
    FAILED = 1
    USAGE = 2
    TIMED_OUT = 3
    CANCELLED = 4
    UNSENT = 5
    UNREACHABLE = 6
    UNEXPECTED = 7
    NOT_ALLOWED = 8
    EMPTY = 9
    INTERRUPTED = 130
