"""Interlocks over HTTP: those of the profiles, and how they judge a method of a device at this moment."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import orjson
from fastapi import Request
from fastapi import Response as Reply
from pydantic.json_schema import SkipJsonSchema

from app.api import problems
from app.api.dependencies import Commands, Hot, WhoAsks
from app.api.dry_runs import verdict_json
from app.api.http import BytesResponse
from app.api.openapi import acts, knows, problems_of
from app.api.parameters import PROFILE, DeviceId, check_names, query
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.v1 import interlock_models as models
from app.commands.send.registrar import CommandRequest
from app.core import errors, identifiers
from app.core.access.rules import Action
from app.core.durations import format_duration
from app.core.errors import InvalidInputError
from app.core.identifiers import validate_method
from app.core.profiles.interlocks import Interlock, worst_of

router = GuardedRouter(prefix="/v1", tags=["profiles"])


@router.get(
    "/interlocks",
    summary="List the interlocks of this node's profiles",
    response_model=models.Interlocks,
    response_description="All interlocks, by profile.",
    responses=problems_of(),
    openapi_extra=knows(),
)
async def list_interlocks(commands: Commands) -> Reply:  # noqa: D103 - its summary says it
    shown = [_shown(name, one) for name, profile in sorted(commands.profiles.items()) for one in profile.interlocks]
    return BytesResponse(orjson.dumps({"interlocks": shown}))


@router.get(
    "/devices/{device_id}/interlocks",
    summary="Check the interlocks of a method",
    response_model=models.CheckedInterlocks,
    response_description="All interlocks that judge the method, with the value, age and need of each condition.",
    responses=problems_of(BY_ERROR[errors.DeviceNotFoundError], problems.INVALID, BY_ERROR[errors.InterlockBlindError]),
    openapi_extra=acts(Action.READ),
)
async def check_interlocks(
    request: Request,
    device_id: DeviceId,
    commands: Commands,
    hot: Hot,
    asker: WhoAsks,
    method: Annotated[
        str | SkipJsonSchema[None], query("The method, which is needed.", identifiers.METHOD, "cover_close")
    ] = None,
    profile: Annotated[
        str | SkipJsonSchema[None], query("The profile. By default, as for commands.", PROFILE, "dji")
    ] = None,
) -> Reply:
    """Judges the last values of the device for a command without params. Nothing is sent or counted.

    Conditions over params are `unknown`: a dry run of the command judges them.
    """
    check_names(request, ("method", "profile"))
    if method is None:
        raise InvalidInputError("method", "is missing; allowed: the name of a method")
    name = profile or hot.body.profile_for(device_id)
    asked = CommandRequest(device_id, validate_method(method), {}, timedelta(), name)
    asker.check_method(Action.READ, device_id, name, asked.method)
    judged = await commands.dry_runner.judge_interlocks(asked)
    return BytesResponse(
        orjson.dumps(
            {
                "device_id": device_id,
                "method": asked.method,
                "profile": name,
                "result": worst_of(one.result for one in judged),
                "interlocks": [verdict_json(one, reads=True) for one in judged],
            }
        )
    )


def _shown(profile: str, one: Interlock) -> dict[str, Any]:
    return {
        "profile": profile,
        "interlock": one.name,
        "methods": one.methods,
        "say": one.say,
        "inputs": [
            {
                "name": spec.name,
                "topic": spec.topic.text,
                "path": ".".join(spec.path),
                "max_age": format_duration(spec.max_age),
            }
            for spec in one.inputs
        ],
        "when": [{"path": ".".join(row.path), "wanted": row.wanted()} for row in one.when],
    }
