"""Approvals over HTTP: the commands that wait for a second person, and the decisions about them."""

from __future__ import annotations

from typing import Any, Final

import orjson
from fastapi import Request
from fastapi import Response as Reply

from app.api import problems
from app.api.conditions import Conditional
from app.api.dependencies import Asker, Commands, Lists, Node, Recorder, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, problems_of
from app.api.parameters import DEFAULT_LIMIT, CommandId, Limit, check_names
from app.api.ports import CommandPorts
from app.api.problems import BY_ERROR
from app.api.representation import command_json
from app.api.routers import GuardedRouter
from app.api.strict_bodies import StrictBodyRoute
from app.api.v1 import approval_models as models
from app.api.v1 import command_models as schemas
from app.commands.held.rights import proposer_of
from app.core import errors
from app.core.access.rules import Action
from app.core.characters import named
from app.core.commands.approval import APPROVE, ApprovalDecision
from app.core.commands.command import Command
from app.core.commands.fingerprint import fingerprint_of
from app.core.errors import (
    AccessError,
    ApprovalOverError,
    CommandNotFoundError,
    InvalidInputError,
    PreconditionRequiredError,
)

router = GuardedRouter(prefix="/v1", tags=["commands"], route_class=StrictBodyRoute)

_AWAY: Final = BY_ERROR[errors.StoreUnavailableError]


@router.get(
    "/approvals",
    summary="List the commands that wait for a second person",
    response_model=models.Proposals,
    response_description="The commands, soonest end first.",
    responses=problems_of(problems.INVALID, _AWAY),
    openapi_extra=acts(Action.READ),
)
async def list_approvals(
    request: Request, commands: Commands, lists: Lists, asker: WhoAsks, limit: Limit = DEFAULT_LIMIT
) -> Reply:
    """Lists those that the caller may read, and says of each whether they may be the second person."""
    check_names(request, ("limit",))
    shown: list[dict[str, Any]] = []
    more = False
    async with lists.take():
        async for command in commands.approver.waiting():
            if command is None or len(shown) == limit:
                more = True
                break
            if asker.may_read(command):
                shown.append(_proposal(command, asker))
    return BytesResponse(orjson.dumps({"approvals": shown, "more": more}))


@router.get(
    "/commands/{command_id}/approvals",
    summary="Show a command that waits for a second person",
    response_model=models.Proposal,
    response_description="The command, and whether the caller may decide about it.",
    responses=problems_of(
        BY_ERROR[errors.CommandNotFoundError], BY_ERROR[errors.ApprovalOverError], problems.INVALID, _AWAY
    ),
    openapi_extra=acts(Action.READ),
)
async def show_proposal(command_id: CommandId, commands: Commands, asker: WhoAsks) -> Reply:
    """Shows what a second person would decide about, with the fingerprint that names exactly that."""
    command = await _known(command_id, commands, asker)
    _check_waits(command)
    return BytesResponse(orjson.dumps(_proposal(command, asker)))


@router.post(
    "/commands/{command_id}/approvals",
    summary="Approve or refuse a command",
    response_model=schemas.Command,
    response_description="The command after the decision.",
    responses=problems_of(
        BY_ERROR[errors.NeedsSecondPersonError],
        BY_ERROR[errors.CommandNotFoundError],
        BY_ERROR[errors.DeviceNotFoundError],
        BY_ERROR[errors.ApprovalOverError],
        BY_ERROR[errors.PreconditionFailedError],
        BY_ERROR[errors.PreconditionRequiredError],
        problems.SLOW_BODY,
        BY_ERROR[errors.PayloadTooLargeError],
        problems.INVALID,
        BY_ERROR[errors.UndecodableMessageError],
        _AWAY,
        BY_ERROR[errors.NodeDrainingError],
    ),
    openapi_extra=acts(Action.APPROVE),
)
async def decide_command(
    command_id: CommandId,
    body: models.ApprovalBody,
    condition: Conditional,
    commands: Commands,
    node: Node,
    audit: Recorder,
    asker: WhoAsks,
) -> Reply:
    """Decides, as a second person, about a command that waits for one. Of several decisions the first one counts.

    `If-Match` names the fingerprint of exactly the command that was looked at. What is approved is sent as its caller's
    as soon as it can be; what is refused is `cancelled`, with the note.
    """
    command = await _known(command_id, commands, asker)
    node.member.admit()
    try:
        asker.check_second(proposer_of(command), command)
    except AccessError as error:
        if audit is not None:
            audit.denied(str(error), command.device_id)
        raise
    if condition.match is None:
        raise PreconditionRequiredError("If-Match is missing; it names the fingerprint that GET /v1/approvals shows")
    if condition.none_match is not None:
        raise InvalidInputError("If-None-Match", "has no meaning here; allowed: If-Match")
    condition.check(f"command {command_id}", fingerprint_of(command))
    unprintable = next((one for one in body.note if not one.isprintable()), None)
    if unprintable is not None:
        raise InvalidInputError("note", f"{named(unprintable)} is not allowed; a note is one line of text")
    _check_waits(command)
    caller, name = asker.approver()
    if audit is not None:
        audit.check()
    decision = ApprovalDecision(body.decision == APPROVE, caller.to_text(), name, body.note)
    try:
        await commands.approver.decide(command, decision)
    except ApprovalOverError:  # it decided nothing, and so it is on record as nothing; any other may have
        audit = None
        raise
    finally:
        if audit is not None:
            audit.decided(command_id, command.device_id, body.decision)
    return BytesResponse(command_json(await commands.store.read(command_id)))


async def _known(command_id: str, commands: CommandPorts, asker: Asker) -> Command:
    """Read a command that the caller may know of; CommandNotFoundError."""
    command = await commands.store.read(command_id)
    if not asker.may_read(command):
        raise CommandNotFoundError(command_id)
    return command


def _check_waits(command: Command) -> None:
    """Return where it waits for a second person; ApprovalOverError says why it does not."""
    if not command.awaits_approval:
        raise ApprovalOverError(command.id, _why_over(command))


def _proposal(command: Command, asker: Asker) -> dict[str, Any]:
    why_not: str | None = None
    asked_by = None
    try:
        proposer = proposer_of(command)
        asked_by = asker.name_of(proposer)
        asker.check_second(proposer, command)
    except AccessError as error:
        why_not = str(error)
    return {
        "command": orjson.Fragment(command_json(command)),
        "asked_by": asked_by,
        "fingerprint": fingerprint_of(command),
        "may_decide": why_not is None,
        **({} if why_not is None else {"why_not": why_not}),
    }


def _why_over(command: Command) -> str:
    approval = command.approval
    if approval is None:
        return f"command {command.id} needs no second person"
    if approval.decision is not None:
        word = "approved" if approval.decision.approves else "refused"
        return f"{approval.decision.name} has {word} command {command.id} already"
    return f"command {command.id} is {command.state}: nobody is asked any more"
