"""Commands and problems as they go in and out, for `/docs` and `/openapi.json`.

Responses do not go through these models: results and parameters are JSON already, and are copied as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from app.api.cursors import ANY as ANY_CURSOR
from app.api.v1.hold_models import HoldFacts
from app.api.v1.probe_models import ProbeFacts, VerifiedFacts
from app.core import identifiers
from app.core.commands.command import CommandState, IfOffline
from app.core.durations import DURATION
from app.core.payload import MAX_DEPTH
from app.core.profiles.correlation import Correlation

DEVICE_ID: Final = "1ZNDH1D0010098"
COMMAND_ID: Final = "042-01JC8ZQ5M7W3T9K2V4X6Y8B0D1"


def said(text: str) -> dict[str, Any]:
    """For the documentation alone: the check is ours, as its sentence says more than pydantic's."""
    return {"pattern": f"^{text}$"}


CommandId = Annotated[
    str,
    Field(
        description="The id of the command. Its first three digits are its partition in the store.",
        pattern=f"^{identifiers.COMMAND_ID}$",
    ),
]
Instant = Annotated[AwareDatetime, Field(description="An instant in RFC 3339, in UTC with milliseconds.")]


PROFILE: Final = "^[a-z0-9_-]{1,64}$"
"""The name of one."""
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./-]{1,64}$")]
"""The name of a label."""


class SchemaModel(BaseModel):
    """A schema that names all members."""

    model_config = ConfigDict(extra="forbid")


class CommandBody(SchemaModel):
    """A command for a device."""

    method: Annotated[
        str,
        Field(
            description="The method, by the name that the device uses.",
            json_schema_extra=said(identifiers.METHOD),
        ),
    ]
    params: Annotated[
        JsonValue, Field(description=f"Any JSON value, at most {MAX_DEPTH} levels deep; {{}} when left out.")
    ] = {}
    timeout: Annotated[
        str | None,
        Field(
            description="The time to wait for the device: a number with a unit (ms, s, m, h).",
            pattern=f"^{DURATION}$",
        ),
    ] = None
    profile: Annotated[
        str | None,
        Field(description="The device's profile. If left out, the device's record decides, then the node's default."),
    ] = None
    one_way: Annotated[
        bool,
        Field(
            description=(
                "True if the device does not answer. The command then succeeds once the MQTT broker has it, "
                "unless the broker reports that nobody is subscribed."
            )
        ),
    ] = False
    if_offline: Annotated[
        IfOffline | SkipJsonSchema[None],
        Field(
            description=(
                "The choice for the case that the MQTT broker reports nobody subscribed to the device's topic. `fail`: "
                "the command is unsent at once (`409`). `send`: wait for an answer until the deadline. If left "
                "out, it is `fail` for a broker that is known to report this, and `send` otherwise. With an event "
                "log, `fail` also checks whether the device has said that it is offline. `hold`: wait until the "
                "device is there, for as long as `hold` says."
            )
        ),
    ] = None
    hold: Annotated[
        str | SkipJsonSchema[None],
        Field(
            description=(
                "The time for which the command may wait to be sent, from 1s to 720h. It is `held` until its device "
                "is there, is then sent once, and its `timeout` begins. If nobody waits (`Prefer`), the answer is "
                "`202` at once. After that time it is `unsent`."
            ),
            pattern=f"^{DURATION}$",
            examples=["8h"],
        ),
    ] = None
    not_before: Annotated[
        Instant | SkipJsonSchema[None],
        Field(
            description=(
                "The command is not sent before this instant, which is 30 days ahead at most. It needs a `hold` that "
                "ends later."
            )
        ),
    ] = None
    replaces: Annotated[
        str | SkipJsonSchema[None],
        Field(
            description=(
                "A key. Commands with the same key that are held for this device are `cancelled`, with the code "
                "`superseded`, when this one comes, or once a second person has approved it. What was sent goes on. It "
                "needs a `hold`."
            ),
            json_schema_extra=said(identifiers.REPLACES),
            examples=["cover"],
        ),
    ] = None
    notify: Annotated[
        list[str],
        Field(
            description="Ids of webhooks that receive the outcome in addition to those whose filters match.",
            max_length=16,
        ),
    ] = []

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"method": "takeoff_to_point", "params": {"target_height": 30.5}, "timeout": "10s", "profile": "dji"},
                {"method": "reboot"},
            ]
        }
    )


class SendHeaders(BaseModel):
    """Headers of `POST /v1/devices/{device_id}/commands` that decide something."""

    prefer: Annotated[
        str | SkipJsonSchema[None],
        Field(
            description=(
                "RFC 7240. `respond-async`: answer `202` at once. `wait=N`: wait N seconds at most, then answer `202`."
            ),
            alias="Prefer",
            examples=["wait=5"],
        ),
    ] = None
    idempotency_key: Annotated[
        str | SkipJsonSchema[None],
        Field(
            description=(
                "A repeated call with the same key and body joins the command, or gets its outcome again, from any "
                "node."
            ),
            alias="Idempotency-Key",
            json_schema_extra=said(identifiers.IDEMPOTENCY_KEY),
            examples=["8e03978e-40d5-43dd-bc93-6894a57f9324"],
        ),
    ] = None


class Known(BaseModel):
    """The progress of a command that is known when it timed out. null stands for unknown."""

    published: Annotated[bool | None, Field(description="True if the command was handed over to the MQTT broker.")]
    acknowledged: Annotated[
        bool | None,
        Field(
            description="True if the broker acknowledged the command; null with QoS 0, which has no acknowledgements."
        ),
    ]
    acknowledged_at: Instant | None
    subscribers: Annotated[
        Literal["some", "none", "unknown"],
        Field(description="Says whether anybody was subscribed to the command's topic."),
    ]


