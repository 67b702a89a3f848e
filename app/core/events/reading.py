"""Reading a log: what is asked of one shard, and what it gives.

A cursor is a value: the position up to which each shard was read. It works on any node, and outlives all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from app.core.errors import InvalidInputError
from app.core.events.event import BEGINNING, END, Event, Position
from app.core.topics import matches

EVERYTHING: Final = ""
"""The text in the place of a filter that also matches topics that begin with `$`, which `#` does not."""
MOST_SCANNED: Final = 20_000
"""Events that one reading looks at, whether they fit or not: it bounds how long it takes."""
MOST_READ_BYTES: Final = 16 * 1024 * 1024
"""A reading ends with the event, or the block of events, with which it has values of so many bytes."""
MOST_PICKED: Final = 128
"""Events that one call reads by their positions."""

CURSOR: Final = "1(?:-[0-9a-z]{1,13}){1,256}"
"""The form of a cursor, as a regular expression for documentation."""
_CURSOR: Final = re.compile(CURSOR)
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Reading:
    """The reading of one shard: events that fit the filter, after one position and up to another one, both known.

    With `generation`, only those of this one are.
    """

    topic_filter: str = "#"
    after: Position = BEGINNING
    until: Position = END
    generation: int | None = None

    def matcher(self) -> Callable[[str], bool]:
        """Says whether events of a topic are read."""
        if not self.topic_filter:
            return lambda _topic: True
        if self.topic_filter == "#":
            return lambda topic: not topic.startswith("$")
        if "+" not in self.topic_filter and "#" not in self.topic_filter:
            return self.topic_filter.__eq__
        return partial(matches, self.topic_filter)


class Slice(NamedTuple):
    """Events of one shard in their order, and up to where the shard has been looked at; `more` when not to its end.

    Up to `lost` something was left out that cannot be read any more, or was forgotten; 0: nothing was.
    """

    events: Sequence[Event]
    position: Position
    more: bool
    lost: Position = BEGINNING


class ForgottenSpan(NamedTuple):
    """Behind one position and up to another one a log may have had events that it has forgotten."""

    after: Position
    until: Position


def forgotten_until(spans: Sequence[ForgottenSpan], after: Position, position: Position) -> Position:
    """The position up to which a reader misses what was forgotten, who comes from one to another; 0: nothing."""
    met = (one for one in spans if after < one.until and one.after < position)
    return max((min(one.until, position) for one in met), default=BEGINNING)


class Picked(NamedTuple):
    """Events by the positions that were asked for: all that are there.

    `damaged` are those that cannot be read any more. Of others up to `archived` nobody has looked for them in the cold
    tier, as this node has none; 0: what is not here is gone, or never was. `beside` are events that had to be read for
    them, and that nobody has asked for.
    """

    events: Mapping[Position, Event]
    damaged: Collection[Position] = ()
    archived: Position = BEGINNING
    beside: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class Cursor:
    """Up to where each shard of what is read was read: by database, and in it by number."""

    positions: tuple[Position, ...]

    def __str__(self) -> str:
        return "-".join(["1", *map(_base36, self.positions)])


def parse_cursor(text: str, shards: int) -> Cursor:
    """The cursor that was given out as this text; raises InvalidInputError when it is none of a database like this."""
    if not _CURSOR.fullmatch(text):
        raise InvalidInputError("cursor", f"{text[:64]!a} is none; allowed: what an answer of this API gave as one")
    positions = tuple(int(part, 36) for part in text.split("-")[1:])
    if len(positions) != shards:
        raise InvalidInputError(
            "cursor",
            f"is of a database with {len(positions)} shards; allowed: one of this one, with {shards}",
        )
    if max(positions) > END:
        raise InvalidInputError("cursor", f"{text[:64]!a} is none; allowed: what an answer of this API gave as one")
    return Cursor(positions)


def _base36(number: int) -> str:
    text = ""
    while True:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
        if not number:
            return text
