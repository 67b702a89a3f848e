"""What goes in and out, for `/docs` and `/openapi.json`.

Responses do not go through these models: results and parameters are JSON already, and are copied as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue
from pydantic.json_schema import SkipJsonSchema, models_json_schema

from app.api.cursors import ANY as ANY_CURSOR
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
    Field(description="Its first three digits say where in the store it lives.", pattern=f"^{identifiers.COMMAND_ID}$"),
]
Instant = Annotated[AwareDatetime, Field(description="RFC 3339, UTC, to the millisecond.")]


PROFILE: Final = "^[a-z0-9_-]{1,64}$"
"""The name of one."""
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./-]{1,64}$")]
"""Of a label."""


class _CommandModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CommandBody(_CommandModel):
    """What a device is asked to do."""

    method: Annotated[
        str,
        Field(
            description="What to do, as the device calls it.",
            json_schema_extra=said(identifiers.METHOD),
        ),
    ]
    params: Annotated[
        JsonValue, Field(description=f"Any JSON value, at most {MAX_DEPTH} levels deep; {{}} when left out.")
    ] = {}
    timeout: Annotated[
        str | None,
        Field(
            description="How long to wait for the device: a number with its unit (ms, s, m, h).",
            pattern=f"^{DURATION}$",
        ),
    ] = None
    profile: Annotated[str | None, Field(description="How this device speaks; the node's default when left out.")] = (
        None
    )
    one_way: Annotated[
        bool,
        Field(
            description=(
                "The device does not answer: the command succeeds when the MQTT broker has it, unless it says that "
                "nobody is subscribed."
            )
        ),
    ] = False
    if_offline: Annotated[
        IfOffline | SkipJsonSchema[None],
        Field(
            description=(
                "What to do when the MQTT broker says that nobody is subscribed to the device's topic. `fail`: the "
                "command is unsent, at once (`409`). `send`: wait for an answer until the deadline. When left out, "
                "`fail` where the broker has been seen to tell, else `send`. With an event log `fail` also asks "
                "whether the device has said that it is offline."
            )
        ),
    ] = None

    notify: Annotated[
        list[str],
        Field(
            description="Webhooks that are told of the outcome, besides those whose filter fits.",
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
    """How far a command is known to have come when it timed out. null is what is not known."""

    published: Annotated[bool | None, Field(description="Whether it was handed over to the MQTT broker.")]
    acknowledged: Annotated[
        bool | None, Field(description="Whether the broker acknowledged it; with QoS 0 it does not say.")
    ]
    acknowledged_at: Instant | None
    subscribers: Annotated[
        Literal["some", "none", "unknown"], Field(description="Whether anybody was subscribed to its topic.")
    ]


class CommandError(BaseModel):
    """Why a command did not succeed."""

    code: Annotated[JsonValue, Field(description="A word of Homing (`timed_out`, `not_sent`), or the device's code.")]
    message: str
    known: Annotated[Known | None, Field(description="Of a command that has timed out.")] = None
    code_text: Annotated[
        str | None,
        Field(
            description=(
                "`code` as text, whatever a device makes of it: `319001`; empty where it gave none. Missing in what "
                "came late."
            )
        ),
    ] = None


class LateResponse(_CommandModel):
    """A response that came after the outcome. It changes nothing, and is kept."""

    state: CommandState
    result: JsonValue
    error: CommandError | None
    received_at: Instant


class Command(_CommandModel):
    """A command as it stands."""

    id: CommandId
    device_id: str
    method: str
    params: JsonValue
    state: Annotated[
        CommandState,
        Field(description="`succeeded`, `failed`, `timed_out`, `cancelled` and `unsent` are outcomes and stay."),
    ]
    result: Annotated[JsonValue, Field(description="What the device answered, where its profile finds a result.")]
    error: CommandError | None
    deadline: Instant
    created_at: Instant
    finished_at: Instant | None
    home_node: Annotated[str, Field(description="The node that sent it.")]
    received_by: Annotated[str | None, Field(description="The node to which the broker gave the response.")]
    matched_by: Annotated[
        Correlation | None,
        Field(
            description=(
                "How the response named the command: `id` is certain, `value` as certain as what was sent is unique, "
                "`echo` a state that the command asked for, within the time that its profile states, `order` the only "
                "command that waited. null where no response made the outcome."
            )
        ),
    ]
    forwarded: Annotated[bool, Field(description="Whether the response came in on another node than the home node.")]
    late: LateResponse | None
    progress: Annotated[
        JsonValue, Field(description="The latest progress report of the device; null once there is an outcome.")
    ]
    last_progress: Annotated[JsonValue, Field(description="The last progress report before the outcome.")]
    profile: str
    if_offline: Annotated[IfOffline, Field(description="What it does when nobody is subscribed to its topic.")]

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


class LastHeard(_CommandModel):
    """Where a node heard the device last, on topics of a profile."""

    at: Instant
    node: str
    profile: str
    topic: str


class CommandPage(_CommandModel):
    """Commands, newest first.

    A page may be short, or empty, without being the last: one of a state looks at 2,000 commands, or for 50 ms.
    """

    commands: list[Command]
    cursor: Annotated[
        str | None,
        Field(description="Give it to get the next page; null on the last one.", pattern=f"^{ANY_CURSOR}$"),
    ]


class DeviceBody(_CommandModel):
    """What is to be on record about a device; what is left out is removed from the record."""

    tenant: Annotated[
        str | None, Field(description="Whose it is. Left out, it stays with the tenant that owns it.", max_length=128)
    ] = None
    profile: Annotated[
        str | None, Field(description="How it speaks, for commands that do not say.", pattern=PROFILE)
    ] = None
    labels: Annotated[
        dict[LabelName, Annotated[str, Field(max_length=256)]],
        Field(description="For people and filters; rights do not depend on them.", max_length=32),
    ] = {}
    note: Annotated[str, Field(max_length=1000)] = ""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"profile": "dji", "labels": {"site": "roof"}}]}
    )


class Device(_CommandModel):
    """What is on record about a device."""

    id: str
    tenant: str
    profile: Annotated[str | None, Field(description="null: the node's default.")]
    labels: dict[str, str]
    note: str

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": DEVICE_ID,
                    "tenant": "north",
                    "profile": "dji",
                    "labels": {"site": "roof"},
                    "note": "by the door",
                }
            ]
        }
    )


class DevicePage(_CommandModel):
    """Devices, in the order of their ids. A page may be short, or empty, without being the last."""

    devices: list[Device]
    cursor: Annotated[str | None, Field(description="Give it to get the next page; null on the last one.")]


class Node(_CommandModel):
    """A live node as its lease tells."""

    node_id: str
    incarnation: Annotated[str, Field(description="New with every start.")]
    started_at: Instant
    self: Annotated[bool, Field(description="Whether it is the node that answers.")]


class Queue(_CommandModel):
    """How full a bounded queue is."""

    size: int
    bound: int


class Self(_CommandModel):
    """The node that answers."""

    state: str
    pending: Annotated[int, Field(description="Open commands whose home it is.")]
    waiters: Annotated[int, Field(description="Callers that wait on it.")]
    queues: Annotated[dict[str, Queue], Field(description="How full each bounded queue is.")]
    if_offline: Annotated[
        dict[str, IfOffline],
        Field(description="By profile, what a command does where nobody is subscribed and its caller does not say."),
    ]
    counters: Annotated[dict[str, int], Field(description="What happened since its start, under stable names.")]


class Nodes(_CommandModel):
    """The cluster as this node sees it."""

    nodes: list[Node]
    self: Self

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "nodes": [
                        {
                            "node_id": "node-a",
                            "incarnation": "01JC8ZQ5M7W3T9K2V4X6Y8B0D1",
                            "started_at": "2026-03-01T07:59:00.000Z",
                            "self": True,
                        }
                    ],
                    "self": {
                        "state": "ready",
                        "pending": 0,
                        "waiters": 0,
                        "queues": {"pending": {"size": 0, "bound": 20000}},
                        "if_offline": {"dji": "fail", "homing": "fail"},
                        "counters": {"response.local": 12},
                    },
                }
            ]
        }
    )


class LoginBody(_CommandModel):
    """Who logs in."""

    name: Annotated[str, Field(description="The person's name, or id.", min_length=1, max_length=256)]
    password: Annotated[str, Field(min_length=1, max_length=256, json_schema_extra={"format": "password"})]
    tenant: Annotated[
        str | None,
        Field(description="Where the name belongs; none for those of who operates Homing.", max_length=256),
    ] = None

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ann", "password": "correct horse battery"}]})


class Login(_CommandModel):
    """A key for a person who has logged in."""

    key: Annotated[str, Field(description="What to send as `Authorization: Bearer`. It is shown once.")]
    id: Annotated[str, Field(description="The public id of the key, as lists show it.")]
    principal: str
    tenant: Annotated[str | None, Field(description="null: who operates Homing itself.")]
    expires_at: Instant

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "key": f"homing_2F7QW9ZD_{'x' * 43}_{'x' * 6}",
                    "id": "2F7QW9ZD",
                    "principal": "ann",
                    "tenant": None,
                    "expires_at": "2026-06-01T20:00:00.000Z",
                }
            ]
        }
    )


class Index(_CommandModel):
    """What this is, and where everything is."""

    name: Annotated[str, Field(examples=["homing"])]
    version: str
    node_id: str
    links: Annotated[dict[str, str], Field(examples=[{"docs": "/docs", "commands": "/v1/commands"}])]


class Alive(_CommandModel):
    """The process runs."""

    status: Annotated[str, Field(examples=["ok"])]


class Ready(_CommandModel):
    """What the node and each part it depends on say."""

    state: Annotated[str, Field(examples=["ready"])]
    checks: Annotated[
        dict[str, str],
        Field(
            description="`ok`, `ok, but` and what to look at, or what is wrong.",
            examples=[{"store": "ok", "mqtt": "ok", "cluster": "ok"}],
        ),
    ]


class Fault(_CommandModel):
    """What is wrong with one value."""

    field: str
    reason: str


class Problem(BaseModel):
    """RFC 9457. There may be further members."""

    type: Annotated[str, Field(description="`urn:homing:problem:…`, stable; or `about:blank`.")]
    title: str
    status: int
    detail: str
    command_id: Annotated[str | None, Field(description="The command it is about.")] = None
    command: Annotated[Command | None, Field(description="That command, where it is known; also at `Location`.")] = None
    known: Annotated[Known | None, Field(description="How far a command came that has timed out.")] = None
    last_heard: Annotated[LastHeard | None, Field(description="Where the node heard that command's device last.")] = (
        None
    )
    state: Annotated[str | None, Field(description="The state of that command, or of the node.")] = None
    error: Annotated[CommandError | None, Field(description="Why the command was not sent.")] = None
    errors: Annotated[list[Fault] | None, Field(description="Which values are wrong.")] = None
    checks: Annotated[dict[str, str] | None, Field(description="What the parts of the node say.")] = None


def unseen() -> Mapping[str, Any]:
    """The schemas, by name, of the models that FastAPI sees in no route, as it neither reads nor sends them."""
    _, schema = models_json_schema(
        [(CommandBody, "validation"), (LoginBody, "validation"), (Problem, "validation")],
        ref_template="#/components/schemas/{model}",
    )
    definitions: Mapping[str, Any] = schema["$defs"]
    return definitions
