"""Models of dry runs and of judged interlocks, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from app.api.v1.command_models import CommandId, Instant, SchemaModel
from app.commands.dry_runner import DryRunFate, Obstacle
from app.core.commands.command import IfOffline
from app.core.profiles.interlocks import JudgedAs
from app.core.profiles.lanes import LaneOrder


class JudgedCondition(SchemaModel):
    """A condition of an interlock, as it was judged. A caller who may not read the device gets no values."""

    path: Annotated[str, Field(examples=["inputs.mode"])]
    wanted: Annotated[dict[str, JsonValue], Field(description="The values that would let the command through.")]
    result: JudgedAs
    value: Annotated[JsonValue, Field(description="The value; left out if there is none.")] = None
    age: Annotated[str, Field(description="The age of the value; left out for params.", examples=["0.8s"])] = ""
    because: Annotated[str, Field(description="The reason why the condition is unknown.")] = ""


class JudgedInterlock(SchemaModel):
    """An interlock, as it was judged."""

    interlock: Annotated[str, Field(description="Its name.", examples=["on_the_ground"])]
    result: JudgedAs
    say: str
    conditions: list[JudgedCondition]


class DryRefusal(SchemaModel):
    """A problem with which the command would be refused."""

    type: Annotated[str, Field(examples=["urn:homing:problem:interlock"])]
    title: str
    status: int
    detail: str


class DryLaneView(SchemaModel):
    """The lane of the command at the device."""

    name: str
    order: LaneOrder
    width: int
    in_flight: Annotated[int, Field(description="The number of commands that have a place, in flight or at rest.")]
    waiting: Annotated[int, Field(description="The number of commands that wait.")]
    position: Annotated[int | None, Field(description="The place in line; null if the lane has room.")]
    stopped: Annotated[bool, Field(description="True if the lane stands until a person lets it go on.")]


class DryPresence(SchemaModel):
    """The presence of the device, as the command would find it."""

    online: Annotated[bool | None, Field(description="Null if nobody knows, or it is nothing for the caller.")]
    offline_since: Annotated[
        Instant | None, Field(description="Set if the command is refused because the device is offline.")
    ]


class DryRunView(SchemaModel):
    """The fate that a command would have. Nothing was sent, registered or counted."""

    dry_run: Literal[True]
    would: Annotated[
        DryRunFate,
        Field(
            description=(
                "`send`: at once. `wait`: it would be held. `refuse`: nothing would be sent. `join`: its idempotency "
                "key stands for a command already."
            )
        ),
    ]
    device_id: str
    method: str
    profile: str
    timeout: Annotated[str, Field(examples=["10s"])]
    if_offline: IfOffline
    refusals: Annotated[list[DryRefusal], Field(description="All that speaks against the command.")]
    waits_for: Annotated[list[Obstacle], Field(description="All that the command would wait for.")]
    joins: Annotated[CommandId | None, Field(description="The command that the idempotency key stands for.")]
    interlocks: Annotated[list[JudgedInterlock], Field(description="All that judge this method.")]
    lane: DryLaneView | None
    presence: DryPresence
    broker_connected: Annotated[bool, Field(description="True if this node has a connection to the MQTT broker.")]
