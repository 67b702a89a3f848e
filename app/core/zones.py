"""Time zones by their IANA names."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from app.core.errors import InvalidInputError


def read_zone(field: str, name: str) -> ZoneInfo:
    """Return the zone of this name; InvalidInputError about `field`, with the nearest name."""
    if name not in _zones():
        near = get_close_matches(name[:64], _zones(), n=1)
        named = f"; the nearest is {near[0]}" if near else ""
        raise InvalidInputError(
            field, f'{name[:64]!a} is no time zone{named}; allowed: an IANA name such as "Europe/Berlin" or "UTC"'
        )
    return ZoneInfo(name)


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())
