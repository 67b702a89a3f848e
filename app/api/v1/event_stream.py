"""Events as they come, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from typing import Annotated

import orjson
from fastapi import Header, Request
from fastapi import Response as Reply
from pydantic.json_schema import SkipJsonSchema

from app.api import problems, sse
from app.api.cursors import ANY as ANY_CURSOR
from app.api.dependencies import Asker, Events, OpenStreams, Recorder, WhoAsks
from app.api.event_json import event_json
from app.api.openapi import acts, problems_of
from app.api.parameters import check_names
from app.api.problems import BY_ERROR
from app.api.representation import instant
from app.api.routers import GuardedRouter
from app.api.v1.event_parameters import (
    AWAY,
    CURSOR_EXAMPLE,
    GONE,
    Begin,
    DatabaseName,
    EventCursor,
    TopicFilter,
    start_of,
    text_of,
)
from app.core import errors
from app.core.access.rules import Action
from app.core.events.cursors import Scope
from app.core.events.reading import Cursor
from app.events.plane import EventPlane
from app.events.tail import EventBatch

router = GuardedRouter(prefix="/v1", tags=["events"])

_Last = Annotated[
    str | SkipJsonSchema[None],
    Header(
        alias="Last-Event-ID",
        description="Resume after the event with this id, on any node. It goes before `cursor`, `since` and `from`.",
        json_schema_extra={"pattern": f"^{ANY_CURSOR}$"},
        examples=[CURSOR_EXAMPLE],
    ),
]


@router.get(
    "/events/stream",
    summary="Follow events as they arrive",
    response_class=Reply,
    response_description="Server-sent events: `event`, `gap`, `bookmark`; `problem` if the stream fails.",
    responses={
        200: {"content": {"text/event-stream": {}}},
        **problems_of(*GONE, problems.INVALID, BY_ERROR[errors.CapacityError], AWAY),
    },
    openapi_extra=acts(Action.READ),
)
async def follow_events(
    request: Request,
    events: Events,
    audit: Recorder,
    streams: OpenStreams,
    asker: WhoAsks,
    begin: Begin,
    topic: TopicFilter = "#",
    database: DatabaseName = None,
    cursor: EventCursor = None,
    last_event_id: _Last = None,
) -> Reply:
    """Streams the events that the caller may read, from now on or after a cursor or an instant. It never ends.

    The id of each event is the cursor behind it. A `gap` event says that events after the given cursor were dropped,
    are damaged or were forgotten by Redis, and until when. A `bookmark` event carries a newer cursor: at once if the
    stream begins now, and after a pause without events.
    """
    check_names(request, ("topic", "database", "since", "from", "cursor"))
    given = last_event_id or cursor or None
    scope, start = start_of(events, asker, database, topic, given, begin if given is None else None)
    begins_now = given is None and begin is None
    if begins_now:
        start = await events.reader.heads(scope.databases)
    gone = None if given is None else await events.reader.gap(scope.databases, start)
    if audit is not None:
        audit.followed({"topic": topic, "database": ", ".join(scope.databases)})
    feed = partial(_feed, _Follow(events, scope, start, asker), gone, begins_now=begins_now)
    return sse.EventStream(streams, feed, may=partial(_known, asker), principal=asker.principal())


def _known(asker: Asker) -> None:
    """UnauthenticatedError when they are nobody any more; what they may read is asked with each event."""
    asker.principal()


class _Follow:
    """The batches that are followed, and the cursor behind what was written."""

    def __init__(self, plane: EventPlane, scope: Scope, start: Cursor, asker: Asker) -> None:
        self.batches: AsyncGenerator[EventBatch, None] = plane.tails.follow(scope.databases, scope.topic_filter, start)
        self._plane = plane
        self._scope = scope
        self._asker = asker
        self._cursor = start

    def bookmark(self) -> bytes:
        """The cursor, for who has seen no event for long."""
        text = text_of(self._plane, self._asker, self._cursor, self._scope)
        return sse.event("bookmark", orjson.dumps({"cursor": text}), text)

    def written(self, batch: EventBatch) -> bytes:
        """The events of a batch that they may read, each with the cursor behind it."""
        parts = [] if not batch.lost else [_gap(batch.lost)]
        places = list(self._cursor.positions)
        for event in batch.events:
            places[event.shard] = event.position
            if self._asker.may_read_event(event.entry):
                cursor = text_of(self._plane, self._asker, Cursor(tuple(places)), self._scope)
                parts.append(sse.event("event", event_json(event), cursor))
        self._cursor = batch.cursor
        return b"".join(parts)


async def _feed(follow: _Follow, gone: int | None, stream: sse.SseStream, *, begins_now: bool) -> None:
    if begins_now:  # so that who loses the connection before the first event misses nothing
        await stream.write(follow.bookmark())
    if gone is not None:
        await stream.write(_gap(gone))
    changed = asyncio.Event()
    try:
        while True:
            batch = await _next(follow, changed, stream)
            data = follow.written(batch)
            if data:
                await stream.write(data)
    finally:
        await follow.batches.aclose()


def _gap(until: int) -> bytes:
    return sse.event("gap", orjson.dumps({"until": instant(until)}))


async def _next(follow: _Follow, changed: asyncio.Event, stream: sse.SseStream) -> EventBatch:
    """The next events; bookmarks are written until they come."""
    following = asyncio.ensure_future(anext(follow.batches))
    following.add_done_callback(lambda _done: changed.set())
    try:
        while not following.done():
            await stream.rest(changed, follow.bookmark)
    finally:
        if not following.done():
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
    return following.result()
