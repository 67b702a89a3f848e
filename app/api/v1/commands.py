"""Commands over HTTP: send, read, list, cancel."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Depends, Header, Query, Request
from fastapi import Response as Reply
from pydantic import AfterValidator, BeforeValidator
from pydantic.json_schema import SkipJsonSchema

from app.api import problems
from app.api.cursors import ANY as ANY_CURSOR
from app.api.dependencies import Asker, Commands, EventsOrNone, Hot, Lists, Node, Recorder, WhoAsks
from app.api.dry_runs import dry_run_json, read_dry_run
from app.api.http import BytesResponse
from app.api.openapi import acts, header, json_of, problems_of
from app.api.pages import filled
from app.api.parameters import DEFAULT_LIMIT, CommandId, DeviceId, DryRunFlag, Limit, check_names, query
from app.api.ports import CommandPorts
from app.api.present import present
from app.api.problems import BY_ERROR
from app.api.representation import command_json, explanation_json, page_json
from app.api.routers import GuardedRouter
from app.api.v1 import command_models as schemas
from app.api.v1.dry_run_models import DryRunView
from app.api.v1.explanation_models import Explanation
from app.core import errors, identifiers
from app.core.access.patterns import validate_pattern
from app.core.access.rules import Action
from app.core.commands.command import Command, CommandState
from app.core.errors import CommandFinishedError, CommandNotFoundError, InvalidInputError
from app.core.events.instants import PATTERN, parse_position
from app.core.identifiers import validate_device_id, validate_idempotency_key
from app.events.plane import EventPlane
from app.store.commands import CommandSlice
from app.store.commands import Query as Asked
from app.store.rules import MOST_PLACE

_ANSWER_HEADERS: Final = {
    "Idempotent-Replayed": header("`true` if an earlier call with the same key began the command."),
    "Preference-Applied": header("The preferences that were applied to the answer (RFC 7240)."),
}
_LIST: Final = "commands"
_AWAY: Final = BY_ERROR[errors.StoreUnavailableError]
_DRAINING: Final = BY_ERROR[errors.NodeDrainingError]

router = GuardedRouter(prefix="/v1", tags=["commands"])


@router.post(
    "/devices/{device_id}/commands",
    summary="Send a command to a device",
    response_model=schemas.Command | DryRunView,
    response_description="The command and its outcome. With `dry_run`: what would become of it.",
    responses={
        200: {"headers": _ANSWER_HEADERS, "content": {"text/event-stream": {}}},
        202: {
            "description": "The command is still open: read it at `Location`. Also if the node is stopping.",
            "headers": {"Location": header("The path of the command."), **_ANSWER_HEADERS},
            "model": schemas.Command,
        },
        **problems_of(
            BY_ERROR[errors.NeedsSecondPersonError],
            BY_ERROR[errors.DeviceNotFoundError],
            problems.SLOW_BODY,
            BY_ERROR[errors.PayloadTooLargeError],
            problems.NOT_JSON,
            problems.INVALID,
            BY_ERROR[errors.UndecodableMessageError],
            BY_ERROR[errors.UnpublishableError],
            BY_ERROR[errors.PacketTooLargeError],
            BY_ERROR[errors.IdempotencyMismatchError],
            BY_ERROR[errors.CapacityError],
            BY_ERROR[errors.DeviceBusyError],
            BY_ERROR[errors.InterlockError],
            BY_ERROR[errors.InterlockBlindError],
            BY_ERROR[errors.RateLimitError],
            BY_ERROR[errors.TooManyOpenError],
            BY_ERROR[errors.TooManyHeldError],
            _AWAY,
            BY_ERROR[errors.BrokerUnavailableError],
            _DRAINING,
            BY_ERROR[errors.NotYetError],
            problems.NOT_LISTENING,
            problems.NOT_SENT,
            problems.NO_OUTCOME,
            problems.TIMED_OUT,
        ),
    },
    openapi_extra={"requestBody": {"required": True, "content": json_of(schemas.CommandBody)}, **acts(Action.SEND)},
)
async def send_command(
    request: Request,
    device_id: DeviceId,
    hot: Hot,
    commands: Commands,
    node: Node,
    asker: WhoAsks,
    _headers: Annotated[schemas.SendHeaders, Header()],
    *,
    dry_run: DryRunFlag = False,
) -> Reply:
    """Sends the command and waits for its outcome, unless `Prefer` says otherwise.

    An outcome is data, not an HTTP error: when the device refuses, the answer is `200` with `state: failed`; when
    another caller cancels the command meanwhile, it is `200` with `state: cancelled`. A one-way command gives `200`
    with `state: succeeded` once the MQTT broker has acknowledged it. With `Accept: text/event-stream` the answer is the
    stream of `GET …/commands/{id}/events`, and `Location` names the command. With `dry_run` nothing is sent,
    registered or counted, and the answer says what would become of the command. Nodes of 0.2.0 do not know `dry_run`
    and would send it, but refuse a body that has `dry_run: true` as well.
    """
    check_names(request, ("dry_run",))
    if dry_run:
        node.member.admit()
        asked = await read_dry_run(device_id, request, hot)
        if isinstance(asked, Reply):
            return asked
        asked = hot.proposed(asker.caller, asked)
        found = await commands.dry_runner.run(asked, asker.caller)
        return BytesResponse(dry_run_json(found, reads=asker.may_know(device_id, asked.profile, asked.method)))
    # Calls come here only where something stands between them and `Application.__call__`, which has the short way.
    return await hot.serve(device_id, request.scope, request.receive)


@router.get(
    "/commands/{command_id}",
    summary="Read a command, from any node",
    response_model=schemas.Command,
    response_description="The current state of the command.",
    responses=problems_of(BY_ERROR[errors.CommandNotFoundError], problems.INVALID, _AWAY),
    openapi_extra=acts(Action.READ),
)
async def read_command(command_id: CommandId, commands: Commands, asker: WhoAsks) -> Reply:  # noqa: D103 - its summary says it
    return BytesResponse(command_json(await _known(command_id, commands, asker)))


@router.get(
    "/commands/{command_id}/explain",
    summary="Explain what became of a command",
    response_model=Explanation,
    response_description="The history of the command on all nodes, and the probable reason for how it ended.",
    responses=problems_of(
        BY_ERROR[errors.CommandNotFoundError], problems.INVALID, BY_ERROR[errors.CapacityError], _AWAY
    ),
    openapi_extra=acts(Action.READ),
)
async def explain_command(
    command_id: CommandId, commands: Commands, node: Node, events: EventsOrNone, asker: WhoAsks
) -> Reply:
    """Asks all nodes what they remember of the command. `gaps` names nodes that do not answer within half a second."""
    command = await _known(command_id, commands, asker)
    explanation = await commands.explainer.explain(command)
    node.counters[f"explained.{explanation.judgement.code}"] += 1
    return BytesResponse(explanation_json(explanation, await _presence(command.device_id, events, asker)))


async def _presence(device_id: str, events: EventPlane | None, asker: Asker) -> dict[str, object] | None:
    """Return what the event log knows of the device, where there is one and it answers."""
    if events is None:
        return None
    with suppress(errors.UnavailableError, errors.EventLogError):
        return (await present(events, device_id, asker))[0]
    return None


async def _known(command_id: str, commands: CommandPorts, asker: Asker) -> Command:
    """The command, if there is one that the caller may know of; CommandNotFoundError."""
    command = await commands.store.read(command_id)
    if not asker.may_read(command):
        raise CommandNotFoundError(command_id)
    return command


def _state(text: str) -> CommandState:
    try:
        return CommandState(text)
    except ValueError:
        raise InvalidInputError("state", f"{text[:32]!a} is none; allowed: {', '.join(CommandState)}") from None


_Device = Annotated[
    str | SkipJsonSchema[None],
    AfterValidator(validate_device_id),
    query("Return only commands of this device.", identifiers.DEVICE_ID, schemas.DEVICE_ID),
]
_State = Annotated[
    CommandState | SkipJsonSchema[None],
    BeforeValidator(_state),
    Query(description="Return only commands in this state.", examples=["failed"]),
]
_Cursor = Annotated[
    str | SkipJsonSchema[None],
    query("The `cursor` of the previous page.", ANY_CURSOR, f"1772352000000000_{schemas.COMMAND_ID}"),
]
_Key = Annotated[
    str | SkipJsonSchema[None],
    AfterValidator(validate_idempotency_key),
    query(
        "Return only the command that was sent to the device with this idempotency key.",
        identifiers.IDEMPOTENCY_KEY,
        "order-4711",
    ),
]
_Method = Annotated[
    str | SkipJsonSchema[None],
    query(
        "Return only commands whose method matches this pattern; `*` matches any text.",
        "[A-Za-z0-9_.:/*-]{1,128}",
        "cover_*",
    ),
]
_Profile = Annotated[
    str | SkipJsonSchema[None],
    query(
        "Return only commands whose profile matches this pattern; `*` matches any text.", "[a-z0-9_*-]{1,128}", "dji"
    ),
]
_Instant = Annotated[
    str | SkipJsonSchema[None],
    query("Return only commands created at `since` or later, and at `until` or earlier.", f"({PATTERN})", "-10m"),
]
_FILTERS_OF_DEVICE: Final = ("state", "method", "profile", "since", "until", "limit", "cursor", "idempotency_key")
_FILTERS: Final = ("device", *_FILTERS_OF_DEVICE)


async def _filters(
    node: Node,
    state: _State = None,
    method: _Method = None,
    profile: _Profile = None,
    since: _Instant = None,
    until: _Instant = None,
    idempotency_key: _Key = None,
) -> Asked:
    """Return which commands a caller lists, whatever their device and page."""
    now = node.now_us()
    return Asked(
        state=state,
        idempotency_key=idempotency_key,
        method=None if method is None else validate_pattern("method", method),
        profile=None if profile is None else validate_pattern("profile", profile, of_profiles=True),
        since_us=None if since is None else parse_position("since", since, now),
        until_us=None if until is None else parse_position("until", until, now),
    )


_Filters = Annotated[Asked, Depends(_filters)]


async def _asked(
    request: Request, filters: _Filters, device: _Device = None, limit: Limit = DEFAULT_LIMIT, cursor: _Cursor = None
) -> Asked:
    """Return what a caller lists."""
    check_names(request, _FILTERS)
    if filters.idempotency_key is not None and device is None:
        raise InvalidInputError("device", "is missing; an idempotency key is one of a device")
    return replace(filters, device_id=device, limit=limit, cursor=cursor)


async def _asked_of_device(
    request: Request, device_id: DeviceId, filters: _Filters, limit: Limit = DEFAULT_LIMIT, cursor: _Cursor = None
) -> Asked:
    """Return what a caller lists of a device."""
    check_names(request, _FILTERS_OF_DEVICE)
    return replace(filters, device_id=device_id, limit=limit, cursor=cursor)


@router.get(
    "/commands",
    summary="List commands, newest first",
    response_model=schemas.CommandPage,
    response_description="A page of commands.",
    responses=problems_of(problems.INVALID, _AWAY),
    openapi_extra=acts(Action.READ),
)
async def list_commands(
    asked: Annotated[Asked, Depends(_asked)], commands: Commands, lists: Lists, asker: WhoAsks
) -> Reply:
    """Lists the commands that the caller may read. A page may be short or empty without being the last one.

    This happens when thousands of commands that the caller may not read lie before the next one that they may read.
    """
    if asked.device_id is not None and not asker.may_read_some(asked.device_id):
        return BytesResponse(await page_json(CommandSlice((), None)))
    cursor = None if asked.cursor is None else asker.cursors.take(_LIST, asked.cursor)
    async with lists.take():
        page = await filled(
            commands.store.list_commands, replace(asked, cursor=cursor), asker.may_read, sees_all=asker.sees_all
        )
        behind = None if page.cursor is None else asker.cursors.give(_LIST, page.cursor, MOST_PLACE)
        return BytesResponse(await page_json(CommandSlice(page.commands, behind)))


@router.get(
    "/devices/{device_id}/commands",
    summary="List the commands of a device, newest first",
    response_model=schemas.CommandPage,
    response_description="A page of commands.",
    responses=problems_of(problems.INVALID, _AWAY),
    openapi_extra=acts(Action.READ),
)
async def list_device_commands(
    asked: Annotated[Asked, Depends(_asked_of_device)], commands: Commands, lists: Lists, asker: WhoAsks
) -> Reply:
    """Lists the commands that the caller may read."""
    return await list_commands(asked, commands, lists, asker)


_NOT_CANCELLED: Final = problems_of(
    BY_ERROR[errors.CommandNotFoundError], BY_ERROR[errors.CommandFinishedError], problems.INVALID, _AWAY, _DRAINING
)


@router.post(
    "/commands/{command_id}/cancel",
    summary="Cancel a command",
    response_model=schemas.Command,
    response_description="The cancelled command, which stays on record.",
    responses=_NOT_CANCELLED,
    openapi_extra=acts(Action.CANCEL),
)
async def cancel_command(
    command_id: CommandId, commands: Commands, node: Node, audit: Recorder, asker: WhoAsks
) -> Reply:
    """Ends the command for its callers at once. The device is not told: if it still responds, that is `late`."""
    command = await _known(command_id, commands, asker)
    asker.check_command(Action.CANCEL, command)
    node.member.admit()
    if audit is not None:
        audit.check()
        audit.cancelled(command_id, command.device_id)
    finished = await commands.invoker.cancel(command_id)
    if not finished.won:
        raise CommandFinishedError(command_id, finished.outcome.state)
    return BytesResponse(command_json(await commands.store.read(command_id)))


@router.delete(
    "/commands/{command_id}",
    summary="Cancel a command (older name)",
    response_model=schemas.Command,
    response_description="The cancelled command, which stays on record.",
    responses=_NOT_CANCELLED,
    openapi_extra=acts(Action.CANCEL),
)
async def cancel_command_by_delete(
    command_id: CommandId, commands: Commands, node: Node, audit: Recorder, asker: WhoAsks
) -> Reply:
    """Does the same as `POST …/cancel`, which nodes of version 0.2 do not know."""
    return await cancel_command(command_id, commands, node, audit, asker)
