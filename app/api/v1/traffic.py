"""Messages between devices and broker: what profiles make of one, and a look at those that come, over HTTP."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final

import orjson
from fastapi import Query, Request
from fastapi import Response as Reply
from pydantic import AfterValidator, BeforeValidator
from pydantic.json_schema import SkipJsonSchema

from app.api import problems, sse
from app.api.dependencies import BrokerTraffic, Drafts, OpenStreams, Recorder, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, knows, problems_of
from app.api.parameters import ListLimit, check_names, query
from app.api.problems import BY_ERROR
from app.api.representation import instant
from app.api.routers import GuardedRouter
from app.api.v1 import traffic_models as models
from app.core import errors
from app.core.access.rules import Action
from app.core.durations import DURATION, format_duration, parse_duration
from app.core.errors import InvalidInputError
from app.core.events.event import validate_reading_filter
from app.core.messages import ReceivedMessage
from app.core.topics import validate_topic
from app.profiles.tools.tracer import Seen
from app.traffic import HeardMessage, Traffic, TrafficListener

LONGEST: Final = timedelta(minutes=5)
MOST_MESSAGES: Final = 1000
MOST_SHOWN: Final = 2048
"""Bytes of a payload that are shown."""

router = GuardedRouter(prefix="/v1", tags=["profiles"])


@router.post(
    "/profiles/trial",
    summary="Try what each profile makes of a message",
    response_model=models.TriedReadings,
    response_description="The reading of each profile that has the topic, or the reason why it ignores the message.",
    responses=problems_of(problems.INVALID),
    openapi_extra=knows(),
)
async def try_message(request: Request, body: models.TriedMessage, traffic: BrokerTraffic) -> Reply:
    """Reads a message as if it came from the broker at this moment. Nothing is sent, stored or counted."""
    check_names(request, ())
    message = ReceivedMessage(validate_topic(body.topic), _payload_of(body), retain=body.retain)
    shown = {"topic": message.topic, "bytes": len(message.payload), "readings": _readings(traffic.read_now(message))}
    return BytesResponse(orjson.dumps(shown))


@router.post(
    "/profiles/draft",
    summary="Try a profile that the node does not speak",
    response_model=models.DraftFindings,
    response_description="The faults of the profile, or what it makes of a command and of a message.",
    responses=problems_of(problems.INVALID, BY_ERROR[errors.CapacityError], BY_ERROR[errors.UnavailableError]),
    openapi_extra=acts(Action.TRACE),
)
async def try_profile(request: Request, body: models.TriedProfile, drafts: Drafts, asker: WhoAsks) -> Reply:
    """Reads the TOML as nodes do, and says what they would publish. Nothing is sent or stored.

    It runs in a process that is killed when it takes too long, one at a time on a node. What lies beside a file, such
    as the descriptors of Protobuf, is not there.
    """
    check_names(request, ())
    asker.check(Action.TRACE)
    if body.topic is not None:
        if body.payload is None:
            raise InvalidInputError("payload", "is missing; a topic alone says nothing")
        validate_topic(body.topic)
    return BytesResponse(orjson.dumps(await drafts.run(body.model_dump())))


def _payload_of(body: models.TriedMessage) -> bytes:
    if (body.payload is None) == (body.payload_base64 is None):
        raise InvalidInputError("payload", "and payload_base64 are two ways to say it; allowed: exactly one of them")
    if body.payload is not None:
        payload = body.payload.encode()
    else:
        try:
            payload = b64decode(body.payload_base64 or "", validate=True)
        except ValueError:
            raise InvalidInputError("payload_base64", "is no base64 (RFC 4648, section 4)") from None
    if len(payload) > models.MOST_PAYLOAD:
        raise InvalidInputError("payload", f"has {len(payload)} bytes; allowed: at most {models.MOST_PAYLOAD}")
    return payload


def _filter(text: str | None) -> str | None:
    return None if text is None else validate_reading_filter(text)


def _lasting(text: str) -> timedelta:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise InvalidInputError("for", str(error)) from None
    if not timedelta() < found <= LONGEST:
        raise InvalidInputError("for", f"{text[:32]!a} is out of range; allowed: more than 0, up to 5m")
    return found


@router.get(
    "/traffic",
    summary="Listen to messages of the broker, and how profiles read them",
    response_class=Reply,
    response_description="Server-sent events: `listening`, `message`, `end`; `problem` if the stream fails.",
    responses={
        200: {"content": {"text/event-stream": {}}},
        **problems_of(problems.INVALID, BY_ERROR[errors.CapacityError], BY_ERROR[errors.BrokerUnavailableError]),
    },
    openapi_extra=acts(Action.TRACE),
)
async def listen_to_traffic(
    request: Request,
    traffic: BrokerTraffic,
    audit: Recorder,
    streams: OpenStreams,
    asker: WhoAsks,
    topic: Annotated[
        str | SkipJsonSchema[None],
        AfterValidator(_filter),
        query("A topic filter. By default, all topics of the profiles.", ".{1,1024}", "lamps/#"),
    ] = None,
    lasting: Annotated[
        timedelta,
        BeforeValidator(_lasting),
        Query(
            alias="for",
            description="The time to listen, at most 5m.",
            json_schema_extra={"type": "string", "pattern": f"^{DURATION}$"},
            examples=["60s"],
        ),
    ] = timedelta(minutes=1),
    limit: ListLimit = MOST_MESSAGES,
) -> Reply:
    """Listens with a connection of its own, which publishes nothing and takes nothing away from nodes.

    Two callers may listen on a node at once. It hears what the user name of the node may read, and each listener is
    in the audit. It ends after the time, or after so many messages.
    """
    check_names(request, ("topic", "for", "limit"))
    asker.check(Action.TRACE)
    traffic.check_room()
    filters = traffic.filters() if topic is None else [topic]
    if audit is not None:
        audit.followed({"traffic": topic or "all profiles"})
    feed = partial(_feed, traffic, filters, limit, lasting)
    return sse.EventStream(streams, feed, may=lambda: asker.check(Action.TRACE), principal=asker.principal())


async def _feed(
    traffic: Traffic, filters: Sequence[str], limit: int, lasting: timedelta, stream: sse.SseStream
) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    strangers = 0
    async with traffic.listen(filters, limit, lasting.total_seconds()) as listener:
        begun = {"topics": list(filters), "for": format_duration(lasting), "limit": limit}
        await stream.write(sse.event("listening", orjson.dumps(begun)))
        while True:
            while (heard := listener.take()) is not None:
                seen = traffic.read(heard)
                counts.update((one.profile, one.outcome) for one in seen)
                strangers += not seen
                await stream.write(sse.event("message", orjson.dumps(_message(heard, seen))))
            if listener.over or listener.full:
                break
            await stream.rest(listener.changed)
        await stream.write(sse.event("end", orjson.dumps(_end(listener, counts, strangers))))


def _message(heard: HeardMessage, seen: Sequence[Seen]) -> dict[str, Any]:
    message = heard.message
    part = message.payload[:MOST_SHOWN]
    cut = len(part) < len(message.payload)
    try:
        said: dict[str, Any] = {"payload": part.decode(errors="ignore" if cut else "strict")}
    except UnicodeDecodeError:
        said = {"payload_hex": part.hex()}
    about = {"topic": message.topic, "at": instant(heard.at_us), "qos": message.qos, "retain": message.retain}
    return {**about, "bytes": len(message.payload), **said, "cut": cut, "readings": _readings(seen)}


def _end(listener: TrafficListener, counts: Counter[tuple[str, str]], strangers: int) -> dict[str, Any]:
    counted = [
        {"profile": profile, "outcome": outcome, "count": count} for (profile, outcome), count in sorted(counts.items())
    ]
    numbers = {"heard": listener.heard, "dropped": listener.dropped, "strangers": strangers}
    return {"why": "limit" if listener.full else "time", **numbers, "outcomes": counted}


def _readings(seen: Sequence[Seen]) -> list[dict[str, str]]:
    return [one._asdict() for one in seen]
