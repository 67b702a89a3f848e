"""Models of messages between devices and broker, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, JsonValue, StrictBool

from app.api.v1.command_models import SchemaModel

MOST_TOPIC: Final = 1024
MOST_PAYLOAD: Final = 65_536
MOST_BASE64: Final = (MOST_PAYLOAD + 2) // 3 * 4


class TriedMessage(SchemaModel):
    """A message as a device would say it, with its `payload` as text, or `payload_base64`."""

    topic: Annotated[str, Field(min_length=1, max_length=MOST_TOPIC, examples=["homing/drone-1/response"])]
    payload: Annotated[str | None, Field(max_length=MOST_PAYLOAD, examples=['{"id": "x", "status": "ok"}'])] = None
    payload_base64: Annotated[str | None, Field(max_length=MOST_BASE64, examples=["AQID"])] = None
    retain: Annotated[StrictBool, Field(description="True if the broker has kept it from before.")] = False


class TriedProfile(SchemaModel):
    """A profile as TOML, a command to try it with, and what a device may say to that."""

    toml: Annotated[str, Field(min_length=1, max_length=MOST_PAYLOAD, examples=['name = "lamp"'])]
    method: Annotated[str | None, Field(description="By default, the first one that the profile names.")] = None
    device_id: Annotated[str | None, Field(description="By default, one in the format of the profile.")] = None
    params: Annotated[JsonValue, Field(description="By default, and for null, those that the profile needs.")] = None
    topic: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=MOST_TOPIC,
            description="The topic of the message. By default, one where answers to the command are expected.",
        ),
    ] = None
    payload: Annotated[
        str | None,
        Field(
            max_length=MOST_PAYLOAD,
            description="The words of the device; `{id}`, `{id_number}` and so on become those of the command.",
        ),
    ] = None


class DraftCommand(SchemaModel):
    """The command that a profile was tried with."""

    device_id: str
    method: str
    params: JsonValue


class DraftFindings(SchemaModel):
    """The findings of a trial: sentences for people. Where there are `faults`, there is nothing else."""

    name: Annotated[str | None, Field(description="The name that the profile gives itself; null where it has faults.")]
    faults: Annotated[list[str], Field(description="The faults: `profile.toml`, line, key, and what is allowed.")]
    hints: Annotated[list[str], Field(description="The parts of the profile that have no effect.")]
    command: DraftCommand | None
    accepted: Annotated[bool, Field(description="True if the profile has such a command.")]
    publishes: Annotated[
        list[str], Field(description="The messages that the command would publish and expect, or why there are none.")
    ]
    reads: Annotated[list[str], Field(description="The ways in which responses are recognised and read.")]
    readings: Annotated[list[str], Field(description="The readings of the message.")]
    answers: Annotated[
        bool | None, Field(description="True if the message answers the command; null without a message.")
    ]


class ProfileReading(SchemaModel):
    """A profile that has the topic of a message, and how it reads the message."""

    profile: str
    outcome: Annotated[
        str, Field(description="A stable word, or `ignored: ` and the reason.", examples=["succeeded", "event"])
    ]
    sentence: Annotated[str, Field(description="The same for people.")]


class TriedReadings(SchemaModel):
    """The readings of a message: empty if no profile has its topic."""

    topic: str
    bytes: int
    readings: list[ProfileReading]
