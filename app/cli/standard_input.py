"""Standard input, of which a verb reads all, or a line. Whoever began the verb may have closed it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO, TypeVar

from app.cli.output import Stop
from app.runtime.exits import Exit

T = TypeVar("T")


def read_all() -> str:
    """All of it; Stop where it is closed, or is no text."""
    return _read(lambda file: file.read())


def read_bytes(most: int) -> bytes:
    """Up to so many bytes of it; Stop where it is closed."""
    return _read(lambda file: file.buffer.read(most))


def read_line(most: int) -> str:
    """Up to so many characters of its first line, without the end of that; Stop as `read_all`."""
    return _read(lambda file: file.readline(most + 2)).rstrip("\r\n")


def _read(read: Callable[[TextIO], T]) -> T:
    if sys.stdin is None:
        raise Stop("standard input is closed, and something is to be read from it", Exit.USAGE)
    try:
        return read(sys.stdin)
    except UnicodeDecodeError as error:
        raise Stop(f"standard input is not {error.encoding.upper()}", Exit.USAGE) from None
