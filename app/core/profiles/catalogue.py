"""The methods of a family of devices, as its profile knows them: what each takes, and how dangerous it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from app.core.errors import InvalidInputError
from app.core.payload import JsonValue

Check = Callable[[JsonValue], None]
"""Raises InvalidInputError when the params are none of the method."""

MISSPELT: Final = 0.88
"""A name with at least this ratio of difflib is taken for a misspelt one: `cover_opne` is 0.9, `camera_photo_stop` for
`camera_photo_take` 0.82."""
REMEMBERED: Final = 1024
"""Methods whose answer is remembered."""
_MEANT: Final = 0.6
_LISTED: Final = 24


class Openness(StrEnum):
    """The treatment of a method that the catalogue lacks."""

    CLOSED = "closed"
    """It is refused."""
    GUARDED = "guarded"
    """It is sent, unless it is nearly one of the catalogue."""
    OPEN = "open"
    """It is sent."""


class Danger(StrEnum):
    """The harm that a mistaken call may do. It informs people and their rules; Homing itself does not act on it."""

    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Method:
    """One method. `params` is its JSON Schema for people, `check` the same as a function; `usual` how long it takes."""

    name: str
    title: str
    description: str = ""
    danger: Danger = Danger.LOW
    usual: timedelta | None = None
    params: Mapping[str, JsonValue] | None = None
    check: Check | None = None


class Catalogue:
    """All methods of a profile by name. `check` runs for every command."""

    def __init__(
        self, methods: Mapping[str, Method] = MappingProxyType({}), openness: Openness = Openness.OPEN
    ) -> None:
        self.methods: Final = methods
        self.openness: Final = openness
        self._open = openness is Openness.OPEN
        self._refused = lru_cache(REMEMBERED)(self._is_refused)  # the same few methods are sent over and over

    def check(self, profile: str, method: str, params: JsonValue) -> None:
        """Return when the command is one of the profile's; InvalidInputError says what is meant, or what is wrong.

        Params that were left out are checked as an object without members.
        """
        found = self.methods.get(method)
        if found is not None:
            if found.check is not None:
                found.check({} if params is None else params)
        elif not self._open and self._refused(method):
            raise no_method(profile, method, self.methods)

    def _is_refused(self, method: str) -> bool:
        return self.openness is Openness.CLOSED or bool(get_close_matches(method, self.methods, 1, MISSPELT))


def no_method(profile: str, method: str, known: Iterable[str]) -> InvalidInputError:
    """The error of a method that the profile does not have."""
    names = sorted(known)
    near = get_close_matches(method, names, 1, _MEANT)
    meant = f"; did you mean {near[0]}?" if near else ""
    allowed = f"; allowed: {', '.join(names)}" if len(names) <= _LISTED else ""
    more = "" if meant or allowed else f"; GET /v1/profiles/{profile}/methods lists them"
    return InvalidInputError("method", f"{method[:64]!a} is no method of {profile}{meant}{allowed}{more}")
