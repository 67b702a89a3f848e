"""Cursors under a name over HTTP: how far a reader of events has come."""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
from fastapi import Path, Request
from fastapi import Response as Reply

from app.access.conditions import Precondition, tag_of
from app.api import problems
from app.api.conditions import Conditional, etag
from app.api.dependencies import Asker, Events, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, header, problems_of
from app.api.parameters import check_names
from app.api.problems import BY_ERROR
from app.api.representation import instant
from app.api.routers import GuardedRouter
from app.api.v1 import event_models as models
from app.api.v1.command_models import said as looks_like
from app.api.v1.event_parameters import AWAY, GONE, KIND
from app.core import errors
from app.core.access.rules import Action
from app.core.events.event import validate_reading_filter
from app.core.events.named_cursors import NAME, NamedCursor, encode_cursor
from app.events.named_cursors import Check
from app.events.plane import EventPlane

router = GuardedRouter(prefix="/v1/cursors", tags=["events"])

_READS: Final = acts(Action.READ)
_TAG: Final[dict[int | str, dict[str, object]]] = {
    200: {"headers": {"ETag": header("The state of the cursor, for `If-Match`.")}}
}
_CHANGED: Final = BY_ERROR[errors.PreconditionFailedError]
_NONE: Final = BY_ERROR[errors.CursorNotFoundError]
_Name = Annotated[
    str,
    Path(description="The name of the cursor.", json_schema_extra=looks_like(NAME), examples=["archive"], alias="name"),
]


@router.get(
    "",
    summary="List the cursors of the caller",
    response_model=models.KeptCursors,
    response_description="The cursors, by name.",
    responses=problems_of(*GONE, problems.INVALID, AWAY),
    openapi_extra=_READS,
)
async def list_cursors(request: Request, events: Events, asker: WhoAsks) -> Reply:
    """Cursors belong to the person or service that commits them."""
    check_names(request, ())
    found = await events.cursors.all(_owner(asker))
    return BytesResponse(orjson.dumps({"cursors": [_json(events, asker, one) for one in found]}))


@router.get(
    "/{name}",
    summary="Read a cursor",
    response_model=models.KeptCursor,
    response_description="The cursor that was committed last.",
    responses=_TAG | problems_of(*GONE, _NONE, problems.INVALID, AWAY),
    openapi_extra=_READS,
)
async def read_cursor(request: Request, name: _Name, events: Events, asker: WhoAsks) -> Reply:
    """Pass `topic` and `cursor` to `GET /v1/events` or `GET /v1/events/stream` to continue from there."""
    check_names(request, ())
    return _tagged(events, asker, await events.cursors.get(_owner(asker), name))


@router.put(
    "/{name}",
    summary="Commit a cursor",
    response_model=models.KeptCursor,
    response_description="The cursor is durable.",
    responses=_TAG | problems_of(*GONE, _CHANGED, problems.INVALID, BY_ERROR[errors.CapacityError], AWAY),
    openapi_extra=_READS,
)
async def commit_cursor(
    name: _Name, body: models.CursorCommit, condition: Conditional, events: Events, asker: WhoAsks
) -> Reply:
    """Commit a cursor.

    With `If-Match`, a second reader of the same name is refused. Committing the same place again is never refused.
    Where callers are authenticated its tag changes nevertheless: that a reader has come further says nothing then.
    """
    validate_reading_filter(body.topic)
    text = asker.cursors.take(KIND, body.cursor)
    committed = await events.cursors.commit(
        _owner(asker), name, body.topic, text, _check(condition, name), hides=not asker.sees_all
    )
    return _tagged(events, asker, committed)


@router.delete(
    "/{name}",
    status_code=204,
    summary="Delete a cursor",
    response_description="There is no such cursor any more.",
    responses=problems_of(*GONE, _CHANGED, problems.INVALID, AWAY),
    openapi_extra=_READS,
)
async def delete_cursor(name: _Name, condition: Conditional, events: Events, asker: WhoAsks) -> None:
    """Events stay where they are."""
    await events.cursors.forget(_owner(asker), name, _check(condition, name))


def _owner(asker: Asker) -> str:
    return asker.principal() or ""


def _check(condition: Precondition, name: str) -> Check:
    def check(there: NamedCursor | None) -> None:
        condition.check(f"cursor {name}", None if there is None else _tag(there))

    return check


def _tag(cursor: NamedCursor) -> str:
    return tag_of(encode_cursor(cursor).decode())


def _json(plane: EventPlane, asker: Asker, cursor: NamedCursor) -> dict[str, Any]:
    return {
        "name": cursor.name,
        "topic": cursor.topic,
        "cursor": asker.cursors.give(KIND, cursor.text, plane.reader.room),
        "committed_at": instant(cursor.committed_us),
    }


def _tagged(plane: EventPlane, asker: Asker, cursor: NamedCursor) -> Reply:
    return BytesResponse(orjson.dumps(_json(plane, asker, cursor)), headers=[etag(_tag(cursor))])
