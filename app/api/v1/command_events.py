"""Events of commands, as server-sent events."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import Header, Query, Request
from fastapi import Response as Reply
from pydantic.json_schema import SkipJsonSchema

from app.api import problems, sse
from app.api.dependencies import Asker, Commands, OpenStreams, Recorder, WhoAsks
from app.api.openapi import acts, problems_of
from app.api.parameters import CommandId, check_names, query
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.story import feed_of, has_ended
from app.api.v1 import command_models as schemas
from app.api.v1.command_models import said
from app.core import errors
from app.core.access.rules import Action
from app.core.commands.command import Command
from app.core.errors import CommandNotFoundError, InvalidInputError
from app.core.identifiers import COMMAND_ID

UNTIL_RETENTION: Final = "retention"
EVENT_ID: Final = f"{COMMAND_ID}/[0-9]{{1,9}}"
"""The form of the id of an event, as a regular expression for documentation."""
_MOST_DIGITS: Final = 9

router = GuardedRouter(prefix="/v1", tags=["commands"])

_After = Annotated[
    str | SkipJsonSchema[None],
    query(
        "Resume after the event with this id. `Last-Event-ID`, which a browser sets when it comes back, goes first.",
        EVENT_ID,
        f"{schemas.COMMAND_ID}/3",
    ),
]
_Last = Annotated[
    str | SkipJsonSchema[None],
    Header(
        alias="Last-Event-ID",
        description="Resume after the event with this id, on any node.",
        json_schema_extra=said(EVENT_ID),
        examples=[f"{schemas.COMMAND_ID}/3"],
    ),
]
_Until = Annotated[
    str | SkipJsonSchema[None],
    Query(
        description="The end of the stream: with the outcome, or with a late response or the record.",
        json_schema_extra={"enum": ["outcome", UNTIL_RETENTION]},
    ),
]


@router.get(
    "/commands/{command_id}/events",
    summary="Follow a command as it happens, from any node",
    response_class=Reply,
    response_description=(
        "Server-sent events: `command`, `progress`, `outcome`, `verified`, `late`; `problem` if the stream fails."
    ),
    responses={
        200: {"content": {"text/event-stream": {}}},
        204: {"description": "No event can follow the one that the caller named."},
        **problems_of(
            BY_ERROR[errors.CommandNotFoundError],
            problems.INVALID,
            BY_ERROR[errors.CapacityError],
            BY_ERROR[errors.StoreUnavailableError],
        ),
    },
    openapi_extra=acts(Action.READ),
)
async def follow_command(
    request: Request,
    command_id: CommandId,
    commands: Commands,
    audit: Recorder,
    streams: OpenStreams,
    asker: WhoAsks,
    after: _After = None,
    last_event_id: _Last = None,
    until: _Until = None,
) -> Reply:
    """Begins with the current state of the command and its progress reports, or after the event that the caller names.

    The stream ends after the outcome. With `until=retention` it ends after a late response, which only a command that
    timed out, was cancelled or was not sent can have, or with the record. A caller that resumes after the last event
    gets `204`.
    """
    check_names(request, ("after", "until"))
    to_the_end = _is_to_the_end(until)
    seen = _number("Last-Event-ID" if last_event_id else "after", last_event_id or after, command_id)
    account = await commands.store.follow(command_id)
    may = partial(_check, asker, account.command)
    may()
    if seen is not None and has_ended(account, seen, to_the_end=to_the_end):
        return Reply(status_code=204)
    if audit is not None:
        audit.followed({"command": command_id, "device": account.command.device_id})
    feed = partial(feed_of, commands.watches, command_id, seen, to_the_end=to_the_end)
    return sse.EventStream(streams, feed, may=may, principal=asker.principal())


def _check(asker: Asker, command: Command) -> None:
    """CommandNotFoundError when they may not know of it; UnauthenticatedError when they are nobody any more."""
    asker.principal()
    if not asker.may_read(command):
        raise CommandNotFoundError(command.id)


def _is_to_the_end(until: str | None) -> bool:
    if until not in (None, "outcome", UNTIL_RETENTION):
        raise InvalidInputError("until", f"{until[:32]!a} is none; allowed: outcome, {UNTIL_RETENTION}")
    return until == UNTIL_RETENTION


def _number(field: str, text: str | None, command_id: str) -> int | None:
    """The number in the id of an event of this command."""
    if not text:
        return None
    identity, _, number = text.rpartition("/")
    if identity != command_id or not (number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS):
        raise InvalidInputError(
            field, f"{text[:64]!a} is no event of this command; allowed: {command_id}/ and a number"
        )
    return int(number)
