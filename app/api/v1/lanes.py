"""Lanes of devices over HTTP: the word of a person that one goes on."""

from __future__ import annotations

from typing import Annotated, Final

import orjson
from fastapi import Path
from fastapi import Response as Reply
from pydantic import AfterValidator

from app.api import problems
from app.api.dependencies import Commands, Hot, Node, Recorder, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, problems_of
from app.api.parameters import DeviceId, lane_name
from app.api.problems import BY_ERROR
from app.api.representation import instant
from app.api.routers import GuardedRouter
from app.api.v1 import lane_models as models
from app.api.v1.command_models import said
from app.core import errors
from app.core.access.rules import Action
from app.core.profiles.lanes import LANE_NAME

router = GuardedRouter(prefix="/v1", tags=["commands"])

LaneName = Annotated[
    str,
    Path(description="The lane, as its profile names it.", json_schema_extra=said(LANE_NAME), examples=["flight"]),
    AfterValidator(lane_name),
]
_PROBLEMS: Final = problems_of(
    BY_ERROR[errors.DeviceNotFoundError],
    problems.INVALID,
    BY_ERROR[errors.StoreUnavailableError],
    BY_ERROR[errors.NodeDrainingError],
)


@router.post(
    "/devices/{device_id}/lanes/{lane}/resume",
    summary="Have a lane of a device go on after a failure",
    response_model=models.ResumedLane,
    response_description="The lane. A lane that did not stand, or that another command stops by now, is as it was.",
    responses=_PROBLEMS,
    openapi_extra=acts(Action.SEND),
)
async def resume_lane(
    device_id: DeviceId,
    lane: LaneName,
    commands: Commands,
    hot: Hot,
    node: Node,
    audit: Recorder,
    asker: WhoAsks,
) -> Reply:
    """Lets those go on that wait in a lane with `on_failure = "stop"`, of which a command has failed.

    It takes the right to send that command, or commands of the lane where its record is gone. Each one that waits
    is still judged by the rights of its own caller.
    """
    stopper = await commands.lanes.stop_of(device_id, lane, hot.body.profile_for(device_id))
    asker.check_method(Action.SEND, device_id, stopper.profile, stopper.method)
    node.member.admit()
    if audit is not None:
        audit.check()
        audit.lane_resumed(device_id, lane, None if stopper.stop is None else stopper.stop.command_id)
    found = await commands.lanes.resume(device_id, lane, stopper.stop)
    stop, follower = found.stop, found.follower
    shown = {
        "device_id": device_id,
        "lane": lane,
        "resumed": stop is not None,
        **({} if stop is None else {"stopped_by": stop.command_id, "stopped_at": instant(stop.at)}),
        **({} if follower is None else {"next": follower.command_id}),
    }
    return BytesResponse(orjson.dumps(shown))