class CommandError(BaseModel):
    """The reason why a command did not succeed."""

    code: Annotated[
        JsonValue, Field(description="A code of Homing, such as `timed_out` or `not_sent`, or the device's own code.")
    ]
    message: str
    known: Annotated[Known | None, Field(description="The known progress of a command that timed out.")] = None
    code_text: Annotated[
        str | None,
        Field(
            description=(
                "`code` as text, whatever type the device uses, such as `319001`; empty if the device gave none. "
                "Late responses do not have it."
            )
        ),
    ] = None


class LateResponse(SchemaModel):
    """A response that arrived after the outcome. It is recorded and does not change the outcome."""

    state: CommandState
    result: JsonValue
    error: CommandError | None
    received_at: Instant


class Command(SchemaModel):
    """The current state of a command."""

    id: CommandId
    device_id: str
    method: str
    params: JsonValue
    state: Annotated[
        CommandState,
        Field(
            description=(
                "The state. `succeeded`, `failed`, `timed_out`, `cancelled` and `unsent` are outcomes and do not "
                "change any more."
            )
        ),
    ]
    result: Annotated[
        JsonValue, Field(description="The result in the device's response, if its profile finds one there.")
    ]
    error: CommandError | None
    deadline: Instant
    created_at: Instant
    finished_at: Instant | None
    home_node: Annotated[str, Field(description="The node that sent the command.")]
    received_by: Annotated[str | None, Field(description="The node to which the broker gave the response.")]
    matched_by: Annotated[
        Correlation | None,
        Field(
            description=(
                "The way in which the response was matched. `id`: by the command's id, which is certain. "
                "`value`: by a value that was sent, which is as certain as that value is unique. `echo`: the "
                "device reported the requested state within the time that its profile allows. `order`: only this "
                "command was waiting. `probe`: there was no response, and `confirmed_by` has what the device said of "
                "its state instead. null: the outcome came from neither."
            )
        ),
    ]
    forwarded: Annotated[bool, Field(description="True if the response arrived on a node other than the home node.")]
    late: LateResponse | None
    progress: Annotated[
        JsonValue, Field(description="The latest progress report of the device; null once there is an outcome.")
    ]
    last_progress: Annotated[JsonValue, Field(description="The last progress report before the outcome.")]
    profile: str
    if_offline: Annotated[IfOffline, Field(description="The fate of the command if nobody is subscribed to its topic.")]
    hold: Annotated[HoldFacts | SkipJsonSchema[None], Field(description="Only of commands that may be held.")] = None
    confirmed_by: Annotated[
        ProbeFacts | SkipJsonSchema[None], Field(description="Only of commands that a probe settled.")
    ] = None
    verified: Annotated[
        VerifiedFacts | SkipJsonSchema[None],
        Field(description="Only of commands that have timed out, and of which a probe found afterwards what they did."),
    ] = None
    requested_by: Annotated[
        Literal["homing"] | SkipJsonSchema[None],
        Field(description="Only of commands that no caller sent: a probe asked the device for its state."),
    ] = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": COMMAND_ID,
                    "device_id": DEVICE_ID,
                    "method": "cover_open",
                    "params": {},
                    "state": "succeeded",
                    "result": {"status": "ok"},
                    "error": None,
                    "deadline": "2026-03-01T08:00:10.000Z",
                    "created_at": "2026-03-01T08:00:00.000Z",
                    "finished_at": "2026-03-01T08:00:00.120Z",
                    "home_node": "node-a",
                    "received_by": "node-b",
                    "matched_by": "id",
                    "forwarded": True,
                    "late": None,
                    "progress": None,
                    "last_progress": None,
                    "profile": "dji",
                    "if_offline": "fail",
                }
            ]
        }
    )


class LastHeard(SchemaModel):
    """The last message of a device that a node received on topics of a profile."""

    at: Instant
    node: str
    profile: str
    topic: str


class CommandPage(SchemaModel):
    """A page of commands, newest first.

    A page may be short or empty without being the last one: a search by state examines at most 2,000 commands, for at
    most 50 ms.
    """

    commands: list[Command]
    cursor: Annotated[
        str | None,
        Field(
            description="Pass it as `cursor` to get the next page; null on the last page.", pattern=f"^{ANY_CURSOR}$"
        ),
    ]


class Fault(SchemaModel):
    """A value that is not allowed, and the reason."""

    field: str
    reason: str


class Problem(BaseModel):
    """A problem according to RFC 9457. There may be further members."""

    type: Annotated[str, Field(description="The stable URN of the problem, `urn:homing:problem:…`, or `about:blank`.")]
    title: str
    status: int
    detail: str
    command_id: Annotated[str | None, Field(description="The id of the command that the problem is about.")] = None
    command: Annotated[
        Command | None, Field(description="The command itself, if known; it can also be read at `Location`.")
    ] = None
    known: Annotated[
        Known | None, Field(description="The progress of the command before it timed out, as far as it is known.")
    ] = None
    last_heard: Annotated[
        LastHeard | None, Field(description="The last message that the node received from the command's device.")
    ] = None
    state: Annotated[str | None, Field(description="The state of the command or of the node.")] = None
    error: Annotated[CommandError | None, Field(description="The reason why the command was not sent.")] = None
    errors: Annotated[list[Fault] | None, Field(description="The values that are not allowed.")] = None
    checks: Annotated[dict[str, str] | None, Field(description="The result of each check of the node.")] = None
