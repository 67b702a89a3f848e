"""Fleet runs, as they go in and out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool
from pydantic.json_schema import SkipJsonSchema

from app.api.representation import instant
from app.api.v1.command_models import CommandId, Instant, said
from app.core.durations import DURATION, format_duration
from app.core.fleets.ids import RUN_ID
from app.core.fleets.marks import TargetMark
from app.core.fleets.run import RunState, RunStep, Why
from app.fleets.administration import TargetRow
from app.fleets.explanation import RunExplanation, rules_json
from app.fleets.plan import KnownRun

EXAMPLE_ID: Final = "run-01JC8ZQ5M7W3T9K2V4X6Y8B0D1"
TargetState = Literal[
    "waiting",
    "handed",
    "succeeded",
    "failed",
    "timed_out",
    "unsent",
    "unreachable",
    "cancelled",
    "skipped",
    "unknown",
]
_Id = Annotated[str, Field(description="The id of the run.", examples=[EXAMPLE_ID], json_schema_extra=said(RUN_ID))]
_Duration = said(DURATION)


class _FleetModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FleetCommandBody(_FleetModel):
    """The command that each target gets. It is held until its device is there."""

    method: str
    params: JsonValue = {}
    timeout: Annotated[str, Field(description="As in a single command.", json_schema_extra=_Duration)] = "10s"
    profile: Annotated[
        str | SkipJsonSchema[None],
        Field(description="If left out, the record of each device decides, then the node's default."),
    ] = None
    one_way: bool = False
    hold: Annotated[
        str,
        Field(description="The time for which a target may be away when its turn comes.", json_schema_extra=_Duration),
    ] = "5m"


class FleetRunBody(_FleetModel):
    """A command for many devices."""

    targets: Annotated[
        dict[str, JsonValue],
        Field(
            description=(
                "One of `devices` (ids and patterns), `labels`, `profile`, `online` (true or false), `state` (`topic`, "
                "`when` and `max_age`), or `all`, `any` and `not` of these."
            ),
            examples=[{"labels": {"site": "north"}}],
        ),
    ]
    command: FleetCommandBody
    waves: Annotated[
        list[JsonValue],
        Field(
            description=(
                "Up to 20 waves, one after the other: a number of devices, a share such as `10%`, or `rest`; or an "
                "object with `size`, `bake` (a time to wait afterwards) and `then`: `wait` (until a person resumes) or "
                "`approve` (until another person does than the one who began the run). What is left is the last wave. "
                "In place of `size`, the last one may have `first`, `factor` and `most`: waves that grow."
            ),
            examples=[[5, {"size": "10%", "bake": "5m"}, "rest"]],
        ),
    ] = []
    stop: Annotated[
        list[JsonValue],
        Field(
            description=(
                "Up to 8 rules, each with `of` (how targets end: `failed` and `timed_out` if left out), either `share` "
                "of the targets that have ended (not before `after` have: if left out 20, or the first wave if that is "
                "smaller) or `count`, and `then`: `pause` or `abort`."
            ),
            examples=[[{"share": "5%", "after": 20, "then": "pause"}]],
        ),
    ] = []
    in_flight: Annotated[int, Field(description="The most targets at once.", ge=1, le=5000)] = 100
    start_at: Annotated[Instant | SkipJsonSchema[None], Field(description="Not before this instant.")] = None
    until: Annotated[
        str, Field(description="After so long nothing more is handed out: up to 720h.", json_schema_extra=_Duration)
    ] = "72h"
    order: Annotated[
        Literal["shuffled", "as_listed"],
        Field(description="`shuffled` by the id of the run, or in the order of `devices`, and then by id."),
    ] = "shuffled"
    windows: Annotated[
        list[JsonValue],
        Field(
            description=(
                "Up to 8 times of days outside of which nothing is sent, each with `from`, `to`, `days` (all if left "
                "out) and `zone` (UTC if left out). One that ends before it begins goes over midnight."
            ),
            examples=[[{"days": "mon-fri", "from": "02:00", "to": "05:00", "zone": "Europe/Berlin"}]],
        ),
    ] = []
    rate: Annotated[
        str | SkipJsonSchema[None],
        Field(description="The most targets that get their turn, such as `100/s` or `30/m`.", examples=["100/s"]),
    ] = None
    spread: Annotated[
        str | SkipJsonSchema[None], Field(description="The values of this label take turns.", examples=["site"])
    ] = None
    per: Annotated[
        list[JsonValue],
        Field(
            description=(
                "Up to 4 labels, each with `most`: so many targets with one value of `label` are in flight at once. "
                "Devices without the label share one value."
            ),
            examples=[[{"label": "site", "most": 2}]],
        ),
    ] = []
    done: Annotated[
        dict[str, JsonValue] | SkipJsonSchema[None],
        Field(
            description=(
                "The targets that have to succeed: `succeeded` is a number or a share. When they have, `then` is "
                "`finish` (nothing more is handed out) or `go_on`. When they cannot any more, the run pauses."
            ),
            examples=[{"succeeded": "80%", "then": "finish"}],
        ),
    ] = None


class AbortBody(_FleetModel):
    """The fate of commands that are open."""

    open: Annotated[
        Literal["leave", "cancel"],
        Field(description="`leave` lets what was sent end, and cancels what is held; `cancel` cancels all of it."),
    ] = "leave"


class ResumeBody(_FleetModel):
    """A wish about how to go on."""

    forgive: Annotated[StrictBool, Field(description="True if what has failed so far counts for no rule any more.")] = (
        False
    )


class RetryBody(_FleetModel):
    """The targets of a run that are to have another command."""

    of: Annotated[
        list[Literal["failed", "timed_out", "unsent", "unreachable", "cancelled", "skipped", "unknown"]],
        Field(
            description="The ends of the targets to retry. If `timed_out` or `unknown`, a device may have done it.",
            min_length=1,
            max_length=7,
        ),
    ] = ["failed", "timed_out"]


class FleetRunStep(_FleetModel):
    """A change of the state of a run."""

    at: Instant
    state: RunState
    why: Why
    said: str
    by: str


class FleetWave(_FleetModel):
    """A wave of a run."""

    size: int
    began_at: Annotated[Instant | None, Field(description="Null of a wave that is not the present one.")]
    current: bool


class FleetRunView(_FleetModel):
    """A fleet run."""

    id: _Id
    state: RunState
    created_at: Instant
    start_at: Instant
    until: Instant
    ended_at: Instant | None
    by: Annotated[str, Field(description="The principal who began it; empty where nobody is asked for a key.")]
    tenant: str | None
    targets: dict[str, JsonValue]
    total: Annotated[int, Field(description="The number of targets, which were frozen when it was created.")]
    digest: Annotated[str, Field(description="Tells the frozen targets from others.")]
    counts: Annotated[dict[TargetState, int], Field(description="The number of targets by state, without zeros.")]
    command: dict[str, JsonValue]
    waves: list[FleetWave]
    in_flight: int
    stop: list[dict[str, JsonValue]]
    windows: list[dict[str, JsonValue]]
    spread: str | None
    per: list[dict[str, JsonValue]]
    done: dict[str, JsonValue] | None
    rate: str | None
    steps: Annotated[list[FleetRunStep], Field(description="The last changes of its state, the latest last.")]
    driver: Annotated[str, Field(description="The node that drives it, or did so last.")]


class FleetRunPage(_FleetModel):
    """A page of fleet runs."""

    runs: list[FleetRunView]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class DryFleetRun(_FleetModel):
    """The run that would be begun."""

    total: int
    devices: Annotated[list[str], Field(description="The first hundred targets.")]
    waves: Annotated[list[int], Field(description="The number of targets of each wave.")]


class FleetTarget(_FleetModel):
    """A target of a run."""

    device_id: str
    profile: str
    wave: Annotated[int, Field(description="The number of its wave, from 1.")]
    state: TargetState
    command_id: Annotated[CommandId | None, Field(description="Null while it has none.")]
    ended_at: Instant | None
    code: JsonValue
    message: str
    result: Annotated[
        JsonValue,
        Field(description="The answer of the device; null also where it has more than 256 bytes: see its command."),
    ]


class FleetTargetPage(_FleetModel):
    """A page of targets, in the order of their turns."""

    targets: list[FleetTarget]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class FleetFailures(_FleetModel):
    """Targets that ended alike."""

    state: TargetState
    code: str
    message: str
    count: int
    devices: Annotated[list[str], Field(description="A few of them.")]


class FleetExplanation(_FleetModel):
    """The reason why a run stands, or goes on."""

    id: _Id
    state: RunState
    said: str
    because: Annotated[FleetRunStep | None, Field(description="The last change of its state.")]
    wave: Annotated[int, Field(description="The number of the present wave, from 1.")]
    waves: int
    counts: dict[TargetState, int]
    held: Annotated[int, Field(description="The number of targets in flight that wait for their device.")]
    rules: Annotated[list[dict[str, JsonValue]], Field(description="Each stop rule, with what it has `counted`.")]
    failures: list[FleetFailures]
    driver: str


def run_json(known: KnownRun) -> dict[str, Any]:
    """A run as callers see it."""
    plan, status, spec = known.plan, known.run.status, known.plan.spec
    return {
        "id": known.record.run_id,
        "state": status.state,
        "created_at": instant(known.record.created_at),
        "start_at": instant(spec.start_at),
        "until": instant(spec.until),
        "ended_at": None if status.ended_at is None else instant(status.ended_at),
        "by": plan.by,
        "tenant": plan.tenant or None,
        "targets": plan.targets,
        "total": sum(status.counts.values()),
        "digest": plan.digest,
        "counts": status.counts,
        "command": _command(known),
        "waves": _waves(known),
        "in_flight": spec.in_flight,
        "stop": [one.to_json() for one in spec.stop],
        "windows": [],
        "spread": None,
        "per": [],
        "done": None,
        "rate": None,
        **spec.further(),
        "steps": [_step(one) for one in status.steps],
        "driver": status.driver,
    }


def target_json(row: TargetRow) -> dict[str, Any]:
    """A target as callers see it."""
    at, code, message, *_ = row.result or (None, None, "")
    return {
        "device_id": row.device_id,
        "profile": row.profile,
        "wave": row.wave + 1,
        "state": row.mark.word,
        "command_id": row.command_id,
        "ended_at": None if at is None else instant(at),
        "code": code,
        "message": message,
        "result": None if row.answer is None else orjson.Fragment(row.answer),
    }


def explanation_json(known: KnownRun, found: RunExplanation) -> dict[str, Any]:
    """An explanation as callers see it."""
    return {
        "id": known.record.run_id,
        "state": known.run.state,
        "said": found.said,
        "because": None if found.because is None else _step(found.because),
        "wave": known.run.status.wave + 1,
        "waves": len(known.run.ends),
        "counts": known.run.counts(),
        "held": found.held,
        "rules": rules_json(known),
        "failures": [
            {
                "state": one.mark.word,
                "code": one.code,
                "message": one.message,
                "count": one.count,
                "devices": list(one.devices),
            }
            for one in found.failures
        ],
        "driver": known.run.status.driver,
    }


def mark_of_word(word: str) -> TargetMark:
    """The mark of a target's state."""
    return TargetMark[word.upper()]


def _command(known: KnownRun) -> Mapping[str, Any]:
    command = known.plan.command
    return {
        "method": command.method,
        "params": command.params,
        "timeout": format_duration(command.timeout),
        "profile": command.profile,
        "one_way": command.one_way,
        "hold": format_duration(known.plan.spec.hold),
    }


def _waves(known: KnownRun) -> list[dict[str, Any]]:
    status = known.run.status
    ends = known.plan.spec.wave_ends(sum(status.counts.values()))
    sizes = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    began = None if status.wave_began is None else instant(status.wave_began)
    return [
        {"size": size, "began_at": began if index == status.wave else None, "current": index == status.wave}
        for index, size in enumerate(sizes)
    ]


def _step(one: RunStep) -> dict[str, Any]:
    return {"at": instant(one.at), "state": one.state, "why": one.why, "said": one.said, "by": one.by}
