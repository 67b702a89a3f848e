"""Last values over HTTP: read, and changed only if nobody else has."""

from __future__ import annotations

import re
from typing import Annotated, Final

import orjson
from fastapi import Header, Path, Request
from fastapi import Response as Reply
from pydantic import AfterValidator
from pydantic.json_schema import SkipJsonSchema

from app.api import problems
from app.api.dependencies import Asker, Events, WhoAsks
from app.api.event_json import entry_of, event_json, events_json
from app.api.http import BytesResponse, headers_of, read_body
from app.api.openapi import acts, header, problems_of
from app.api.parameters import DeviceId, check_names
from app.api.present import present
from app.api.problems import BY_ERROR, problem
from app.api.routers import GuardedRouter
from app.api.strict_bodies import StrictBodyRoute, check_readable, unreadable_of
from app.api.v1 import event_models as event_schemas
from app.api.v1.event_parameters import AWAY, GONE, DatabaseName
from app.core import errors
from app.core.access.rules import Action
from app.core.errors import InvalidInputError, ValueChangedError, ValueNotFoundError
from app.core.events.event import Entry, Shard, validate_writable
from app.core.events.transaction import Transaction, ValueCondition
from app.core.payload import decode_json
from app.core.topics import validate_topic
from app.events.plane import EventPlane

_TAG: Final = {"ETag": header("The position of the value, for `If-Match`.")}
_ETAG: Final = re.compile('"([0-9]{1,19})"')
_CHANGED: Final = BY_ERROR[errors.ValueChangedError]
_NONE: Final = BY_ERROR[errors.ValueNotFoundError]

router = GuardedRouter(prefix="/v1", tags=["events"], route_class=StrictBodyRoute)

_Topic = Annotated[
    str,
    AfterValidator(validate_topic),
    Path(
        description="The topic name; its levels are levels of the path.",
        json_schema_extra={"pattern": "^.{1,1024}$"},
        examples=["fleet/config"],
    ),
]


@router.get(
    "/state/{topic:path}",
    summary="Read the last value of a topic",
    response_model=event_schemas.Event,
    response_description="The latest event of the topic.",
    responses={200: {"headers": _TAG}, **problems_of(*GONE, _NONE, problems.INVALID, AWAY)},
    openapi_extra=acts(Action.READ),
)
async def read_state(
    request: Request, topic: _Topic, events: Events, asker: WhoAsks, database: DatabaseName = None
) -> Reply:
    """A last value outlives the retention of events. Without `database`, returns the latest value of all databases."""
    check_names(request, ("database",))
    found = await events.values.value(database, topic)
    if found is None or not asker.may_read_event(found.entry):
        raise ValueNotFoundError(f"topic {topic[:128]!a} has no value")
    return BytesResponse(event_json(found), headers=[_etag(found.position)])


@router.put(
    "/state/{topic:path}",
    summary="Set the last value of a topic",
    response_model=event_schemas.Stated,
    response_description="The value is durable.",
    responses={
        200: {"headers": _TAG},
        **problems_of(
            *GONE,
            BY_ERROR[errors.DeviceNotFoundError],
            problems.SLOW_BODY,
            _CHANGED,
            BY_ERROR[errors.PayloadTooLargeError],
            problems.INVALID,
            BY_ERROR[errors.UndecodableMessageError],
            BY_ERROR[errors.QuotaError],
            AWAY,
        ),
    },
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/json": {"schema": {}}}},
        **acts(Action.PUBLISH),
    },
)
async def put_state(
    request: Request,
    topic: _Topic,
    events: Events,
    asker: WhoAsks,
    database: DatabaseName = None,
    if_match: Annotated[
        str | SkipJsonSchema[None],
        Header(
            alias="If-Match",
            description="Make the change only if the value is still at this position: the `ETag` that was read.",
            json_schema_extra={"pattern": '^"[0-9]{1,19}"$'},
            examples=['"1772352000000000"'],
        ),
    ] = None,
    if_none_match: Annotated[
        str | SkipJsonSchema[None],
        Header(
            alias="If-None-Match",
            description="`*`: make the change only if there is no value yet.",
            json_schema_extra={"pattern": "^\\*$"},
            examples=["*"],
        ),
    ] = None,
) -> Reply:
    """The body is any JSON value. It becomes an event of the topic like any other; devices do not receive it."""
    check_names(request, ("database",))
    device = events.plan.device_of(topic)
    asker.check_topic(Action.PUBLISH, device)
    validate_writable(topic)
    conditions = _conditions(topic, if_match, if_none_match)
    body = await read_body(request.receive, headers_of(request.scope))
    decode_json(body)
    name = database or await events.values.database_of(topic)
    position = await events.publisher.put_value(name, Entry(topic, body, device), conditions)
    return BytesResponse(orjson.dumps({"position": position}), headers=[_etag(position)])


