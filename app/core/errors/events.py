"""Errors about the event log.

EventLogError              about the event log; nothing was written
├── EventsOffError         this node keeps no events
├── DatabaseNotFoundError
├── EventNotFoundError     there is no event at a position
├── CursorNotFoundError    a caller has no cursor of this name
├── ValueNotFoundError     a topic has no last value
├── ValueChangedError      the last value of a topic is another one than expected
├── CallMismatchError      the idempotency key was used for other events
├── QuotaError             the events take as much room as they may
├── FencedError            somebody with a later right to write has taken over
└── DamagedEventsError     a piece of what was written cannot be read any more
"""

from __future__ import annotations

from app.core.errors.base import HomingError


class EventLogError(HomingError):
    """Base of errors about the event log; nothing was written."""


class EventsOffError(EventLogError):
    """This node keeps no events: nobody has said where."""


class DatabaseNotFoundError(EventLogError):
    """There is no such database of events."""


class EventNotFoundError(EventLogError):
    """There is no event at a position, or none that whoever asks may know of; says why, where it was there."""


class CursorNotFoundError(EventLogError):
    """The caller has no cursor of this name."""


class ValueNotFoundError(EventLogError):
    """The topic has no last value, or none that whoever asks may know of."""


class ValueChangedError(EventLogError):
    """The last value of a topic is another one than the caller takes it to be."""

    def __init__(self, topic: str, expected: int | None, found: int | None) -> None:
        def told(position: int | None) -> str:
            return "no value" if position is None else f"a value at position {position}"

        super().__init__(f"topic {topic!a} has {told(found)}, and the change was made for {told(expected)}")
        self.topic = topic
        self.expected = expected
        self.found = found


class CallMismatchError(EventLogError):
    """The idempotency key was used for other events."""


class QuotaError(EventLogError):
    """The events take as much room as they may; reading and deleting go on."""


class FencedError(EventLogError):
    """Somebody with a later right to write has taken over: one with this `epoch`."""

    def __init__(self, message: str, epoch: int) -> None:
        super().__init__(message)
        self.epoch = epoch


class DamagedEventsError(EventLogError):
    """Something that was written cannot be read any more; says which piece. The rest is served."""
