"""The plan of a run: all of it that never changes, and the commands that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from app.commands.send.registrar import CommandRequest
from app.core.access.callers import Caller
from app.core.commands.command import IfOffline
from app.core.errors import InvalidInputError, NotYetError, UnauthenticatedError
from app.core.fleets.ids import child_id
from app.core.fleets.run import FleetRun, RunStatus
from app.core.fleets.spec import RunSpec
from app.core.payload import JsonValue
from app.store.fleets import RunRecord

ATTEMPT = 1
"""Each target has one command."""


@dataclass(frozen=True, slots=True)
class FleetCommand:
    """The command of a run. Each target has its own profile where `profile` is None."""

    method: str
    params: JsonValue
    timeout: timedelta
    profile: str | None = None
    one_way: bool = False

    def request(
        self, device_id: str, profile: str, hold: timedelta, identity: str = "", run_id: str = ""
    ) -> CommandRequest:
        """The request for one target; with `run_id`, nobody sends it while that run stands."""
        return CommandRequest(
            device_id=device_id,
            method=self.method,
            params=self.params,
            timeout=self.timeout,
            profile=profile,
            one_way=self.one_way,
            if_offline=IfOffline.HOLD,
            hold=hold,
            command_id=identity,
            run=run_id,
        )

    def to_json(self) -> dict[str, Any]:
        """The command as it is kept."""
        return {
            "method": self.method,
            "params": self.params,
            "timeout": self.timeout.total_seconds(),
            "profile": self.profile,
            "one_way": self.one_way,
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> FleetCommand:
        """The command that `to_json` wrote."""
        return cls(
            method=kept["method"],
            params=kept["params"],
            timeout=timedelta(seconds=kept["timeout"]),
            profile=kept["profile"],
            one_way=kept["one_way"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The plan of a run. `tenant` is None where who operates Homing asked for it, and "" where nobody is asked."""

    tenant: str | None
    by: str
    """The principal."""
    who: str
    """The caller, as `app/core/access/callers.py` writes them: their right is judged again for each command."""
    targets: Mapping[str, Any]
    """The targets as they were asked for."""
    command: FleetCommand
    spec: RunSpec
    digest: str
    """The digest of the ids of all targets in their order."""

    @property
    def caller(self) -> Caller | None:
        """The caller who asked for the run; None where nobody is asked. UnauthenticatedError."""
        try:
            return Caller.of_text(self.who) if self.who else None
        except (ValueError, TypeError):
            raise UnauthenticatedError("the caller of the run cannot be read") from None

    def to_json(self) -> dict[str, Any]:
        """The plan as it is kept."""
        return {
            "tenant": self.tenant,
            "by": self.by,
            "who": self.who,
            "targets": self.targets,
            "command": self.command.to_json(),
            "spec": self.spec.to_json(),
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> RunPlan:
        """The plan that `to_json` wrote."""
        return cls(
            tenant=kept["tenant"],
            by=kept["by"],
            who=kept["who"],
            targets=kept["targets"],
            command=FleetCommand.from_json(kept["command"]),
            spec=RunSpec.from_json(kept["spec"]),
            digest=kept["digest"],
        )


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run that was read: its record, its plan, and the run itself."""

    record: RunRecord
    plan: RunPlan
    run: FleetRun

    @classmethod
    def of(cls, record: RunRecord) -> KnownRun:
        """The run of a record; NotYetError where this node cannot read it."""
        try:
            plan = RunPlan.from_json(record.plan)
            run = FleetRun(plan.spec, RunStatus.from_json(record.status), bytearray(record.marks))
        except (KeyError, ValueError, TypeError, InvalidInputError):
            raise NotYetError(
                f"fleet run {record.run_id} was written by a later version, which this node cannot read"
            ) from None
        return cls(record, plan, run)

    @classmethod
    def readable(cls, record: RunRecord) -> KnownRun | None:
        """The run of a record; None where this node cannot read it."""
        try:
            return cls.of(record)
        except NotYetError:
            return None

    def child(self, index: int, device_id: str) -> str:
        """The id of the command for a target."""
        return child_id(self.record.run_id, index, ATTEMPT, device_id, self.record.created_at)
