"""Events over HTTP: read, publish, and what there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import orjson
from fastapi import Body, Depends, Path, Query, Request
from fastapi import Response as Reply
from pydantic import AfterValidator
from pydantic.json_schema import SkipJsonSchema

from app.api import problems
from app.api.dependencies import Asker, Events, WhoAsks
from app.api.event_json import about, entry_of, event_json, events_json
from app.api.http import BytesResponse
from app.api.openapi import acts, problems_of
from app.api.parameters import check_names
from app.api.problems import BY_ERROR
from app.api.representation import instant
from app.api.routers import GuardedRouter
from app.api.strict_bodies import StrictBodyRoute, check_readable, unreadable_of
from app.api.v1 import event_models as event_schemas
from app.api.v1.command_models import said as looks_like
from app.api.v1.event_parameters import (
    AWAY,
    DATABASE,
    DEFAULT_LIMIT,
    GONE,
    Begin,
    DatabaseName,
    End,
    EventCursor,
    EventLimit,
    IdempotencyKey,
    TopicFilter,
    call_by,
    name_of,
    nothing_for,
    start_of,
    text_of,
)
from app.core import errors
from app.core.access.rules import Action
from app.core.durations import format_duration
from app.core.errors import EventNotFoundError, InvalidInputError
from app.core.events.cursors import Scope
from app.core.events.event import (
    END,
    MAX_TOPIC_BYTES,
    Event,
    Position,
    Shard,
    validate_database,
)
from app.core.events.generation import Generation
from app.core.events.plan import NamedDatabase
from app.core.events.reading import Cursor
from app.core.identifiers import PARTITIONS
from app.events.gate import call_budget
from app.events.merge import MergedPage
from app.events.plane import EventPlane
from app.events.reader import MAX_PAGE

_TOPICS: Final = "topics"
TOPIC_LOOKS: Final = 6
"""After so many looks for topics that a caller may read, of MAX_PAGE each, a page is short."""

router = GuardedRouter(prefix="/v1", tags=["events"], route_class=StrictBodyRoute)


def _part(description: str, example: object, **bounds: Any) -> Any:  # noqa: ANN401 - as Path
    return Path(description=description, examples=[example], **bounds)


@dataclass(frozen=True, slots=True)
class _Asked:
    scope: Scope
    cursor: Cursor
    until: Position
    limit: int


async def _asked(
    request: Request,
    events: Events,
    asker: WhoAsks,
    begin: Begin,
    end: End,
    topic: TopicFilter = "#",
    database: DatabaseName = None,
    cursor: EventCursor = None,
    limit: EventLimit = DEFAULT_LIMIT,
) -> _Asked:
    """The part of the log that a caller reads."""
    check_names(request, ("topic", "database", "since", "until", "from", "to", "cursor", "limit"))
    scope, start = start_of(events, asker, database, topic, cursor, begin)
    return _Asked(scope, start, end, limit)


@router.get(
    "/events",
    summary="Read events, oldest first",
    response_model=event_schemas.EventPage,
    response_description="A page of events, with the cursor of the next page.",
    responses=problems_of(*GONE, problems.INVALID, AWAY),
    openapi_extra=acts(Action.READ),
)
async def read_events(asked: Annotated[_Asked, Depends(_asked)], events: Events, asker: WhoAsks) -> Reply:
    """Returns the events that the caller may read. A page may be short or empty although `more` is true."""
    page = await _page(asked, events, asker)
    body = b'{"events":%b,"cursor":%b,"more":%b,"lost":%b,"databases":%b}' % (
        events_json(page.events),
        orjson.dumps(text_of(events, asker, page.cursor, asked.scope)),
        b"true" if page.more else b"false",
        orjson.dumps(instant(page.lost) if page.lost else None),
        orjson.dumps(asked.scope.databases),
    )
    return BytesResponse(body)


@router.get(
    "/events/{database}/{shard}/{position}",
    summary="Read one event",
    response_model=event_schemas.Event,
    response_description="The event.",
    responses=problems_of(*GONE, BY_ERROR[errors.EventNotFoundError], problems.INVALID, AWAY),
    openapi_extra=acts(Action.READ),
)
async def read_event(
    request: Request,
    database: Annotated[
        str,
        AfterValidator(validate_database),
        _part("The database of the event.", "telemetry", json_schema_extra=looks_like(DATABASE)),
    ],
    shard: Annotated[int, _part("The shard of the database.", 2, ge=0, lt=PARTITIONS)],
    position: Annotated[int, _part("The position of the event.", 1772352000000000, ge=1, le=END)],
    events: Events,
    asker: WhoAsks,
) -> Reply:
    """Returns the event at a position of a shard, until the retention of the database ends."""
    check_names(request, ())
    async with call_budget():
        found = await events.reader.event(Shard(database, shard), position)
    if not asker.may_read_event(found.entry):
        raise EventNotFoundError(f"shard {database}.{shard} has no event at position {position}")
    return BytesResponse(event_json(found))


async def _page(asked: _Asked, events: EventPlane, asker: Asker) -> MergedPage:
    scope, may = asked.scope, None if asker.sees_all else asker.may_read_event
    if may is not None and nothing_for(asker, events, scope.topic_filter):
        return MergedPage((), asked.cursor, more=False)
    async with call_budget():
        return await events.reader.page(
            scope.databases, scope.topic_filter, asked.cursor, asked.limit, asked.until, may
        )


@router.post(
    "/events",
    summary="Append events to the event log",
    response_model=event_schemas.Published,
    response_description="The events are durable; the answer has their positions.",
    responses=problems_of(
        *GONE,
        problems.SLOW_BODY,
        BY_ERROR[errors.PayloadTooLargeError],
        problems.INVALID,
        BY_ERROR[errors.DeviceNotFoundError],
        BY_ERROR[errors.CallMismatchError],
        BY_ERROR[errors.QuotaError],
        AWAY,
    ),
    openapi_extra=acts(Action.PUBLISH),
)
async def publish_events(
    request: Request,
    events: Events,
    asker: WhoAsks,
    said: Annotated[list[event_schemas.Said], Body(min_length=1, max_length=event_schemas.MOST_PUBLISHED)],
    database: DatabaseName = None,
    idempotency_key: IdempotencyKey = None,
) -> Reply:
    """Appends events to the log only: devices do not receive them. Events of one shard are appended together.

    If the call is repeated after a `503` without an idempotency key, the events may be in the log twice.
    """
    check_names(request, ("database",))
    entries = []
    readable = unreadable_of(request) is None
    for number, one in enumerate(said):
        device = events.plan.device_of(one.topic)
        asker.check_topic(Action.PUBLISH, device)
        entries.append(entry_of(one, f"body.{number}", device, readable=readable))
    check_readable(request)
    name = name_of(events, database)
    positions = await events.publisher.publish(name, entries, call_by(asker, idempotency_key, name, entries))
    return BytesResponse(orjson.dumps({"positions": positions}))


_Place = str | SkipJsonSchema[None]


def _behind(description: str) -> Any:  # noqa: ANN401 - as Query
    return Query(description=description, max_length=2048, examples=["thing/product/dock-1/osd"])


@router.get(
    "/topics",
    summary="List topics that have a last value",
    response_model=event_schemas.TopicPage,
    response_description="A page of topics.",
    responses=problems_of(*GONE, problems.INVALID, AWAY),
    openapi_extra=acts(Action.READ),
)
async def list_topics(
    request: Request,
    events: Events,
    asker: WhoAsks,
    topic: TopicFilter = "#",
    database: DatabaseName = None,
    cursor: Annotated[_Place, _behind("The `cursor` of the previous page.")] = None,
    after: Annotated[
        _Place, _behind("The same as `cursor`; it also takes a topic, and then lists the topics that follow it.")
    ] = None,
    limit: EventLimit = DEFAULT_LIMIT,
) -> Reply:
    """Lists topics whose last value the caller may read. A page may be short or empty although it has a cursor."""
    check_names(request, ("topic", "database", "cursor", "after", "limit"))
    if cursor is not None and after is not None:
        raise InvalidInputError("after", "and cursor contradict each other; one is allowed")
    place = asker.cursors.take(_TOPICS, cursor or after or "")
    shown, behind = await _topics(events, asker, database, topic, place, limit)
    given = None if behind is None else asker.cursors.give(_TOPICS, behind, MAX_TOPIC_BYTES)
    return BytesResponse(orjson.dumps({"topics": [about(one) for one in shown], "cursor": given}))


async def _topics(
    events: EventPlane, asker: Asker, database: str | None, topic: str, after: str, limit: int
) -> tuple[list[Event], str | None]:
    """Return so many topics that the caller may read, and the topic behind which there may be more."""
    shown: list[Event] = []
    if not asker.sees_all and nothing_for(asker, events, topic):
        return shown, None
    look = limit + 1
    for _ in range(TOPIC_LOOKS):
        found = await events.values.topics(database, topic, after, look)
        shown += [one for one in found if asker.may_read_event(one.entry)]
        if len(shown) > limit:
            return shown[:limit], shown[limit - 1].entry.topic
        if len(found) < look:
            return shown, None
        after, look = found[-1].entry.topic, MAX_PAGE
    return shown, after


@router.get(
    "/streams",
    summary="List the structures that topics have in common",
    response_model=event_schemas.Streams,
    response_description="The structures that profiles define, and those that were learned.",
    responses=problems_of(*GONE, problems.INVALID, AWAY),
    openapi_extra=acts(Action.STREAM),
)
async def list_structures(request: Request, events: Events, asker: WhoAsks, database: DatabaseName = None) -> Reply:
    """A structure is a pattern of topics, such as `thing/product/+/osd`. Its events are stored together."""
    check_names(request, ("database",))
    asker.check(Action.STREAM)
    found = await events.reader.structures(database)
    shown = [{"structure": structure, "database": name} for name, structure in found]
    return BytesResponse(orjson.dumps({"database": database, "streams": shown}))


@router.get(
    "/databases",
    summary="List the databases of events",
    response_model=event_schemas.Databases,
    response_description="The databases with their generations.",
    responses=problems_of(*GONE, AWAY),
    openapi_extra=acts(Action.STREAM),
)
async def list_databases(events: Events, asker: WhoAsks) -> Reply:  # noqa: D103 - its summary says it
    asker.check(Action.STREAM)
    shown = [_database(one, found, events) for one, found in await events.reader.generations()]
    return BytesResponse(orjson.dumps({"databases": shown}))


def _database(kept: NamedDatabase, generations: Sequence[Generation], plane: EventPlane) -> dict[str, object]:
    database = plane.plan.database(kept.name)
    return {
        "name": kept.name,
        "retention": format_duration(kept.retention),
        "shards": 0 if database is None else database.shards,
        "generations": [_generation(one) for one in generations],
    }


def _generation(one: Generation) -> dict[str, object]:
    return {
        "number": one.number,
        "state": one.state,
        "first": instant(one.first) if one.count else None,
        "last": instant(one.last) if one.count else None,
        "events": one.count,
        "bytes": one.size,
        "files": len(one.files),
        "file_bytes": sum(file.size for file in one.files),
        "note": one.note or next((file.note for file in one.files if file.note), None),
    }
