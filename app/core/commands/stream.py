"""The changes of all commands together, as a stream over the whole cluster tells them.

They are numbered like what happens to one command (history.py). Besides, each has a position: the instant at which the
store took it, and a number within its partition. Those of a command are in one partition, and so in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from app.core.commands.command import CommandState
from app.core.identifiers import PARTITIONS

MOST_HAPPENINGS: Final = 1000
"""The happenings that are kept of a partition, roughly; lua/parts/news.lua has the number, too."""
MOST_TEXT: Final = 1024
"""Bytes of a progress or error that are told here; a longer one stands with its command. Likewise."""
ROUND: Final = 16
"""The number of a partition that are read at once: of all of them 4,096, so that a reply stays short."""
POSITION: Final = "([0-9]{1,15})-([0-9]{1,10})\\.([0-9]{3})"
_POSITION: Final = re.compile(POSITION, re.ASCII)
_LAST: Final = 2**63
"""A number within a millisecond that none has."""


class CommandChangeKind(StrEnum):
    """The kind of a change."""

    PROGRESS = "progress"
    OUTCOME = "outcome"
    LATE = "late"
    VERIFIED = "verified"


class Mark(NamedTuple):
    """A partition was read so far: up to this millisecond, and this number within it."""

    ms: int
    number: int


class Position(NamedTuple):
    """The place of a change among all; those of one partition are in order."""

    ms: int
    number: int
    partition: int

    def __str__(self) -> str:
        """As callers know it."""
        return f"{self.ms}-{self.number}.{self.partition:03d}"

    @property
    def mark(self) -> Mark:
        """The mark says that it was read."""
        return Mark(self.ms, self.number)

    @classmethod
    def parse(cls, text: str) -> Position:
        """The opposite of `str`; ValueError."""
        found = _POSITION.fullmatch(text)
        if found is None or int(found[3]) >= PARTITIONS:
            raise ValueError(text)
        return cls(int(found[1]), int(found[2]), int(found[3]))


@dataclass(frozen=True, slots=True)
class CommandChange:
    """Something that happened to a command, `at` µs since the epoch on the store's clock.

    `state` is the command's. `text` is a JSON text: the progress, the error of an outcome, state and error of a late
    response, state and evidence of what a probe found; None where there is none, or a long one.
    """

    position: Position
    kind: CommandChangeKind
    command_id: str
    number: int
    at: int
    state: CommandState
    device_id: str
    profile: str
    method: str
    text: bytes | None


class Marks:
    """The marks up to which each partition was read."""

    def __init__(self, marks: Iterable[Mark]) -> None:
        self._marks: Final = list(marks)

    @classmethod
    def since(cls, ms: int) -> Marks:
        """Nothing was, from this millisecond on."""
        return cls([Mark(ms - 1, _LAST)] * PARTITIONS)

    @classmethod
    def after(cls, position: Position) -> Marks:
        """All before its millisecond was, and in its partition all up to it. Others of that millisecond come again.

        So does the first of the first partition: its position is also that of a bookmark, whose reader has not seen it.
        """
        marks = cls.since(position.ms)
        if position.number or position.partition:
            marks.read(position.partition, position.mark)
        return marks

    def copy(self) -> Marks:
        """One that goes on by itself."""
        return Marks(self._marks)

    def __getitem__(self, partition: int) -> Mark:
        return self._marks[partition]

    def __iter__(self) -> Iterator[Mark]:
        return iter(self._marks)

    def read(self, partition: int, mark: Mark) -> bool:
        """It was read up to there; whether that is news."""
        news = mark > self._marks[partition]
        if news:
            self._marks[partition] = mark
        return news


class PartitionRead(NamedTuple):
    """The changes that were read of a partition, up to `last`; there may be more behind it."""

    changes: Sequence[CommandChange]
    last: Mark
    more: bool


@dataclass(frozen=True, slots=True)
class StreamPage:
    """Changes in their order, and how far they go; if complete, all from before the millisecond `until`."""

    changes: Sequence[CommandChange]
    marks: Marks
    until: int
    complete: bool
    whole: int = 0
    """Some from before this millisecond may be missing, and none since; 0 when the store knows of nothing missing."""
    kept: bool = True
    """True if what happens next is written."""


def page_of(
    marks: Marks, parts: Mapping[int, PartitionRead], now_ms: int, *, whole: int = 0, kept: bool = True
) -> StreamPage:
    """Put together what was read after `marks` at `now_ms`.

    What comes after the end of a partition that has more is left for the next page, so that who was told of a position
    has been told of all before its millisecond.
    """
    until = min((part.last.ms for part in parts.values() if part.more), default=None)
    marks, found = marks.copy(), list[CommandChange]()
    for partition, (changes, last, _) in parts.items():
        if until is None or last.ms <= until:
            found += changes
            marks.read(partition, last)
        else:
            some = [one for one in changes if one.position.ms <= until]
            found += some
            if some:
                marks.read(partition, some[-1].position.mark)
    found.sort(key=_position)
    return StreamPage(found, marks, now_ms if until is None else until, until is None, whole, kept)


def _position(one: CommandChange) -> Position:
    return one.position
