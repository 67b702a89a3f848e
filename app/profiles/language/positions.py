"""On which line of a TOML text each key, table and element stands. tomllib reads TOML and does not tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

Location = tuple[str | int, ...]
"""The way to a value: names of keys, and indexes in lists and arrays of tables."""

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY: Final = re.compile(r"""[ \t]*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*""")
_STRING: Final = re.compile(r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\'''', re.DOTALL)
_SCALAR: Final = re.compile(r"[^,\]}\n#]*")


def lines_of(text: str) -> Mapping[Location, int]:
    """The line, from 1 on, of everything in a TOML text that tomllib has read without complaint."""
    scanner = _Scanner(text.replace("\r\n", "\n"))
    scanner.document()
    return scanner.lines


def line_at(lines: Mapping[Location, int], location: Location) -> int:
    """The line of a location, or of the innermost thing around it that stands in the text."""
    while location and location not in lines:
        location = location[:-1]
    return lines.get(location, 1)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[Location, int] = {}
        self._text = text
        self._at = 0
        self._tables: dict[Location, int] = {}
        """The number of times that each array of tables was begun so far."""

    def document(self) -> None:
        table: Location = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _header(self) -> Location:
        start, brackets = self._at, 2 if self._text.startswith("[[", self._at) else 1
        self._at += brackets
        names = self._names()
        self._at += brackets
        around: Location = ()
        for name in names[:-1]:
            around = self._inside((*around, name))
        place = (*around, names[-1])
        self._note(place, start)
        if brackets == 1:
            return place
        self._tables[place] = self._tables.get(place, 0) + 1
        self._note(self._inside(place), start)
        return self._inside(place)

    def _inside(self, place: Location) -> Location:
        return (*place, self._tables[place] - 1) if place in self._tables else place

    def _pair(self, table: Location) -> None:
        start = self._at
        place = table
        for name in self._names():
            place = (*place, name)
            self._note(place, start)
        self._at += 1  # the sign of equality
        self._value(place)

    def _names(self) -> list[str]:
        names = []
        while (found := _KEY.match(self._text, self._at)) is not None:
            names.append(found[1].strip("\"'"))
            self._at = found.end()
            if not self._text.startswith(".", self._at):
                break
            self._at += 1
        return names

    def _value(self, place: Location) -> None:
        self._skip(_BLANK)
        match self._text[self._at : self._at + 1]:
            case "[":
                self._list(place)
            case "{":
                self._inline_table(place)
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_SCALAR)

    def _list(self, place: Location) -> None:
        index = 0
        self._at += 1
        while self._further("]"):
            self._note((*place, index), self._at)
            self._value((*place, index))
            index += 1

    def _inline_table(self, place: Location) -> None:
        self._at += 1
        while self._further("}"):
            self._pair(place)

    def _further(self, end: str) -> bool:
        """True if another element follows; else the closing bracket is behind us."""
        self._skip(_BLANK)
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip(_BLANK)
        if self._at < len(self._text) and not self._text.startswith(end, self._at):
            return True
        self._at += 1
        return False

    def _note(self, place: Location, at: int) -> None:
        self.lines.setdefault(place, self._text.count("\n", 0, at) + 1)

    def _skip(self, what: re.Pattern[str]) -> None:
        found = what.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
