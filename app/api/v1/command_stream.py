"""The events of all commands, as server-sent events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Final

import orjson
from fastapi import Depends, Header, Query, Request
from fastapi import Response as Reply
from pydantic.json_schema import SkipJsonSchema

from app.api import problems, sse
from app.api.dependencies import Asker, Commands, OpenStreams, WhoAsks
from app.api.openapi import acts, problems_of
from app.api.parameters import check_names, query
from app.api.problems import BY_ERROR
from app.api.representation import error_or_none, instant, json_or_none
from app.api.routers import GuardedRouter
from app.api.v1.command_models import said
from app.commands.follow.stream import Begun, CommandStream, StreamFollower
from app.core import errors
from app.core.access.callers import Caller
from app.core.access.patterns import expression, validate_pattern
from app.core.access.rules import Action
from app.core.commands.command import CommandState
from app.core.commands.stream import POSITION, CommandChange, CommandChangeKind, Position
from app.core.errors import InvalidInputError

router = GuardedRouter(prefix="/v1", tags=["commands"])

_STATES: Final = tuple(one for one in CommandState if one.final or one is CommandState.RUNNING)
_EXAMPLE: Final = "1772352000000-0.239"

_After = Annotated[
    str | SkipJsonSchema[None],
    query(
        "Resume after the event with this id. `Last-Event-ID`, which a browser sets when it comes back, goes first.",
        POSITION,
        _EXAMPLE,
    ),
]
_Last = Annotated[
    str | SkipJsonSchema[None],
    Header(
        alias="Last-Event-ID",
        description="Resume after the event with this id, on any node.",
        json_schema_extra=said(POSITION),
        examples=[_EXAMPLE],
    ),
]


def _pattern(about: str, example: str, characters: str = "A-Za-z0-9_.:*-") -> object:
    return Query(description=about, json_schema_extra=said(f"[{characters}]{{1,128}}"), examples=[example])


def _listed(about: str, allowed: Sequence[str]) -> object:
    one = f"({'|'.join(allowed)})"
    return Query(description=about, json_schema_extra=said(f"{one}(,{one}){{0,{len(allowed)}}}"), examples=[allowed[0]])


_Device = Annotated[
    str | SkipJsonSchema[None],
    _pattern("Return only events of devices that match this pattern; `*` matches any text.", "dock-*"),
]
_Profile = Annotated[
    str | SkipJsonSchema[None], _pattern("Return only events of profiles that match this pattern.", "dji", "a-z0-9_*-")
]
_Method = Annotated[
    str | SkipJsonSchema[None], _pattern("Return only events of methods that match this pattern.", "cover_*")
]
_State = Annotated[
    str | SkipJsonSchema[None],
    _listed("Return only events of commands in one of these states, separated by commas.", _STATES),
]
_Kind = Annotated[
    str | SkipJsonSchema[None],
    _listed("Return only events of these kinds, separated by commas.", tuple(CommandChangeKind)),
]
_NAMES: Final = ("device", "profile", "method", "state", "kind", "after")


@dataclass(frozen=True, slots=True)
class StreamFilter:
    """The events that a caller wants to be told of."""

    names: re.Pattern[str]
    """Fits device, profile and method, a line break between."""
    states: frozenset[str]
    kinds: frozenset[str]

    def has(self, one: CommandChange) -> bool:
        """True if it is."""
        return (
            one.kind in self.kinds
            and one.state in self.states
            and self.names.fullmatch(f"{one.device_id}\n{one.profile}\n{one.method}") is not None
        )


async def _wanted(
    device: _Device = None, profile: _Profile = None, method: _Method = None, state: _State = None, kind: _Kind = None
) -> StreamFilter:
    """InvalidInputError."""
    patterns = (
        validate_pattern("device", "*" if device is None else device),
        validate_pattern("profile", "*" if profile is None else profile, of_profiles=True),
        validate_pattern("method", "*" if method is None else method),
    )
    return StreamFilter(
        re.compile("\n".join(expression(one) for one in patterns)),
        _some("state", state, _STATES),
        _some("kind", kind, tuple(CommandChangeKind)),
    )


def _some(field: str, text: str | None, allowed: Sequence[str]) -> frozenset[str]:
    """Return those that are named, or all."""
    if text is None:
        return frozenset(allowed)
    named = text.split(",")
    for one in named:
        if one not in allowed:
            raise InvalidInputError(field, f"{one[:32]!a} is none; allowed: {', '.join(allowed)}, with a comma between")
    return frozenset(named)


@router.get(
    "/commands/events",
    summary="Follow all commands as they happen, from any node",
    response_class=Reply,
    response_description=(
        "Server-sent events: `progress`, `outcome`, `late`, `verified`, `gap`, `bookmark`; `problem` if the stream "
        "fails."
    ),
    responses={
        200: {"content": {"text/event-stream": {}}},
        **problems_of(problems.INVALID, BY_ERROR[errors.CapacityError], BY_ERROR[errors.StoreUnavailableError]),
    },
    openapi_extra=acts(Action.READ),
)
async def follow_commands(
    request: Request,
    wanted: Annotated[StreamFilter, Depends(_wanted)],
    commands: Commands,
    streams: OpenStreams,
    asker: WhoAsks,
    after: _After = None,
    last_event_id: _Last = None,
) -> Reply:
    """Streams events of the commands that the caller may read, from now on or after a given event. It never ends.

    Events of the same millisecond as the given one may be repeated. A `gap` event warns that events may be missing, and
    says from which instant the stream is complete again. A `bookmark` event carries an id to resume from; it is sent at
    the beginning, and after a pause without events.
    """
    check_names(request, _NAMES)
    position = _position("Last-Event-ID" if last_event_id else "after", last_event_id or after)
    begun = await commands.stream.begin(position)
    fresh = position is None
    feed = partial(
        _feed, commands.stream, begun, lambda stream: _SseListener(asker, wanted, stream.cut_off), fresh=fresh
    )
    return sse.EventStream(streams, feed, may=partial(_known, asker), principal=asker.principal())


def _known(asker: Asker) -> None:
    """UnauthenticatedError when they are nobody any more; what they may read is asked with each event."""
    asker.principal()


def _position(field: str, text: str | None) -> Position | None:
    if not text:
        return None
    try:
        return Position.parse(text)
    except ValueError:
        raise InvalidInputError(field, f"{text[:64]!a} is no event of this stream; allowed: the id of one") from None


@lru_cache(maxsize=512)
def _event(one: CommandChange) -> bytes:
    """The same for all who are told of it."""
    told = {
        "seq": one.number,
        "at": instant(one.at),
        "command_id": one.command_id,
        "device_id": one.device_id,
        "profile": one.profile,
        "method": one.method,
        "state": one.state,
        _TEXT_OF[one.kind]: (error_or_none if one.kind is CommandChangeKind.OUTCOME else json_or_none)(one.text),
    }
    return sse.event(one.kind, orjson.dumps(told), str(one.position))


_TEXT_OF: Final = {
    CommandChangeKind.PROGRESS: "progress",
    CommandChangeKind.OUTCOME: "error",
    CommandChangeKind.LATE: "late",
    CommandChangeKind.VERIFIED: "verified",
}


def _bookmark(ms: int) -> bytes:
    """Return what happened before this millisecond was told."""
    return sse.event("bookmark", orjson.dumps({"at": instant(ms * 1000)}), str(Position(ms, 0, 0)))


@dataclass(frozen=True, slots=True)
class _SseListener:
    """Tells a caller, on their stream, what they want and may know of."""

    asker: Asker
    wanted: StreamFilter
    cut_off: Callable[[], None]

    @property
    def view(self) -> tuple[StreamFilter, Caller | None]:
        return self.wanted, self.asker.caller

    def event(self, one: CommandChange) -> bytes:
        if self.wanted.has(one) and self.asker.may_know(one.device_id, one.profile, one.method):
            return _event(one)
        return b""

    def gap(self, since: int) -> bytes:
        return sse.event("gap", orjson.dumps({"since": instant(since * 1000)}), str(Position(since, 0, 0)))


async def _feed(
    changes: CommandStream,
    begun: Begun,
    teller_on: Callable[[sse.SseStream], _SseListener],
    stream: sse.SseStream,
    *,
    fresh: bool,
) -> None:
    """First what has happened meanwhile, from the store; then what the reader of this node tells."""
    listener = teller_on(stream)
    follower = changes.follower(begun, listener)
    if begun.gap:
        await stream.write(listener.gap(begun.whole))
    elif fresh:
        await stream.write(_bookmark(begun.whole))  # who is cut off before the first event can come back, too
    if not fresh:
        await _catch_up(changes, follower, stream)  # that may be long, and what is told meanwhile would wait
    with changes.follow(follower):
        await _catch_up(changes, follower, stream)
        follower.caught_up()
        now = asyncio.get_running_loop().time
        while True:
            data = follower.take()
            if data:
                await stream.write(data)
                await asyncio.sleep(changes.pause(now()))
            await stream.rest(follower.changed, lambda: _bookmark(follower.until))


async def _catch_up(changes: CommandStream, follower: StreamFollower, stream: sse.SseStream) -> None:
    complete = False
    while not complete:
        page = await changes.page(follower.marks)
        complete = page.complete
        data = follower.took(page)
        if data:
            await stream.write(data)
