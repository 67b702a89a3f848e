"""Schedules over HTTP: written, read and deleted."""

from __future__ import annotations

from typing import Annotated, Final

import orjson
from fastapi import Depends, Path, Request
from fastapi import Response as Reply

from app.api import problems
from app.api.conditions import Conditional, etag
from app.api.dependencies import Asker, NodePorts, WhoAsks
from app.api.http import BytesResponse
from app.api.openapi import acts, header, problems_of
from app.api.parameters import check_names
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.strict_bodies import StrictBodyRoute, check_readable
from app.api.v1 import schedule_models as models
from app.api.v1.command_models import said
from app.api.v1.schedule_models import schedule_json, spec_of
from app.core import errors
from app.core.access.rules import Action
from app.core.schedules.schedule import NAME, Schedule
from app.fleets.schedules import schedule_tag

_AWAY: Final = BY_ERROR[errors.StoreUnavailableError]
_FAILED: Final = BY_ERROR[errors.PreconditionFailedError]
_FULL: Final = BY_ERROR[errors.CapacityError]
_OF_ONE: Final = (BY_ERROR[errors.ScheduleNotFoundError], problems.INVALID, _AWAY)
_MAY: Final = acts(Action.FLEET)
_TAG: Final = {"ETag": header("The version of the schedule as it was written, for `If-Match`.")}

router = GuardedRouter(prefix="/v1/schedules", tags=["schedules"], route_class=StrictBodyRoute)

_Name = Annotated[
    str,
    Path(
        description="The name of the schedule.", json_schema_extra=said(NAME), examples=["close-covers"], alias="name"
    ),
]


class _Agenda:
    """Schedules, for one caller."""

    def __init__(self, asker: Asker, ports: NodePorts) -> None:
        self.schedules = ports.fleets.schedules
        self.owner = asker.run_owner()
        self._audit = ports.audit

    def check_audit(self) -> None:
        """Return where what the caller is about to do can be put on record."""
        if self._audit is not None:
            self._audit.check()

    def note(self, name: str, done: str) -> None:
        """Put on record what the caller has done with a schedule."""
        if self._audit is not None:
            self._audit.schedule(name, self.owner.tenant, done)

    async def answer(self, schedule: Schedule, status: int = 200) -> Reply:
        """The schedule, as it is shown."""
        (coming,) = await self.schedules.coming([schedule])
        content = orjson.dumps(schedule_json(schedule, coming))
        return BytesResponse(content, status=status, headers=[etag(schedule_tag(schedule))])


async def _agenda(ports: NodePorts, asker: WhoAsks) -> _Agenda:
    asker.check_own(Action.FLEET)
    return _Agenda(asker, ports)


_OnAgenda = Annotated[_Agenda, Depends(_agenda)]


@router.put(
    "/{name}",
    summary="Create or replace a schedule",
    response_model=models.ScheduleView,
    response_description="The new schedule.",
    responses={
        200: {"headers": _TAG},
        201: {"description": "The schedule was created.", "headers": _TAG, "model": models.ScheduleView},
        **problems_of(BY_ERROR[errors.DeviceNotFoundError], problems.INVALID, _FAILED, _FULL, _AWAY),
    },
    openapi_extra=_MAY,
)
async def put_schedule(
    request: Request, name: _Name, body: models.ScheduleBody, condition: Conditional, agenda: _OnAgenda
) -> Reply:
    """Begins a fleet run, or sends a command, at each instant of a cron expression, in the name of the caller.

    The caller needs `fleet`, and `send` for each target. Both are judged again at each occurrence; without them the
    schedule pauses itself. Instants before it was written do not count.
    """
    check_readable(request)
    agenda.check_audit()
    schedule, made = await agenda.schedules.put(name, spec_of(body), agenda.owner, condition)
    agenda.note(name, "put")
    return await agenda.answer(schedule, 201 if made else 200)


@router.get(
    "",
    summary="List schedules",
    response_model=models.Schedules,
    response_description="The schedules of the caller's tenant, by name.",
    responses=problems_of(problems.INVALID, _AWAY),
    openapi_extra=_MAY,
)
async def list_schedules(request: Request, agenda: _OnAgenda) -> Reply:
    """Lists schedules, each with what comes next and what became of its last occurrences."""
    check_names(request, ())
    found = await agenda.schedules.all(agenda.owner.tenant)
    coming = await agenda.schedules.coming(found)
    shown = [schedule_json(one, instants) for one, instants in zip(found, coming, strict=True)]
    return BytesResponse(orjson.dumps({"schedules": shown}))


@router.get(
    "/{name}",
    summary="Read a schedule",
    response_model=models.ScheduleView,
    response_description="The schedule.",
    responses={200: {"headers": _TAG}, **problems_of(*_OF_ONE)},
    openapi_extra=_MAY,
)
async def read_schedule(name: _Name, agenda: _OnAgenda) -> Reply:  # noqa: D103 - its summary says it
    return await agenda.answer(await agenda.schedules.get(agenda.owner.tenant, name))


@router.delete(
    "/{name}",
    status_code=204,
    summary="Delete a schedule",
    response_description="The schedule was deleted.",
    responses=problems_of(_FAILED, _FULL, *_OF_ONE),
    openapi_extra=_MAY,
)
async def delete_schedule(name: _Name, condition: Conditional, agenda: _OnAgenda) -> None:
    """Leaves alone what it has begun."""
    agenda.check_audit()
    await agenda.schedules.delete(agenda.owner.tenant, name, condition)
    agenda.note(name, "delete")
