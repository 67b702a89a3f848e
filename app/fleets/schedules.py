"""Schedules, as those see them who write, read and delete them. Any node serves them, whichever begins what is due."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from app.access.conditions import Precondition, tag_of
from app.core.errors import CapacityError, NotYetError, ScheduleNotFoundError
from app.core.schedules.schedule import (
    Schedule,
    ScheduleSpec,
    check_size,
    decode_schedule,
    document_of,
    encode_schedule,
    validate_schedule_name,
)
from app.fleets.administration import RunOwner
from app.fleets.scheduled_work import ScheduledWork
from app.fleets.timetable import Timetable
from app.store.commands import CommandReader
from app.store.schedules import MOST_OF_TENANT, ScheduleStore

TRIES: Final = 20
"""A change that a node has overtaken is tried so often: a node changes a schedule with each occurrence."""
SHOWN_INSTANTS: Final = 10


def schedule_tag(schedule: Schedule) -> str:
    """The tag of a schedule as somebody wrote it: its occurrences do not change it."""
    return tag_of([schedule.document, schedule.generation])


class ScheduleAdministrator:
    """Writes, reads and deletes schedules for owners, who see those of their own tenant."""

    def __init__(self, *, store: ScheduleStore, commands: CommandReader, work: ScheduledWork) -> None:
        self.most_of_tenant = MOST_OF_TENANT
        self._store = store
        self._commands = commands
        self._work = work

    async def put(
        self, name: str, spec: ScheduleSpec, owner: RunOwner, condition: Precondition
    ) -> tuple[Schedule, bool]:
        """Write a schedule as its owner; whether it is new. It knows of no instant before, and is not paused.

        InvalidInputError, AccessError, PreconditionFailedError, CapacityError, UnavailableError.
        """
        validate_schedule_name(name)
        check_size(spec)
        Timetable(spec.cron, spec.zone)
        await self._work.check(spec, owner)
        for _ in range(TRIES):
            before, known = await self._known(owner.tenant, name)
            condition.check(f"schedule {name!a}", None if known is None else schedule_tag(known))
            if known is None and owner.tenant:
                await self._check_room(owner.tenant)
            now = await self._commands.date()
            schedule = Schedule(
                name=name,
                tenant=owner.tenant,
                by=owner.principal,
                who="" if owner.caller is None else owner.caller.to_text(),
                spec=spec,
                generation=now,
                decided=now,
                occurrences=() if known is None else known.left_behind(),
            )
            if await self._store.write(schedule.document, encode_schedule(schedule), before):
                return schedule, known is None
        raise _too_fast(name)

    async def get(self, tenant: str | None, name: str) -> Schedule:
        """The schedule; ScheduleNotFoundError."""
        return _found(name, (await self._known(tenant, validate_schedule_name(name)))[1])

    async def all(self, tenant: str | None) -> Sequence[Schedule]:
        """Return the schedules of a tenant that this version can read, by name."""
        documents, place = (await self._store.read()).documents, document_of(tenant, "")
        found = (_readable(documents[one]) for one in sorted(documents) if one.startswith(place))
        return [one for one in found if one is not None]

    async def delete(self, tenant: str | None, name: str, condition: Precondition) -> None:
        """Delete a schedule. What it has begun goes on. ScheduleNotFoundError, PreconditionFailedError."""
        validate_schedule_name(name)
        for _ in range(TRIES):
            before, known = await self._known(tenant, name)
            condition.check(f"schedule {name!a}", schedule_tag(_found(name, known)))
            if await self._store.write(document_of(tenant, name), None, before):
                return
        raise _too_fast(name)

    async def coming(self, schedules: Sequence[Schedule]) -> list[list[int]]:
        """Return of each the next instants (µs) at which it begins something."""
        now, found = await self._commands.date(), []
        for one in schedules:
            upcoming = Timetable(one.spec.cron, one.spec.zone).after
            found.append(one.coming(upcoming, now, SHOWN_INSTANTS))
            await asyncio.sleep(0)
        return found

    async def _check_room(self, tenant: str) -> None:
        """CapacityError where the tenant has as many schedules as it may: others have to find room as well."""
        place = document_of(tenant, "")
        if sum(one.startswith(place) for one in (await self._store.read()).documents) >= self.most_of_tenant:
            raise CapacityError(
                f"tenant {tenant[:64]!a} has {self.most_of_tenant} schedules, which is all that it can have"
            )

    async def _known(self, tenant: str | None, name: str) -> tuple[bytes | None, Schedule | None]:
        document = (await self._store.read()).documents.get(document_of(tenant, name))
        known = None if document is None else _readable(document)
        if document is not None and known is None:
            raise NotYetError(f"schedule {name!a} was written by a later version, which this node cannot read")
        return document, known


def _readable(document: bytes) -> Schedule | None:
    try:
        return decode_schedule(document)
    except (ValueError, KeyError, TypeError):
        return None


def _found(name: str, known: Schedule | None) -> Schedule:
    if known is None:
        raise ScheduleNotFoundError(f"there is no schedule {name[:64]!a}")
    return known


def _too_fast(name: str) -> CapacityError:
    return CapacityError(f"schedule {name!a} changes too fast to be changed; try again")
