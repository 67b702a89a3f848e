"""What became of a command, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from app.api.v1.command_models import Command, Instant, LastHeard
from app.core.commands.diagnosis import Verdict


class _ExplanationModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Step(_ExplanationModel):
    """Something that happened to a command."""

    at: Annotated[Instant | None, Field(description="null where nobody noted it.")]
    node: str | None
    what: Annotated[
        str,
        Field(
            description=(
                "`registered`, `published`, `publish_failed`, `acknowledged`, `progressed`, `delivered`, `missed` (a "
                "message that answered nothing), `late`, or the state that the command ended in."
            )
        ),
    ]
    topic: str | None
    reason: str | None
    bytes: Annotated[int | None, Field(description="Of the payload.")]


class Miss(_ExplanationModel):
    """A message that answered nothing, and may have been meant to answer the command."""

    at: Instant
    node: str
    topic: str
    reason: str
    got: Annotated[str | None, Field(description="By what it named its command.")]
    score: Annotated[int, Field(description="How near it came; from 4 on it counts.")]


class Present(_ExplanationModel):
    """Whether a device counts as being there, and since when."""

    online: bool
    since: Instant
    last_seen: Annotated[Instant, Field(description="When it last said something that is kept.")]


class Judgement(_ExplanationModel):
    """What it probably was."""

    code: Verdict
    text: str
    evidence: list[str]


class Explanation(_ExplanationModel):
    """What became of a command, as far as the nodes know."""

    command: Command
    verdict: Judgement
    timeline: list[Step]
    misses: Annotated[list[Miss], Field(description="The nearest first.")]
    heard: Annotated[list[LastHeard], Field(description="The latest first.")]
    presence: Annotated[
        Present | None,
        Field(description="What the event log knows of the device; null where there is none, or nothing."),
    ]
    gaps: Annotated[list[str], Field(description="What nobody can know any more, in sentences.")]
