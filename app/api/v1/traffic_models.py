"""Models of messages between devices and broker, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StrictBool

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