def _conditions(topic: str, if_match: str | None, if_none_match: str | None) -> list[ValueCondition]:
    conditions = []
    if if_match is not None:
        found = _ETAG.fullmatch(if_match)
        if found is None:
            raise InvalidInputError("If-Match", f"{if_match[:64]!a} is none; allowed: an ETag that was read")
        conditions.append(ValueCondition(topic, int(found[1])))
    if if_none_match is not None:
        if if_none_match != "*":
            raise InvalidInputError("If-None-Match", f"{if_none_match[:64]!a} is not allowed; allowed: *")
        conditions.append(ValueCondition(topic, None))
    return conditions


@router.get(
    "/devices/{device_id}/state",
    summary="Read the last values of a device",
    response_model=event_schemas.StateOf,
    response_description="The last values of the device, by topic.",
    responses=problems_of(*GONE, problems.INVALID, AWAY),
    openapi_extra=acts(Action.READ),
)
async def read_device_state(device_id: DeviceId, events: Events, asker: WhoAsks) -> Reply:
    """Returns the values that the caller may read. `online` is null if the presence of the device is not known."""
    known, values = await present(events, device_id, asker)
    shown = known or {"online": None, "since": None, "last_seen": None}
    return BytesResponse(
        b'{"device_id":%b,"presence":%b,"values":%b}'
        % (orjson.dumps(device_id), orjson.dumps(shown), events_json(values))
    )


@router.post(
    "/transactions",
    summary="Change several last values atomically",
    response_model=event_schemas.Stated,
    response_description="All changes are durable; `position` is that of the last one.",
    responses=problems_of(
        *GONE,
        BY_ERROR[errors.DeviceNotFoundError],
        problems.SLOW_BODY,
        problems.CONFLICT,
        BY_ERROR[errors.PayloadTooLargeError],
        problems.INVALID,
        BY_ERROR[errors.QuotaError],
        AWAY,
    ),
    openapi_extra=acts(Action.PUBLISH),
)
async def commit_transaction(
    request: Request,
    body: event_schemas.TransactionBody,
    events: Events,
    asker: WhoAsks,
    database: DatabaseName = None,
) -> Reply:
    """Writes all values or none. All conditions must hold. All topics must be of one shard, as a device's are."""
    check_names(request, ("database",))
    readable = unreadable_of(request) is None
    topics = [*(one.topic for one in body.when), *(one.topic for one in body.write), *body.delete]
    name = database or await events.values.database_of(next(iter(topics), ""))
    transaction = _transaction(body, name, events, asker, readable=readable)
    check_readable(request)
    try:
        position = await events.publisher.commit(transaction)
    except ValueChangedError as error:
        return problem(problems.CONFLICT, str(error), topic=error.topic, position=error.found)
    return BytesResponse(orjson.dumps({"position": position}))


def _transaction(
    body: event_schemas.TransactionBody, database: str, plane: EventPlane, asker: Asker, *, readable: bool
) -> Transaction:
    conditions = []
    for number, one in enumerate(body.when):
        if (one.position is None) == (one.absent is None):
            raise InvalidInputError(f"if.{number}", "says not what must hold; allowed: a position, or absent: true")
        conditions.append(ValueCondition(validate_topic(one.topic), one.position))
    entries = []
    for number, said in enumerate(body.write):
        entries.append(entry_of(said, f"write.{number}", plane.plan.device_of(said.topic), readable=readable))
    entries += [
        Entry(validate_writable(validate_topic(topic), "delete"), b"", plane.plan.device_of(topic))
        for topic in body.delete
    ]
    for entry in entries:
        asker.check_topic(Action.PUBLISH, entry.device)
    topics = [one.topic for one in conditions] + [one.topic for one in entries]
    for topic in topics:
        asker.check_topic(Action.PUBLISH, plane.plan.device_of(topic))
    return Transaction(_one_shard(database, topics, plane), tuple(conditions), tuple(entries))


def _one_shard(database: str, topics: list[str], plane: EventPlane) -> Shard:
    shards = {plane.plan.shard(database, topic): topic for topic in topics}
    if len(shards) > 1:
        one, other = list(shards.values())[:2]
        raise InvalidInputError(
            "topic",
            f"{one[:128]!a} and {other[:128]!a} are of two shards; allowed: topics of one device, or of one shard",
        )
    return next(iter(shards), Shard(database, 0))


def _etag(position: int) -> tuple[bytes, bytes]:
    return b"etag", b'"%d"' % position
