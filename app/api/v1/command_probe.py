"""Looking for a command that has timed out, over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

import orjson
from fastapi import Response as Reply
from pydantic import Field

from app.api import problems
from app.api.dependencies import Commands, Node, Recorder, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, problems_of
from app.api.parameters import CommandId
from app.api.problems import BY_ERROR
from app.api.representation import command_json
from app.api.routers import GuardedRouter
from app.api.v1 import command_models as schemas
from app.core import errors
from app.core.access.rules import Action
from app.core.errors import CommandNotFoundError
from app.core.profiles.probes import ProbeEvidence, Unsettled

router = GuardedRouter(prefix="/v1", tags=["commands"])

_SAYS: Final = (
    "`bound` and `goal`: it is `verified`. `untold`: the device has told no state since. `not_so`: its state is not "
    "what was asked for. `unknown`: it cannot be judged. `another`: it names another command. `no_puback`: the command "
    "has not reached anybody. `blind`: the event log is off, or did not answer."
)


class ProbeResult(schemas.SchemaModel):
    """The result of looking for a command that has timed out."""

    result: Annotated[ProbeEvidence | Unsettled, Field(description=_SAYS)]
    command: schemas.Command


@router.post(
    "/commands/{command_id}/probe",
    summary="Look whether a command that has timed out was done",
    response_model=ProbeResult,
    response_description="The finding in the state of the device, and the command.",
    responses=problems_of(
        BY_ERROR[errors.CommandNotFoundError],
        BY_ERROR[errors.IllegalTransitionError],
        problems.INVALID,
        BY_ERROR[errors.CapacityError],
        BY_ERROR[errors.StoreUnavailableError],
        BY_ERROR[errors.NodeDrainingError],
        BY_ERROR[errors.NotYetError],
    ),
    openapi_extra=acts(Action.SEND),
)
async def probe_command(
    command_id: CommandId, commands: Commands, node: Node, audit: Recorder, asker: WhoAsks
) -> Reply:
    """Looks at the state of the device now, on any node, by the probe of its profile, and asks for it if that says how.

    The outcome stays `timed_out`. What is found stands beside it as `verified`, the first time that anything is found;
    webhooks and streams are told of it. Who may send such a command may do so. Where the device is asked, the answer
    may take ten seconds.
    """
    command = await commands.store.read(command_id)
    if not asker.may_read(command):
        raise CommandNotFoundError(command_id)
    asker.check_command(Action.SEND, command)
    node.member.admit()
    if audit is not None:
        audit.check()
        audit.probed(command_id, command.device_id)
    found = await commands.probe_on_request.verify(command)
    return BytesResponse(
        orjson.dumps({"result": found.result, "command": orjson.Fragment(command_json(found.command))})
    )
