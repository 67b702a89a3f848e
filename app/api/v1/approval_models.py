"""Models of commands that wait for a second person, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from app.api.v1.command_models import Command, SchemaModel

MOST_NOTE = 500


class ApprovalBody(SchemaModel):
    """The decision of a second person."""

    model_config = ConfigDict(extra="forbid")

    decision: Annotated[
        Literal["approve", "refuse"], Field(description="`approve` lets the command be sent; `refuse` cancels it.")
    ]
    note: Annotated[str, Field(description="A note, which stays with the command.", max_length=MOST_NOTE)] = ""


class Proposal(SchemaModel):
    """A command that waits for a second person."""

    command: Command
    asked_by: Annotated[str | None, Field(description="The principal who asked for it.")]
    fingerprint: Annotated[
        str,
        Field(description="Names exactly this command, for `If-Match` of the decision.", pattern="^[0-9a-f]{24}$"),
    ]
    may_decide: Annotated[bool, Field(description="True if the caller may be the second person.")]
    why_not: Annotated[str | SkipJsonSchema[None], Field(description="The reason why they may not.")] = None


class Proposals(SchemaModel):
    """The commands that wait for a second person, soonest end first."""

    approvals: list[Proposal]
    more: Annotated[bool, Field(description="True if there are more of them, or some were not looked at.")]
