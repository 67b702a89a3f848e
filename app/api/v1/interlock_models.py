"""Models of interlocks, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from app.api.v1.command_models import SchemaModel
from app.api.v1.dry_run_models import JudgedInterlock
from app.core.profiles.interlocks import JudgedAs


class InterlockInputView(SchemaModel):
    """A part of the last value of a topic, by which an interlock judges."""

    name: str
    topic: Annotated[str, Field(examples=["homing/{device_id}/osd"])]
    path: Annotated[str, Field(examples=["data.mode"])]
    max_age: Annotated[str, Field(examples=["5s"])]


class WantedCondition(SchemaModel):
    """A condition of an interlock."""

    path: Annotated[str, Field(examples=["inputs.mode"])]
    wanted: Annotated[dict[str, JsonValue], Field(description="The values that let the command through.")]


class InterlockView(SchemaModel):
    """An interlock of a profile."""

    profile: str
    interlock: Annotated[str, Field(description="Its name.", examples=["on_the_ground"])]
    methods: Annotated[list[str], Field(description="Patterns of methods; `*` matches any text.")]
    say: str
    inputs: list[InterlockInputView]
    when: list[WantedCondition]


class Interlocks(SchemaModel):
    """All interlocks of a node's profiles."""

    interlocks: list[InterlockView]


class CheckedInterlocks(SchemaModel):
    """The interlocks of a method, as they judge a device."""

    device_id: str
    method: str
    profile: str
    result: Annotated[JudgedAs, Field(description="`holds` if all of them let a command through.")]
    interlocks: list[JudgedInterlock]
