"""The profiles: how devices may speak, and what they can be asked to do, over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import Response as Reply
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.api import problems
from app.api.dependencies import Commands
from app.api.http import BytesResponse
from app.api.openapi import knows, problems_of
from app.api.parameters import ProfileName
from app.api.routers import GuardedRouter
from app.core.durations import format_duration
from app.core.profiles.catalogue import Danger, Method, Openness
from app.core.profiles.profile import DeviceProfile


class _ProfileModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Profile(_ProfileModel):
    """A description of how a family of devices speaks."""

    name: Annotated[str, Field(examples=["dji"])]
    description: str
    methods: Annotated[int, Field(description="The number of methods in its catalogue.")]
    unknown: Annotated[
        Openness, Field(description="The treatment of other methods: they are sent, or refused with `422`.")
    ]
    events: Annotated[list[str], Field(description="The events that its devices send unasked.")]
    presence: Annotated[bool, Field(description="True if the profile defines how devices show their presence.")]


class Profiles(_ProfileModel):
    """All device profiles of a node."""

    profiles: list[Profile]
    default: Annotated[str, Field(description="The profile of commands that do not name one.", examples=["homing"])]


class DescribedMethod(_ProfileModel):
    """A method that devices of a profile offer."""

    name: Annotated[str, Field(examples=["cover_open"])]
    title: str
    description: str
    danger: Danger
    usual: Annotated[str | None, Field(description="The time that the method usually takes.", examples=["30s"])]
    params: Annotated[
        dict[str, JsonValue] | None, Field(description="The JSON Schema of the params; null if they are not checked.")
    ]


class Methods(_ProfileModel):
    """The catalogue of a profile."""

    profile: str
    unknown: Openness
    methods: list[DescribedMethod]


router = GuardedRouter(prefix="/v1", tags=["profiles"])


@router.get(
    "/profiles",
    summary="List the device profiles of this node",
    response_model=Profiles,
    response_description="All device profiles, ordered by name.",
    responses=problems_of(),
    openapi_extra=knows(),
)
async def list_profiles(commands: Commands) -> Reply:  # noqa: D103 - its summary says it
    shown = [_shown(one) for _, one in sorted(commands.profiles.items())]
    return BytesResponse(orjson.dumps({"profiles": shown, "default": commands.default_profile}))


@router.get(
    "/profiles/{name}/methods",
    summary="List the methods of a profile",
    response_model=Methods,
    response_description="The catalogue of the profile, with the JSON Schema of each method's params.",
    responses=problems_of(problems.NO_PROFILE, problems.INVALID),
    openapi_extra=knows(),
)
async def list_methods(name: ProfileName, commands: Commands) -> Reply:
    """A profile without a catalogue lists no methods, and sends any method."""
    found = commands.profiles.get(name)
    if found is None:
        known = ", ".join(sorted(commands.profiles))
        return problems.problem(problems.NO_PROFILE, f"{name[:64]!a} is unknown; allowed: {known}")
    listed = [_method(one) for one in found.catalogue.methods.values()]
    return BytesResponse(orjson.dumps({"profile": name, "unknown": found.catalogue.openness, "methods": listed}))


def _shown(profile: DeviceProfile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "description": profile.description,
        "methods": len(profile.catalogue.methods),
        "unknown": profile.catalogue.openness,
        "events": [one.name for one in profile.events],
        "presence": bool(profile.presence),
    }


def _method(method: Method) -> dict[str, Any]:
    return {
        "name": method.name,
        "title": method.title,
        "description": method.description,
        "danger": method.danger,
        "usual": None if method.usual is None else format_duration(method.usual),
        "params": method.params,
    }
