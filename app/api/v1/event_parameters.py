"""Parameters that the routes of events have in common, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Depends, Header, Query
from pydantic import AfterValidator
from pydantic.json_schema import SkipJsonSchema

from app.api.cursors import ANY as ANY_CURSOR
from app.api.dependencies import Asker, Node
from app.api.parameters import limit_up_to, query
from app.api.problems import BY_ERROR
from app.api.v1.command_models import said as looks_like
from app.core import errors
from app.core.events.batches import CallId, call_of
from app.core.events.cursors import Scope
from app.core.events.event import (
    END,
    Entry,
    Position,
    validate_database,
    validate_reading_filter,
)
from app.core.events.instants import PATTERN, position_of
from app.core.events.reading import Cursor
from app.core.identifiers import IDEMPOTENCY_KEY, validate_idempotency_key
from app.events.plane import EventPlane
from app.events.reader import MAX_PAGE

DEFAULT_LIMIT: Final = 100
CURSOR_EXAMPLE: Final = "2.b2f5ff47.s.events.64bf1db608000.0.0.0"
KIND: Final = "events"
"""The kind of cursors of events."""
DATABASE: Final = "[a-z][a-z0-9_-]{0,31}"

GONE: Final = (BY_ERROR[errors.EventsOffError], BY_ERROR[errors.DatabaseNotFoundError])
AWAY: Final = BY_ERROR[errors.StoreUnavailableError]


TopicFilter = Annotated[
    str,
    AfterValidator(validate_reading_filter),
    query("Return only events whose topics match this topic filter.", ".{1,1024}", "thing/product/+/events"),
]
IdempotencyKey = Annotated[
    str | SkipJsonSchema[None],
    Header(
        alias="Idempotency-Key",
        description=(
            "A repeated call with the same key and body within two minutes appends nothing, and returns the same "
            "positions. With another body it is refused."
        ),
        json_schema_extra=looks_like(IDEMPOTENCY_KEY),
        examples=["8e03978e-40d5-43dd-bc93-6894a57f9324"],
    ),
]
DatabaseName = Annotated[
    str | SkipJsonSchema[None],
    AfterValidator(lambda name: None if name is None else validate_database(name)),
    query("The database of events; all databases if left out.", DATABASE, "telemetry"),
]
_Since = Annotated[
    str | SkipJsonSchema[None],
    query("Return only events at or after this instant.", f"({PATTERN})", "-10m"),
]
_From = Annotated[
    str | SkipJsonSchema[None],
    query("The older name of `since`, which nodes of version 0.2 know.", f"({PATTERN})", "-10m", alias="from"),
]
EventCursor = Annotated[
    str | SkipJsonSchema[None],
    query("The cursor of an earlier answer, to continue from there.", ANY_CURSOR, CURSOR_EXAMPLE),
]
_Until = Annotated[
    str | SkipJsonSchema[None],
    query("Return only events at or before this instant.", f"({PATTERN})", "2026-11-21T10:00:00Z"),
]
_To = Annotated[
    str | SkipJsonSchema[None],
    query(
        "The older name of `until`, which nodes of version 0.2 know.",
        f"({PATTERN})",
        "2026-11-21T10:00:00Z",
        alias="to",
    ),
]
EventLimit = Annotated[
    int,
    limit_up_to(MAX_PAGE),
    Query(
        description="The maximum number of entries to return.",
        json_schema_extra={"minimum": 1, "maximum": MAX_PAGE},
        examples=[100],
    ),
]


def name_of(plane: EventPlane, database: str | None) -> str:
    """The database that is meant, where only one can be."""
    return database or plane.plan.kept[0].name


def start_of(
    plane: EventPlane, asker: Asker, database: str | None, topic: str, cursor: str | None, begin: Position | None
) -> tuple[Scope, Cursor]:
    """Return what is read, and where it begins; InvalidInputError."""
    place = None if cursor is None else asker.cursors.take(KIND, cursor)
    return plane.reader.start(plane.reader.scope(database, topic), place, begin)


def text_of(plane: EventPlane, asker: Asker, cursor: Cursor, scope: Scope) -> str:
    """The cursor, as this caller is given it."""
    return asker.cursors.give(KIND, plane.reader.text(cursor, scope), plane.reader.room)


async def _begin(node: Node, since: _Since = None, from_: _From = None) -> Position | None:
    return position_of({"since": since, "from": from_}, node.now_us())


async def _end(node: Node, until: _Until = None, to: _To = None) -> Position:
    end = position_of({"until": until, "to": to}, node.now_us())
    return END if end is None else end


Begin = Annotated[Position | None, Depends(_begin)]
"""The position to read from; None where nobody names one."""
End = Annotated[Position, Depends(_end)]
"""The position to read up to."""


def call_by(asker: Asker, key: str | None, database: str, entries: Sequence[Entry]) -> CallId | None:
    """The id of an append that happens once, however often this caller repeats it with this key; None without one."""
    if key is None:
        return None
    identity = asker.identity()
    return call_of("" if identity is None else identity.principal, validate_idempotency_key(key), database, entries)


def nothing_for(asker: Asker, events: EventPlane, topic_filter: str) -> bool:
    """True if all that fits the filter is of devices of which the caller may read nothing: then nothing is read."""
    devices = events.plan.devices_of(topic_filter)
    return devices is not None and not any(asker.may_read_some(one) for one in devices)
