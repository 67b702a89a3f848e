"""The output of the command line: results on standard output, the rest on standard error, and exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from app.runtime.exits import Exit

if TYPE_CHECKING:
    from rich.console import Console


class StandardStream:
    """A standard stream. rich, which takes a tenth of a short verb to import, draws on it what is more than a line."""

    def __init__(self, *, is_err: bool) -> None:
        self._is_err = is_err

    @cached_property
    def console(self) -> Console:
        """For tables, bars and what moves."""
        from rich.console import Console

        return Console(stderr=self._is_err, highlight=False, soft_wrap=True)

    @property
    def is_terminal(self) -> bool:
        """True if somebody looks at it."""
        return self._file is not None and self._file.isatty()

    def line(self, text: str) -> None:
        """Print a line as it is. What nobody can be told on standard error is told nobody."""
        file = self._file
        if file is None:
            if self._is_err:
                return
            raise Stop("standard output is closed")
        try:
            file.write(f"{text}\n")
            file.flush()
        except OSError as error:
            if self._is_err or isinstance(error, BrokenPipeError):
                self._silence()
                sys.exit(1)  # whoever read has what they wanted, as head has
            raise self.full(error) from None

    def full(self, error: OSError) -> Stop:
        """The end of a command whose output cannot be written; nothing more is."""
        self._silence()
        return Stop(f"standard output cannot be written: {error.strerror}")

    def _silence(self) -> None:
        """Python would complain once more when it ends."""
        if self._file is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._file.fileno())

    @property
    def _file(self) -> TextIO | None:
        """The file; None where whoever began the command has closed it."""
        return sys.stderr if self._is_err else sys.stdout


out = StandardStream(is_err=False)
"""Results; the only thing a script has to read."""
err = StandardStream(is_err=True)
"""Progress, warnings and errors."""


class Form(StrEnum):
    """The form in which results are printed."""

    HUMAN = "human"
    JSON = "json"
    NDJSON = "ndjson"


class Stop(Exception):  # noqa: N818 - it ends a command, which need not be an error
    """End the command with this sentence on standard error, if there is one, and this exit code."""

    def __init__(self, sentence: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(sentence)
        self.code = code


def needs_terminal(instead: str) -> None:
    """Return where somebody can be asked for a secret; else Stop, which names the option to give it by."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise Stop(f"there is no terminal to ask at: give it on standard input, with {instead}", Exit.USAGE)


def complain(sentence: str) -> None:
    """One sentence on standard error."""
    tell(err, f"homing: {sentence}")


def tell(stream: StandardStream, line: str) -> None:
    """Print a line that may quote others: it may not move the cursor."""
    stream.line(plain(line))


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
        out.line(written(list(values)))
        return
    if form is Form.NDJSON:
        for one in values:
            out.line(written(one))
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
    out.console.print(shown)


def _aligned(rows: Sequence[Sequence[str]]) -> None:
    """A line for each row, however long it is: whoever reads a pipe has no width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        out.line("  ".join(padded).rstrip())
