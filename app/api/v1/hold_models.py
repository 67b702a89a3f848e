"""The schemas of what a command waits for before it is sent."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from app.core.commands.command import WaitReason


class ApprovalFacts(BaseModel):
    """The approval of a second person that a command needs, and the decision about it once there is one."""

    model_config = ConfigDict(extra="forbid")

    until: Annotated[AwareDatetime, Field(description="The instant at which it is `unsent` if nobody has decided.")]
    decision: Annotated[
        Literal["approve", "refuse"] | SkipJsonSchema[None], Field(description="The decision of the second person.")
    ] = None
    by: Annotated[str | SkipJsonSchema[None], Field(description="The principal who decided.")] = None
    at: Annotated[AwareDatetime | SkipJsonSchema[None], Field(description="The instant of the decision.")] = None
    note: Annotated[str | SkipJsonSchema[None], Field(description="The note of the second person.")] = None


class HoldFacts(BaseModel):
    """The wait of a command to be sent."""

    model_config = ConfigDict(extra="forbid")

    waits_for: Annotated[
        list[WaitReason],
        Field(
            description=(
                "The events that have to come before it is sent; empty once it was claimed, and after its end. "
                "`explain` tells which of them are lacking now."
            )
        ),
    ]
    until: Annotated[AwareDatetime, Field(description="The instant at which it is `unsent` if it was not sent.")]
    not_before: Annotated[
        AwareDatetime | SkipJsonSchema[None], Field(description="The instant before which it is not sent.")
    ] = None
    lane: Annotated[
        str | SkipJsonSchema[None], Field(description="The lane of its device through which it goes, if there is one.")
    ] = None
    replaces: Annotated[
        str | SkipJsonSchema[None],
        Field(description="The key under which a later command of the device takes its place, if it has one."),
    ] = None
    run: Annotated[
        str | SkipJsonSchema[None],
        Field(description="The fleet run that it belongs to, if to one. While that is paused it is not sent."),
    ] = None
    approval: Annotated[
        ApprovalFacts | SkipJsonSchema[None], Field(description="The approval that it needs, if it needs one.")
    ] = None
    claims: Annotated[
        int, Field(description="The number of claims by nodes. A claim is undone if nobody has the command.", ge=0)
    ]
