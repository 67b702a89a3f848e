"""The work of schedules: a fleet run, or a command that waits for its device. It is checked, begun and looked after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from app.access.origin import ASKING, RequestOrigin
from app.access.ports import Access
from app.audit.recorder import Audit
from app.commands.held.command_holder import CommandHolder
from app.commands.send.registrar import CommandRequest
from app.core.access.callers import Caller
from app.core.access.rules import Action
from app.core.commands.command import Command
from app.core.durations import format_duration
from app.core.errors import (
    AccessError,
    InvalidInputError,
    NoTargetsError,
    RunNotFoundError,
    RunStateError,
    UnauthenticatedError,
)
from app.core.fleets.ids import is_run_id
from app.core.payload import JsonValue
from app.core.schedules.schedule import Schedule, ScheduleOverlap, ScheduleSpec
from app.fleets.administration import FleetAdministrator, RunOwner, RunRequest
from app.fleets.plan import FleetCommand
from app.fleets.replaced import ReplacedCommands
from app.store.commands import CommandReader
from app.store.rules import micros

AGENT: Final = "schedule"
"""The agent that the audit names, with the name of the schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPorts:
    """The parts of a node that scheduled work needs."""

    access: Access
    runs: FleetAdministrator
    commands: CommandReader
    holder: CommandHolder
    audit: Audit | None
    read_run: Callable[[JsonValue], RunRequest]
    """Reads the body of a run; InvalidInputError."""
    read_command: Callable[[JsonValue], tuple[FleetCommand, timedelta]]
    """Reads a command, and for how long it may wait for its device; InvalidInputError."""
    replaced: ReplacedCommands
    retention: timedelta
    """The time for which a command is on record after its end."""
    profile: str
    """The profile of a device whose record does not say."""


class ScheduledWork:
    """The work of schedules, in the name of who wrote them."""

    def __init__(self, ports: WorkPorts) -> None:
        self._ports = ports

    async def check(self, spec: ScheduleSpec, owner: RunOwner) -> None:
        """Return when the owner may begin such a thing now; InvalidInputError, AccessError, UnavailableError.

        A run without targets is none of them: there may be some when it is time.
        """
        if spec.run is None:
            if spec.catch_up > micros(self._ports.retention):
                longest = format_duration(self._ports.retention)
                raise InvalidInputError(
                    "catch_up",
                    f"is longer than a command is on record, so that it might be sent twice; allowed: up to {longest}",
                )
            request = self._command(spec, "")
            about = request.device_id, request.profile, request.method
            self._ports.access.check(owner.caller, Action.SEND, *about)
            if spec.overlap == ScheduleOverlap.REPLACE:
                self._ports.access.check(owner.caller, Action.CANCEL, *about)
            self._ports.holder.check(request)
            return
        try:
            await self._ports.runs.choose(self._ports.read_run(dict(spec.run)), owner)
        except NoTargetsError:
            return

    def id_of(self, schedule: Schedule, at: int) -> str:
        """Return the id of what an occurrence begins, whoever begins it."""
        if schedule.spec.run is None:
            return schedule.command_id_of(at)
        return self._ports.runs.id_of(_owner(schedule, None), schedule.key_of(at))

    async def begin(self, schedule: Schedule, at: int) -> None:
        """Begin what an occurrence is about. Repeated, it changes nothing.

        AccessError where the principal may not any more; else as `FleetAdministrator.create` and `CommandHolder`.
        """
        await self._by_newest_rules(partial(self._begin, schedule, at))

    async def _by_newest_rules(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it, and once more where rules refuse it that may be old (ADR 0254)."""
        try:
            await work()
        except AccessError:
            await self._ports.access.renew()
            await work()

    async def _begin(self, schedule: Schedule, at: int) -> None:
        owner = _owner(schedule, _caller(schedule))
        self._ports.access.check(owner.caller, Action.FLEET, tenant_id=owner.tenant)
        ASKING.set(RequestOrigin(owner.caller, None, f"{AGENT} {schedule.name}".encode()))
        if schedule.spec.run is None:
            request = self._command(schedule.spec, schedule.command_id_of(at))
            self._ports.access.spend(owner.caller, Action.SEND, request.device_id, request.profile, request.method)
            await self._ports.holder.invoke(request, owner.caller, park=False)
            return
        asked = self._ports.read_run(dict(schedule.spec.run))
        known, replayed = await self._ports.runs.create(asked, owner, schedule.key_of(at))
        if self._ports.audit is not None and not replayed:
            self._ports.audit.fleet_run(known.record.run_id, owner.tenant, "begin", asked.command.method)

    async def has_ended(self, schedule: Schedule) -> bool:
        """Return whether what the schedule has begun last has ended, or is not on record any more.

        A command that this node cannot read, as it is of a later version, goes on as far as anybody here can tell.
        """
        begun = schedule.last_begun
        if not begun:
            return True
        if not is_run_id(begun):  # whatever the schedule begins by now: it may have been written again since
            (outcome,) = await self._ports.commands.outcomes([begun])
            return outcome is not None
        try:
            return (await self._ports.runs.get(None, begun)).run.state.final
        except RunNotFoundError:
            return True

    async def end_last(self, schedule: Schedule) -> None:
        """End what the schedule has begun last: a run is aborted with what is open of it, a command is cancelled.

        What was sent is left alone where that would stop its lane. Repeated, it changes nothing. AccessError where the
        principal may not.
        """
        await self._by_newest_rules(partial(self._end_last, schedule))

    async def _end_last(self, schedule: Schedule) -> None:
        owner, begun = _owner(schedule, _caller(schedule)), schedule.last_begun
        ASKING.set(RequestOrigin(owner.caller, None, f"{AGENT} {schedule.name}".encode()))
        if is_run_id(begun):
            await self._abort(begun, owner)
        else:
            await self._ports.replaced.end(begun, partial(self._check_cancel, owner))

    async def _abort(self, run_id: str, owner: RunOwner) -> None:
        self._ports.access.check(owner.caller, Action.FLEET, tenant_id=owner.tenant)
        with suppress(RunNotFoundError, RunStateError):  # it has ended meanwhile
            if (await self._ports.runs.get(None, run_id)).run.status.cancels:
                return  # an earlier look has done so, and it takes a while
            known = await self._ports.runs.change(
                None, run_id, lambda run, now: run.abort(now, owner.principal, cancel=True, spares=True)
            )
            if self._ports.audit is not None:
                self._ports.audit.fleet_run(run_id, owner.tenant, "abort", known.plan.command.method)

    def _check_cancel(self, owner: RunOwner, command: Command) -> None:
        """Return when the owner may cancel a command, which is on record then; AccessError."""
        self._ports.access.check(owner.caller, Action.CANCEL, command.device_id, command.profile, command.method)
        if self._ports.audit is not None:
            self._ports.audit.cancelled(command.id, command.device_id)

    def _command(self, spec: ScheduleSpec, identity: str) -> CommandRequest:
        command, hold = self._ports.read_command(dict(spec.command or {}))
        device = spec.device or ""
        profile = command.profile or self._ports.access.profile_of(device) or self._ports.profile
        return command.request(device, profile, hold, identity)


def _owner(schedule: Schedule, caller: Caller | None) -> RunOwner:
    return RunOwner(tenant=schedule.tenant, principal=schedule.by, caller=caller)


def _caller(schedule: Schedule) -> Caller | None:
    try:
        return Caller.of_text(schedule.who) if schedule.who else None
    except (ValueError, TypeError):
        raise UnauthenticatedError("the caller who wrote the schedule cannot be read") from None
