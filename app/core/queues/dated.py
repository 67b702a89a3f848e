"""Dated messages: no queue lends them before an instant. It stands in their kind, which no other message has.

So 0.2.0 reads such a message, and lends it at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from app.core.durations import parse_duration
from app.core.errors import InvalidInputError
from app.core.events.event import EXCHANGES, Entry, Position
from app.core.events.instants import parse_instant
from app.core.queues.loans import micros_of

LONGEST_WAIT: Final = timedelta(hours=24)
"""The longest time ahead that a message may be dated."""
_KIND: Final = "not_before:"


class NotBefore(NamedTuple):
    """The instant before which a message is not lent, or after how many µs from when it is published."""

    micros: int
    relative: bool

    def at(self, now: Position) -> Position:
        """Return the instant, on the clock of the log; InvalidInputError where it is too far ahead."""
        found = now + self.micros if self.relative else self.micros
        if found > now + micros_of(LONGEST_WAIT):
            raise InvalidInputError("not_before", "is too far ahead; allowed: up to 24h")
        return found


def parse_not_before(text: str) -> NotBefore:
    """The instant in RFC 3339, or the duration, that a caller gave; InvalidInputError."""
    try:
        return NotBefore(micros_of(parse_duration(text)), relative=True)
    except ValueError:
        if text.startswith("-"):
            raise InvalidInputError("not_before", "is in the past; allowed: an instant, or a duration ahead") from None
        return NotBefore(parse_instant("not_before", text), relative=False)


def dated(entry: Entry, at: Position) -> Entry:
    """The same message, which is not lent before this instant."""
    return entry._replace(kind=f"{_KIND}{at}")


def not_before_of(entry: Entry) -> Position:
    """The instant before which an event is not lent; 0 for one that is not dated."""
    if not (entry.kind.startswith(_KIND) and entry.topic.startswith(EXCHANGES)):
        return 0
    digits = entry.kind.removeprefix(_KIND)
    return int(digits) if digits.isascii() and digits.isdigit() else 0
