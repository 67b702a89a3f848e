"""Patterns over names: `*` is any text, also none at all, and every other character is itself."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from app.core.characters import named
from app.core.errors import InvalidInputError
from app.core.identifiers import id_of_name, unescaped

SEPARATOR: Final = "\0"
"""Stands between the names that a rule is matched against; a name that has it fits no rule."""

_MAX_LENGTH: Final = 128
_NOT_IN_NAMES: Final = re.compile("[^A-Za-z0-9_.:*-]")
_ELSEWHERE: Final = re.compile(r"[^\w\s%/&'().:,;!=@~*-]|[^ \S]")
"""Wildcards of other languages, and what no name has; a name that has the former is escaped where they are."""
_NOT_IN_METHODS: Final = re.compile("[^A-Za-z0-9_.:/*-]")
_NOT_IN_PROFILES: Final = re.compile("[^a-z0-9_*-]")
_ANY: Final = f"[^{SEPARATOR}]"  # line breaks, too


def validate_pattern(field: str, pattern: str, *, of_profiles: bool = False) -> str:
    """The pattern itself when ids of devices, or methods (or profiles) can fit it; raises InvalidInputError.

    What ids have escaped is escaped in the pattern that is given back: `living room/*` is `living%20room%2F*`.
    A character that no name can have is a mistake, most often a wildcard of another language.
    """
    if not pattern:
        raise InvalidInputError(field, "is empty; * stands for all")
    if len(pattern) > _MAX_LENGTH:
        raise InvalidInputError(field, f"has {len(pattern)} characters; allowed are {_MAX_LENGTH}")
    if not of_profiles and field not in ("method", "methods"):
        return _of_devices(field, pattern)
    if of_profiles:
        strangers, allowed = _NOT_IN_PROFILES, "a-z 0-9 _ -"
    else:
        strangers, allowed = _NOT_IN_METHODS, "A-Z a-z 0-9 _ . : / -"
    forbidden = strangers.search(pattern)
    if forbidden is not None:
        raise InvalidInputError(
            field,
            f"{named(forbidden[0])} at index {forbidden.start()} is not allowed; allowed: {allowed}, * for any text",
        )
    return pattern


def _of_devices(field: str, pattern: str) -> str:
    if _NOT_IN_NAMES.search(pattern) is None:
        return pattern
    forbidden = _ELSEWHERE.search(pattern)
    if forbidden is not None:
        raise InvalidInputError(
            field,
            f"{named(forbidden[0])} at index {forbidden.start()} is not allowed; "
            "allowed: A-Z a-z 0-9 _ . : -, * for any text, others escaped as in a URL",
        )
    pieces = re.split(r"(\*+)", pattern)
    escaped = "".join(one if one[:1] in ("", "*") else id_of_name(unescaped(field, one)) for one in pieces)
    if len(escaped) > _MAX_LENGTH:
        raise InvalidInputError(field, f"has {len(escaped)} characters where it is escaped; allowed are {_MAX_LENGTH}")
    return escaped


def expression(pattern: str) -> str:
    """A regular expression for the names that fit, to be used with `fullmatch` or before a SEPARATOR.

    What stands between two stars is looked for from the left and never again: so the time grows with the length of the
    name alone, however many stars there are.
    """
    head, *others = [re.escape(piece) for piece in re.split(r"\*+", pattern)]
    if not others:
        return head
    *inner, tail = others
    return f"{head}{''.join(f'(?>{_ANY}*?{piece})' for piece in inner)}{_ANY}*{tail}"


def fits(pattern: str, name: str) -> bool:
    """True if the name fits the pattern."""
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def fits_any(patterns: tuple[str, ...], name: str) -> bool:
    """True if the name fits one of the patterns; profiles ask for the same few with each command."""
    return any(fits(pattern, name) for pattern in patterns)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(expression(pattern))


def covers(wide: str, narrow: str) -> bool:
    """True if every name that fits `narrow` fits `wide`: only a star takes what a star may stand for."""
    return fits(wide, narrow)


def overlap(one: str, other: str) -> bool:
    """True if some text fits both patterns."""
    if not (_begin_alike(one, other) and _begin_alike(one[::-1], other[::-1])):
        return False
    # below[at]: whether what is left of `one` and other[at:] share a text
    below = [set(other[at:]) <= {"*"} for at in range(len(other) + 1)]
    for char in reversed(one):
        row = [False] * len(other) + [char == "*" and below[-1]]
        for at in range(len(other) - 1, -1, -1):
            if char == "*" or other[at] == "*":
                row[at] = below[at] or row[at + 1]
            else:
                row[at] = char == other[at] and below[at + 1]
        below = row
    return below[0]


def _begin_alike(one: str, other: str) -> bool:
    """True if the letters before the first star agree, as far as both have some."""
    head, other_head = one.partition("*")[0], other.partition("*")[0]
    return head.startswith(other_head) or other_head.startswith(head)
