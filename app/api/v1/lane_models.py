"""Models of lanes of devices, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from app.api.v1.command_models import CommandId, Instant, SchemaModel


class ResumedLane(SchemaModel):
    """A lane of a device, after a person had it go on."""

    device_id: str
    lane: str
    resumed: Annotated[
        bool,
        Field(
            description=(
                "False if nothing was changed: it did not stand, or another command has stopped it while you asked, of "
                "which you may know nothing."
            )
        ),
    ]
    stopped_by: Annotated[
        CommandId | SkipJsonSchema[None], Field(description="The command after whose end it stood.")
    ] = None
    stopped_at: Annotated[Instant | SkipJsonSchema[None], Field(description="The instant of that end.")] = None
    next: Annotated[
        CommandId | SkipJsonSchema[None],
        Field(description="The command that stands first in line, if any does. It is tried at once."),
    ] = None
