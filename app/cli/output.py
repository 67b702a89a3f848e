"""How the command line speaks: results on standard output, everything else on standard error, and exit codes."""

from __future__ import annotations

from enum import IntEnum

from rich.console import Console

out = Console(highlight=False, soft_wrap=True)
"""Results; the only thing a script has to read."""
err = Console(stderr=True, highlight=False, soft_wrap=True)
"""Progress, warnings and errors."""


class Exit(IntEnum):
    """What the exit code of a command means."""

    OK = 0
    FAILED = 1
    USAGE = 2
    TIMED_OUT = 3
    CANCELLED = 4
    UNSENT = 5
    UNREACHABLE = 6
    UNEXPECTED = 7
    INTERRUPTED = 130


class Stop(Exception):  # noqa: N818 - it ends a command, which need not be an error
    """End the command with this sentence on standard error, if there is one, and this exit code."""

    def __init__(self, sentence: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(sentence)
        self.code = code


def complain(sentence: str) -> None:
    """One sentence on standard error."""
    tell(err, f"homing: {sentence}")


def tell(console: Console, line: str) -> None:
    """Print a line that may quote others: it is never taken as markup, nor may it move the cursor."""
    console.print(plain(line), markup=False)


def plain(text: str) -> str:
    """The text without what could move the cursor or begin a line."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
