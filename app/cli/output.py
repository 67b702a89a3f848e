"""How the command line speaks: results on standard output, everything else on standard error, and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import IntEnum, StrEnum
from typing import Any

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
    NOT_ALLOWED = 8
    INTERRUPTED = 130


class Form(StrEnum):
    """How results are printed."""

    HUMAN = "human"
    JSON = "json"
    NDJSON = "ndjson"


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


def written(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """JSON on one line."""
    return json.dumps(value)


def table(
    form: Form, values: Sequence[Any], row: Callable[[Any], Sequence[str]], columns: Sequence[str], *, head: bool = True
) -> None:
    """Print values: a row of cells each for people, a list of JSON values, or one JSON value a line."""
    if form is Form.JSON:
        out.print(written(list(values)), markup=False)
        return
    if form is Form.NDJSON:
        for one in values:
            out.print(written(one), markup=False)
        return
    rows = [[plain(cell) for cell in row(one)] for one in values]
    if not out.is_terminal:
        _aligned([list(columns), *rows] if head else rows)
        return
    from rich.table import Table
    from rich.text import Text

    shown = Table(*columns, box=None, pad_edge=False, show_header=head)
    for cells in rows:
        shown.add_row(*(Text(cell, overflow="fold") for cell in cells))
    out.print(shown)


def _aligned(rows: Sequence[Sequence[str]]) -> None:
    """A line for each row, however long it is: whoever reads a pipe has no width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        out.print("  ".join(padded).rstrip(), markup=False)
