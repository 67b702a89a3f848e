"""Schedules, as they go in and out."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool
from pydantic.json_schema import SkipJsonSchema

from app.api.representation import instant
from app.api.v1.command_models import Instant, said
from app.core.durations import DURATION, format_duration
from app.core.errors import InvalidInputError
from app.core.events.instants import parse_instant
from app.core.fleets.fields import read_length
from app.core.identifiers import validate_device_id
from app.core.schedules.schedule import (
    LEAST_CATCH_UP,
    MOST_CATCH_UP,
    NAME,
    USUAL_CATCH_UP,
    OccurrenceResult,
    Schedule,
    ScheduleOverlap,
    ScheduleSpec,
)
from app.store.rules import micros

_Object = dict[str, JsonValue]


class _ScheduleModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ScheduleBody(_ScheduleModel):
    """A schedule as it is written: either `run`, or `device` and `command`."""

    cron: Annotated[
        str,
        Field(
            description="Five fields: minute, hour, day of month, month, day of week.",
            examples=["30 2 * * mon"],
        ),
    ]
    zone: Annotated[str, Field(description="The time zone of the expression.", examples=["Europe/Berlin"])] = "UTC"
    run: Annotated[
        _Object | SkipJsonSchema[None],
        Field(description="A fleet run, as `POST /v1/fleet-runs` takes it, without `start_at`."),
    ] = None
    device: Annotated[str | SkipJsonSchema[None], Field(description="The device of `command`.")] = None
    command: Annotated[
        _Object | SkipJsonSchema[None],
        Field(description="The command, as that of a fleet run. It is held until the device is there."),
    ] = None
    overlap: Annotated[
        ScheduleOverlap,
        Field(
            description="The fate of an occurrence while what the one before it began has not ended. `skip`: it "
            "begins nothing. `queue_one`: it waits for that, within `catch_up`, and of several that wait the latest "
            "begins. `replace`: what began before is aborted or cancelled, and it begins when that has ended. "
            "`parallel`: it begins all the same."
        ),
    ] = ScheduleOverlap.SKIP
    catch_up: Annotated[
        str,
        Field(
            description="The time for which a missed occurrence is still begun: the latest one, once.",
            json_schema_extra=said(DURATION),
        ),
    ] = format_duration(USUAL_CATCH_UP)
    jitter: Annotated[
        str,
        Field(
            description="Each occurrence begins up to so much later, by a time of its own, so that not all schedules "
            "begin in one moment; up to half of `catch_up`.",
            json_schema_extra=said(DURATION),
        ),
    ] = "0s"
    until: Annotated[
        str | SkipJsonSchema[None],
        Field(
            description="The last instant that counts. What is due by then may begin later.",
            examples=["2027-12-31T23:59:59Z"],
        ),
    ] = None
    enabled: StrictBool = True


class ScheduleOccurrence(_ScheduleModel):
    """An instant of a schedule, and what became of it."""

    at: Instant
    result: Annotated[OccurrenceResult, Field(description="`beginning` while a node is about to begin it.")]
    began: Annotated[str | None, Field(description="The id of the run or the command.")]
    reason: str | None
    noted_at: Instant
    node: str


class ScheduleView(_ScheduleModel):
    """A schedule."""

    name: Annotated[str, Field(json_schema_extra=said(NAME), examples=["close-covers"])]
    tenant: str | None
    by: Annotated[str, Field(description="The principal who wrote it, as whom it acts; empty where nobody is asked.")]
    written_at: Instant
    cron: str
    zone: str
    run: _Object | None
    device: str | None
    command: _Object | None
    overlap: ScheduleOverlap
    catch_up: str
    jitter: str
    until: Instant | None
    enabled: bool
    paused: Annotated[
        str | None, Field(description="The reason why it has paused itself. Writing it again lets it go on.")
    ]
    next: Annotated[list[Instant], Field(description="The next ten instants; none while it is paused or disabled.")]
    occurrences: Annotated[list[ScheduleOccurrence], Field(description="The last twenty, the newest first.")]


class Schedules(_ScheduleModel):
    """Schedules by name."""

    schedules: list[ScheduleView]


def spec_of(body: ScheduleBody) -> ScheduleSpec:
    """The schedule that a caller asks for; InvalidInputError."""
    if (body.run is None) == (body.command is None):
        raise InvalidInputError("run", "needs to be there, or else command and device, and not both of them")
    if (body.device is None) != (body.command is None):
        raise InvalidInputError("device", "goes with command: each needs the other, and run needs neither")
    if body.device is not None:
        validate_device_id(body.device)
    if body.run is not None and "start_at" in body.run:
        raise InvalidInputError("run.start_at", "is of runs that begin once; here cron says when they begin")
    catch_up = read_length("catch_up", body.catch_up, MOST_CATCH_UP, LEAST_CATCH_UP)
    return ScheduleSpec(
        cron=body.cron,
        zone=body.zone,
        run=body.run,
        device=body.device,
        command=body.command,
        catch_up=micros(catch_up),
        jitter=micros(read_length("jitter", body.jitter, catch_up / 2, timedelta())),
        until=None if body.until is None else parse_instant("until", body.until),
        enabled=body.enabled,
        overlap=body.overlap,
    )


def schedule_json(schedule: Schedule, coming: list[int]) -> dict[str, Any]:
    """A schedule as it is shown, with the instants that come next."""
    spec = schedule.spec
    return {
        "name": schedule.name,
        "tenant": schedule.tenant or None,
        "by": schedule.by,
        "written_at": instant(schedule.generation),
        "cron": spec.cron,
        "zone": spec.zone,
        "run": spec.run,
        "device": spec.device,
        "command": spec.command,
        "overlap": spec.overlap,
        "catch_up": format_duration(timedelta(microseconds=spec.catch_up)),
        "jitter": format_duration(timedelta(microseconds=spec.jitter)),
        "until": None if spec.until is None else instant(spec.until),
        "enabled": spec.enabled,
        "paused": schedule.paused or None,
        "next": [instant(one) for one in coming],
        "occurrences": [
            {
                "at": instant(one.at),
                "result": one.result,
                "began": one.began or None,
                "reason": one.reason or None,
                "noted_at": instant(one.noted_at),
                "node": one.node,
            }
            for one in schedule.occurrences
        ],
    }
