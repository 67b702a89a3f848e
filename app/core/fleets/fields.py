"""The members of what is asked for of a run, each read with an error that names its place and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from app.core.characters import shown
from app.core.durations import format_duration, parse_duration
from app.core.errors import InvalidInputError
from app.core.payload import kind_in_words

SHORTEST: Final = timedelta(seconds=1)
LONGEST_TEXT: Final = 256
"""The characters of a label, of its value, and of a text that a device may have said."""
_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)%", re.ASCII)


def read_length(field: str, value: object, longest: timedelta, least: timedelta = SHORTEST) -> timedelta:
    """A duration within bounds; InvalidInputError."""
    if not isinstance(value, str):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; a duration such as 10m is needed")
    try:
        found = parse_duration(value)
    except ValueError as error:
        raise InvalidInputError(field, str(error)) from None
    if not least <= found <= longest:
        low, high = format_duration(least), format_duration(longest)
        raise InvalidInputError(field, f"{value} is out of range; allowed: {low} to {high}")
    return found


def members_of(field: str, value: object, allowed: Sequence[str]) -> Mapping[str, Any]:
    """The object itself; InvalidInputError where it is none, or has a member that is not allowed."""
    if not isinstance(value, dict):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; an object is needed")
    for name in value:
        if name not in allowed:
            raise InvalidInputError(f"{field}.{shown(name)}", f"is unknown; allowed: {', '.join(allowed)}")
    return value


def percent_of(field: str, value: object, allowed: str) -> float:
    """Return a share in percent, above 0 and up to 100; InvalidInputError."""
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 0 < float(found[1]) <= 100:  # noqa: PLR2004 - percent
        raise InvalidInputError(field, f"{in_short(value)} is none; allowed: {allowed}")
    return float(found[1])


def number_of(field: str, value: object, least: int, most: int) -> int:
    """Return a whole number within bounds; InvalidInputError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; a whole number is needed")
    if not least <= value <= most:
        raise InvalidInputError(field, f"{value} is out of range; allowed: {least} to {most}")
    return value


def list_of(field: str, value: object, most: int) -> list[Any]:
    """Return a list of so many entries at most; InvalidInputError."""
    if not isinstance(value, list):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; a list is needed")
    if len(value) > most:
        raise InvalidInputError(field, f"has {len(value)} entries; allowed are {most}")
    return value


def check_length(field: str, text: str) -> None:
    """InvalidInputError where a text is longer than any that a run is compared with: each who reads the run gets it."""
    if len(text) > LONGEST_TEXT:
        raise InvalidInputError(field, f"has {len(text)} characters; allowed are {LONGEST_TEXT}")


def in_short(value: object) -> str:
    """Return a value as errors show it."""
    return f"{value[:32]!a}" if isinstance(value, str) else str(value)[:32] if isinstance(value, int | float) else "it"
