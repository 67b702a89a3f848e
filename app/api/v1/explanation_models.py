"""Models of explanations of commands, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from app.api.v1.command_models import Command, Instant, LastHeard
from app.core.commands.diagnosis import Verdict


class _ExplanationModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Step(_ExplanationModel):
    """A step in the history of a command."""

    at: Annotated[Instant | None, Field(description="The instant of the step; null if no node noted it.")]
    node: str | None
    what: Annotated[
        str,
        Field(
            description=(
                "The step: `registered`, `published`, `publish_failed`, `acknowledged`, `progressed`, "
                "`delivered`, `missed` (a message that answered no command), `late`, `verified`, or the state that the "
                "command ended in."
            )
        ),
    ]
    topic: str | None
    reason: str | None
    bytes: Annotated[int | None, Field(description="The size of the payload.")]


class Miss(_ExplanationModel):
    """A message that answered no command, and may have been meant to answer this one."""

    at: Instant
    node: str
    topic: str
    reason: str
    got: Annotated[
        str | None, Field(description="The id or value by which the message names a command; null if it names none.")
    ]
    score: Annotated[
        int, Field(description="A number that says how near the message came to being an answer; near is 4 or more.")
    ]


class Present(_ExplanationModel):
    """The presence of a device as the event log has it, and since when."""

    online: bool
    since: Instant
    last_seen: Annotated[Instant, Field(description="The instant of the device's latest message in the event log.")]


class Judgement(_ExplanationModel):
    """The probable reason for how a command ended."""

    code: Verdict
    text: str
    evidence: list[str]


class Explanation(_ExplanationModel):
    """The history and fate of a command, as far as the nodes know."""

    command: Command
    verdict: Judgement
    timeline: list[Step]
    misses: Annotated[list[Miss], Field(description="Messages that may have been meant as the answer, nearest first.")]
    heard: Annotated[list[LastHeard], Field(description="The latest messages of the device, newest first.")]
    presence: Annotated[
        Present | None,
        Field(
            description=(
                "The presence of the device according to the event log; null if there is no log, or the log does not "
                "know."
            )
        ),
    ]
    gaps: Annotated[list[str], Field(description="Sentences that say which facts can no longer be known.")]
