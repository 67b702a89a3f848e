"""Cursors of events, as text: which databases were read by which filter, and up to where.

`2.<filter>.<which>.<database>.<position>…~<database>.<position>…`, with positions in base 16. What 0.2.0 gave out says
positions alone (`1-…`): it is of whichever database is named beside it, else of the first one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NoReturn

from app.core.errors import InvalidInputError
from app.core.events.event import BEGINNING, END, Database, Position
from app.core.events.reading import Cursor, parse_cursor

_VERSION: Final = "2"
_ALL, _SOME = "a", "s"
_CURSOR: Final = re.compile("2\\.([0-9a-f]{8})\\.([as])\\.([a-z][a-z0-9_.~-]*)", re.ASCII)
_POSITION: Final = re.compile("[0-9a-f]{1,16}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a reading. `every`: all databases that there are, because none was named."""

    databases: tuple[str, ...]
    topic_filter: str
    every: bool


def room(databases: Sequence[Database]) -> int:
    """Bytes of the longest cursor of these databases."""
    return 16 + sum(34 + 17 * one.shards for one in databases)


def written(cursor: Cursor, scope: Scope, databases: Mapping[str, Database]) -> str:
    """The cursor as text."""
    parts, first = [], 0
    for name in scope.databases:
        behind = first + databases[name].shards
        parts.append(".".join((name, *[f"{one:x}" for one in cursor.positions[first:behind]])))
        first = behind
    return f"{_VERSION}.{_digest(scope.topic_filter)}.{_ALL if scope.every else _SOME}.{'~'.join(parts)}"


def parsed(text: str, scope: Scope, databases: Mapping[str, Database]) -> tuple[Scope, Cursor]:
    """Return what is read on, and where; InvalidInputError for another filter or database than `scope` names.

    Without a name in the question, the cursor's databases are read on. A database that is new is read from its
    beginning, where all of them are read.
    """
    if not text.startswith(f"{_VERSION}."):
        first = scope.databases[0]
        return Scope((first,), scope.topic_filter, every=False), parse_cursor(text, databases[first].shards)
    found = _CURSOR.fullmatch(text)
    if found is None:
        _none(text)
    if found[1] != _digest(scope.topic_filter):
        raise InvalidInputError(
            "cursor",
            "is of another topic filter; allowed: the `topic` that it was given for. To read by another one, begin "
            "with `from`",
        )
    places = dict(_places(part, text) for part in found[3].split("~"))
    every = found[2] == _ALL
    if not scope.every and set(places) != set(scope.databases):
        raise InvalidInputError(
            "cursor",
            f"is of database {', '.join(places)}; allowed: one of {scope.databases[0]}, or `database` left out",
        )
    names = scope.databases if every else tuple(places)
    positions: list[Position] = []
    for name in names:
        if name not in databases:
            raise InvalidInputError("cursor", f"is of database {name[:32]!a}, which is not there any more")
        shards = databases[name].shards
        known = places.get(name, (BEGINNING,) * shards)
        if len(known) != shards:
            raise InvalidInputError(
                "cursor", f"has {len(known)} shards of {name}; allowed: one of this database, with {shards}"
            )
        positions += known
    return Scope(names, scope.topic_filter, every), Cursor(tuple(positions))


def _places(part: str, text: str) -> tuple[str, tuple[Position, ...]]:
    name, *positions = part.split(".")
    if not positions or not all(_POSITION.fullmatch(one) for one in positions):
        _none(text)
    known = tuple(int(one, 16) for one in positions)
    return (name, known) if max(known) <= END else _none(text)


def _none(text: str) -> NoReturn:
    raise InvalidInputError("cursor", f"{text[:64]!a} is none; allowed: what an answer of this API gave as one")


def _digest(topic_filter: str) -> str:
    return blake2b(topic_filter.encode(), digest_size=4).hexdigest()
