"""The broker in a node over HTTP, for those who operate it: sessions and retained messages."""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Final
from urllib.parse import quote

import orjson
from fastapi import Path, Query, Request
from fastapi import Response as Reply
from pydantic.json_schema import SkipJsonSchema

from app.api import problems
from app.api.dependencies import OwnBroker, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, problems_of
from app.api.pages import Listing
from app.api.parameters import ListCursor, ListLimit, check_names
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.v1 import broker_models as models
from app.api.v1.broker_models import content_json, retained_json, session_json
from app.core import errors
from app.core.access.rules import Action
from app.core.broker.bounds import BrokerBounds
from app.core.topics import validate_filter, validate_topic

_PAGE: Final = 100
_LONGEST_PLACE: Final = 1_200
_BOUNDED: Final = {"minLength": 1, "maxLength": BrokerBounds().topic_bytes}
_READING: Final = problems_of(BY_ERROR[errors.BrokerOffError], problems.INVALID)
_SHOWING: Final = problems_of(
    BY_ERROR[errors.BrokerOffError], BY_ERROR[errors.BrokerEntryNotFoundError], problems.INVALID
)
_ENDING: Final = problems_of(
    BY_ERROR[errors.BrokerOffError],
    BY_ERROR[errors.BrokerEntryNotFoundError],
    BY_ERROR[errors.StoreUnavailableError],
    problems.INVALID,
)

_ClientId = Annotated[
    str, Path(description="The client id of the session.", json_schema_extra=_BOUNDED, examples=["dock-1"])
]

router = GuardedRouter(prefix="/v1/broker", tags=["broker"])


@router.get(
    "/sessions",
    summary="List the sessions of the broker in this node",
    response_model=models.BrokerSessionPage,
    response_description="A page of sessions.",
    responses=_READING,
    openapi_extra=acts(Action.NODES),
)
async def list_broker_sessions(
    request: Request, broker: OwnBroker, asker: WhoAsks, limit: ListLimit = _PAGE, cursor: ListCursor = None
) -> Reply:
    """Includes the session of the node itself, and those of clients that are away."""
    asker.check(Action.NODES)
    check_names(request, ("limit", "cursor"))
    found, behind = Listing("broker sessions", limit, cursor).part(asker.cursors, broker.client_ids, _place)
    return BytesResponse(
        orjson.dumps({"sessions": [session_json(broker.session(one)) for one in found], "cursor": behind})
    )


@router.get(
    "/sessions/{client_id:path}",
    summary="Get a session of the broker in this node",
    response_model=models.BrokerSessionContent,
    response_description="The session, with its subscriptions and the messages on their way.",
    responses=_SHOWING,
    openapi_extra=acts(Action.NODES),
)
async def get_broker_session(client_id: _ClientId, broker: OwnBroker, asker: WhoAsks) -> Reply:
    """Shows no payloads, and of messages that wait to be sent only their number."""
    asker.check(Action.NODES)
    return BytesResponse(orjson.dumps(content_json(broker.content(client_id))))


@router.delete(
    "/sessions/{client_id:path}",
    status_code=204,
    summary="End a session of the broker in this node",
    response_description="The session is gone, with its subscriptions and messages.",
    responses=_ENDING,
    openapi_extra=acts(Action.ACCESS),
)
async def end_broker_session(
    client_id: _ClientId,
    broker: OwnBroker,
    asker: WhoAsks,
) -> Reply:
    """Disconnects the client (0x98) and publishes its will. It may connect again at once, with a new session.

    Revoke its key to keep it away.
    """
    asker.check(Action.ACCESS)
    await broker.end_session(client_id, asker.principal())
    return Reply(status_code=204)


@router.get(
    "/retained",
    summary="List the retained messages of the broker in this node",
    response_model=models.RetainedPage,
    response_description="A page of retained messages.",
    responses=_READING,
    openapi_extra=acts(Action.NODES),
)
async def list_retained(
    request: Request,
    broker: OwnBroker,
    asker: WhoAsks,
    topic: Annotated[
        str | SkipJsonSchema[None],
        Query(
            description="Only those of topics that match this filter.",
            json_schema_extra=_BOUNDED,
            examples=["homing/+/state"],
        ),
    ] = None,
    limit: ListLimit = _PAGE,
    cursor: ListCursor = None,
) -> Reply:
    """Shows no payloads: subscribe to a topic to get them."""
    asker.check(Action.NODES)
    check_names(request, ("topic", "limit", "cursor"))
    messages = list(broker.retained(None if topic is None else validate_filter(topic)))
    found, behind = Listing("retained", limit, cursor).part(asker.cursors, messages, lambda one: _place(one.topic))
    return BytesResponse(orjson.dumps({"retained": [retained_json(one) for one in found], "cursor": behind}))


@router.delete(
    "/retained",
    status_code=204,
    summary="Delete a retained message of the broker in this node",
    response_description="The message is gone.",
    responses=_ENDING,
    openapi_extra=acts(Action.ACCESS),
)
async def delete_retained(
    request: Request,
    broker: OwnBroker,
    asker: WhoAsks,
    topic: Annotated[
        str,
        Query(description="The topic of the message.", json_schema_extra=_BOUNDED, examples=["homing/dock-1/state"]),
    ],
) -> Reply:
    """Nobody who is subscribed is told: the topic has no retained message for those who subscribe later."""
    asker.check(Action.ACCESS)
    check_names(request, ("topic",))
    if not topic or "+" in topic or "#" in topic:
        validate_topic(topic)  # of others the broker may have one: it takes characters that our own topics never have
    await broker.remove_retained(topic, asker.principal())
    return Reply(status_code=204)


def _place(name: str) -> str:
    """The place of a name in a list, as a cursor can have it. No two names have the same."""
    place = quote(name, safe="/$+#", errors="surrogatepass")
    if len(place) <= _LONGEST_PLACE:
        return place
    return f"{place[:_LONGEST_PLACE]}~{blake2b(name.encode(), digest_size=16).hexdigest()}"
