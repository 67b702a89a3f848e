"""Ways into a message: keys of objects, positions in lists, and every member of either."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final, TypeAlias

from app.core.payload import MISSING, JsonValue, Missing, lookup


class Every(enum.Enum):
    """The type of EVERY."""

    EVERY = "*"


EVERY: Final = Every.EVERY
"""The step to each member of an object or list."""

Step: TypeAlias = str | int | Every
Path: TypeAlias = tuple[Step, ...]
"""The way to a value; an empty one leads to the value as a whole."""


def first(value: JsonValue, path: Path) -> JsonValue | Missing:
    """Return the value at the path, the first where there are more; MISSING when there is nothing."""
    at = lookup(value, path)  # plain paths are the common case, and any other step is no key of an object
    if at is MISSING and not is_plain(path):
        return next(found(value, path), MISSING)
    return at


def is_plain(path: Path) -> bool:
    """True if the path has keys of objects only."""
    for step in path:  # noqa: SIM110 - it runs several times for each response, and a generator takes twice as long
        if not isinstance(step, str):
            return False
    return True


def found(value: JsonValue, path: Path) -> Iterator[JsonValue]:
    """All that stands at the path, in the order of the message."""
    if not path:
        yield value
        return
    step, rest = path[0], path[1:]
    if step is EVERY:
        for member in _members(value):
            yield from found(member, rest)
    elif isinstance(step, int):
        if isinstance(value, list) and step < len(value):
            yield from found(value[step], rest)
    elif isinstance(value, dict) and step in value:
        yield from found(value[step], rest)


def _members(value: JsonValue) -> list[JsonValue]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
