"""The schemas of what probes have found."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from app.core.profiles.probes import ProbeEvidence


class ProbeFacts(BaseModel):
    """The state of the device by which a probe settled a command that had no response."""

    model_config = ConfigDict(extra="forbid")

    kind: Annotated[
        ProbeEvidence,
        Field(
            description=(
                "`bound`: the state names this command. `goal`: it is what was asked for, whoever did it. `not_done`: "
                "it is not, although the device had the command for long enough: it answered a question after it."
            )
        ),
    ]
    topic: Annotated[str, Field(description="The topic on which the device told its state.")]
    at: Annotated[AwareDatetime, Field(description="The instant at which it did.")]
    value: Annotated[
        dict[str, JsonValue], Field(description="The values that were judged, by their paths in the state.")
    ]


class VerifiedFacts(ProbeFacts):
    """The finding of a probe about a command after it had timed out."""

    state: Annotated[
        Literal["succeeded", "failed"], Field(description="The finding; `state` of the command does not change.")
    ]
    found_at: Annotated[AwareDatetime, Field(description="The instant at which it was found.")]
