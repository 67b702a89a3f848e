"""Instants as callers write them: RFC 3339, or so long ago."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from app.core.durations import parse_duration
from app.core.errors import InvalidInputError
from app.core.events.event import END, Position

ALLOWED: Final = "RFC 3339 with a zone, as in 2026-11-21T10:00:00Z"
OR_AGO: Final = f"{ALLOWED}, or a duration ago, as in -10m"
PATTERN: Final = r"-[0-9.]+(ms|s|m|h)|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:.]+([Zz]|[+-][0-9]{2}:[0-9]{2})"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_position(field: str, text: str, now_us: int) -> Position:
    """The position of an instant; raises InvalidInputError about this field."""
    if not text.startswith("-"):
        return parse_instant(field, text, OR_AGO)
    try:
        position = now_us - round(parse_duration(text[1:]).total_seconds() * 1_000_000)
    except (ValueError, OverflowError):
        raise InvalidInputError(field, f"{text[:64]!a} is no instant; allowed: {OR_AGO}") from None
    return min(max(position, 1), END)


def parse_instant(field: str, text: str, allowed: str = ALLOWED) -> Position:
    """The position of an instant that is no duration ago; raises InvalidInputError about this field."""
    try:
        # TypeError: it has no zone.
        position = (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(field, f"{text[:64]!a} is no instant; allowed: {allowed}") from None
    return min(max(position, 1), END)


def position_of(given: Mapping[str, str | None], now_us: int) -> Position | None:
    """The position of an instant that may go by several names; InvalidInputError when it goes by two of them."""
    told = [(field, text) for field, text in given.items() if text is not None]
    if len(told) > 1:
        raise InvalidInputError(told[1][0], f"says what {told[0][0]} says; allowed: one of the two")
    return parse_position(*told[0], now_us) if told else None
