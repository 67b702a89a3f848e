"""Fleet runs, as those see them who begin, follow and stop them. Any node serves them, whoever drives the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Final

import orjson

from app.commands.held.command_holder import CommandHolder
from app.core.access.callers import Caller
from app.core.clock import IdFactory
from app.core.errors import CapacityError, NoTargetsError, RunMismatchError, RunNotFoundError, RunStateError
from app.core.fleets.ids import new_run_id, run_id_of_key, validate_run_id
from app.core.fleets.marks import MARK_OF_WORD, TargetMark
from app.core.fleets.quorum import in_turn
from app.core.fleets.run import FleetRun, new_run
from app.core.fleets.spec import RunSpec
from app.core.fleets.targets import TargetCandidate, TargetSelector, check_labels_of, read_selector, shuffled
from app.fleets.drivers import FleetDrivers
from app.fleets.plan import FleetCommand, KnownRun, RunPlan
from app.fleets.selection import TargetSelection
from app.fleets.target_list import TargetList
from app.store.commands import CommandReader
from app.store.fleets import MOST_OPEN_OF_TENANT, FleetStore, NewRecord, RunChange, Written

TRIES: Final = 20
"""A change that the driver has overtaken is tried so often."""
TOGETHER: Final = 1_000
"""The targets that are read before others have a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOwner:
    """The caller: their tenant (None operates Homing itself, "" is nobody's), principal, and how they are known.

    `caller` is as `Access.lasting` has it, since it is kept.
    """

    tenant: str | None
    principal: str
    caller: Caller | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The run that somebody asks for. `fingerprint` tells it from others under the same idempotency key."""

    targets: Mapping[str, Any]
    """The targets as they are shown."""
    selector: TargetSelector
    command: FleetCommand
    spec: Callable[[int], RunSpec]
    """Its specification, by the store's clock in microseconds."""
    as_listed: bool
    fingerprint: str
    named: bool = True
    """False where the ids of the selector are those of another run, which the caller may not know of."""


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A target as it is shown."""

    index: int
    device_id: str
    profile: str
    wave: int
    mark: TargetMark
    command_id: str | None
    result: Sequence[Any]
    """The instant at which it ended (µs), code and message, and behind them a short answer of the device.

    Empty while it has not ended.
    """

    @property
    def ended_at(self) -> int | None:
        """The instant at which it ended, in microseconds on the store's clock; None while it has not."""
        return self.result[0] if self.result else None

    @property
    def answer(self) -> str | None:
        """The answer of the device as JSON text; None also where that was too long to be kept."""
        _, _, _, *answer = self.result or (None, None, "")
        return answer[0] if answer else None


class FleetAdministrator:
    """Begins runs, shows them, and changes their state whatever the driver does meanwhile."""

    def __init__(
        self,
        *,
        store: FleetStore,
        commands: CommandReader,
        holder: CommandHolder,
        selection: TargetSelection,
        drivers: FleetDrivers,
        new_ulid: IdFactory,
    ) -> None:
        self.most_open_of_tenant = MOST_OPEN_OF_TENANT
        self._store = store
        self._commands = commands
        self._holder = holder
        self._selection = selection
        self._drivers = drivers
        self._new_ulid = new_ulid

    async def choose(self, request: RunRequest, owner: RunOwner) -> list[TargetCandidate]:
        """The devices that a run would have as targets, each of which can have such a command; nothing is begun."""
        spec = request.spec(0)
        if spec.labels:
            self._selection.check_labels(spec.labels)
        if spec.needs_approval:
            self._selection.check_proposer(owner.caller)
        found = await self._selection.targets(request.selector, request.command, owner.caller, named=request.named)
        if request.named:
            check_labels_of(found, spec.labels)
        for one in {one.profile: one for one in found}.values():
            self._holder.check(request.command.request(one.device_id, one.profile, spec.hold))
        return found

    async def create(self, request: RunRequest, owner: RunOwner, key: str | None) -> tuple[KnownRun, bool]:
        """Freeze the targets and begin a run; whether an earlier call with the same key has.

        InvalidInputError, NoTargetsError, ForbiddenError, RunMismatchError, CapacityError, UnavailableError.
        """
        run_id = self.id_of(owner, key)
        if key is not None and (there := await self._store.read(run_id)) is not None:
            if there.fingerprint != request.fingerprint:
                raise _other(run_id)
            await self._store.relist(there)
            return KnownRun.of(there), True
        found = await self.choose(request, owner)
        await self._check_room(owner.tenant)
        await self._holder.check_known()
        spec = request.spec(await self._commands.date())
        chosen = {one.device_id: one for one in found}
        # In a thread, as 100,000 of them would keep others waiting.
        ids = list(chosen) if request.as_listed else await asyncio.to_thread(shuffled, run_id, chosen)
        if spec.spread:
            ids = await asyncio.to_thread(in_turn, {one: chosen[one].labels.get(spec.spread, "") for one in ids})
        run = new_run(spec, len(ids))
        plan = RunPlan(
            tenant=owner.tenant,
            by=owner.principal,
            who="" if owner.caller is None else owner.caller.to_text(),
            targets=request.targets,
            command=request.command,
            spec=spec,
            digest=blake2b("\n".join(ids).encode(), digest_size=16).hexdigest(),
        )
        fingerprint = await self._store.create(
            NewRecord(
                run_id=run_id,
                fingerprint=request.fingerprint,
                plan=plan.to_json(),
                status=run.kept(),
                marks=bytes(run.marks),
                targets=[_frozen(chosen[one], spec) for one in ids],
                lasts=_longest(spec, request.command, await self._commands.date()),
            )
        )
        self._drivers.begin(run_id)
        if fingerprint != request.fingerprint:
            raise _other(run_id)
        return await self._read(run_id), False

    async def _check_room(self, tenant: str | None) -> None:
        """CapacityError where the tenant has as many open runs as it may: others have to find room as well."""
        if tenant and sum(not one.run.state.final for one in await self.all(tenant)) >= self.most_open_of_tenant:
            raise CapacityError(
                f"tenant {tenant[:64]!a} has {self.most_open_of_tenant} fleet runs that have not ended, which is all "
                "that it can have"
            )

    def id_of(self, owner: RunOwner, key: str | None) -> str:
        """Return the id of a run: one that follows from its owner and the idempotency key, or a new one."""
        if key is None:
            return new_run_id(self._new_ulid())
        return run_id_of_key(orjson.dumps([owner.tenant, owner.principal]).decode(), key)

    async def retry(self, run_id: str, of: Sequence[str], owner: RunOwner, key: str | None) -> tuple[KnownRun, bool]:
        """Begin a run of those targets of another that have ended so, with its command and its specification.

        Besides what `create` raises: RunNotFoundError, and NoTargetsError where no target has ended so.
        """
        known = await self.get(owner.tenant, run_id)
        words = [one for one in MARK_OF_WORD if one in of]
        marks = {MARK_OF_WORD[one] for one in words}
        listed = await self._store.targets(run_id)
        ids = [device for (device, *_), mark in zip(listed, known.run.marks, strict=True) if mark in marks]
        if not ids:
            raise NoTargetsError(f"no target of {run_id} is {' or '.join(words)}; nothing was begun")
        request = RunRequest(
            targets={"run": {"id": run_id, "of": words}},
            selector=await asyncio.to_thread(read_selector, {"devices": ids}),
            command=known.plan.command,
            spec=known.plan.spec.again,
            as_listed=True,
            fingerprint=blake2b(orjson.dumps(["retry", run_id, words]), digest_size=16).hexdigest(),
            named=False,
        )
        return await self.create(request, owner, key)

    async def all(self, tenant: str | None) -> Sequence[KnownRun]:
        """The latest runs of a tenant that this version can read, the newest first; their marks are left out."""
        found = (KnownRun.readable(one) for one in await self._store.runs())
        return [one for one in found if one is not None and _is_of(tenant, one)]

    async def get(self, tenant: str | None, run_id: str) -> KnownRun:
        """The run; RunNotFoundError."""
        validate_run_id(run_id)
        known = await self._read(run_id)
        if not _is_of(tenant, known):
            raise RunNotFoundError(f"there is no fleet run {run_id}")
        return known

    async def targets(
        self,
        known: KnownRun,
        mark: TargetMark | None,
        after: int,
        limit: int,
        may_know: Callable[[str, str, str], bool],
    ) -> tuple[list[TargetRow], int | None]:
        """A page of targets behind an index, and the index that it ended at, where there may be more."""
        listed, method = TargetList(self._store, known.record.run_id), known.plan.command.method
        found: dict[int, Sequence[str]] = {}
        is_last = True
        for index in range(after + 1, len(known.run.marks)):
            if index % TOGETHER == 0:
                await asyncio.sleep(0)
            if mark not in (None, known.run.marks[index]):
                continue
            device, profile, *_ = await listed.at(index)
            if may_know(device, profile, method):
                if len(found) == limit:
                    is_last = False
                    break
                found[index] = (device, profile)
        results = await self._store.results(known.record.run_id, [*found])
        rows = [_row(known, *one, result) for one, result in zip(found.items(), results, strict=True)]
        return rows, None if is_last else max(found)

    async def all_targets(
        self, known: KnownRun, mark: TargetMark | None, may_know: Callable[[str, str, str], bool]
    ) -> list[TargetRow]:
        """Every target that the caller may read, as they stand in this version of the run."""
        rows: list[TargetRow] = []
        after: int | None = -1
        while after is not None:
            page, after = await self.targets(known, mark, after, TOGETHER, may_know)
            rows += page
            await asyncio.sleep(0)
        return rows

    async def change(self, tenant: str | None, run_id: str, change: Callable[[FleetRun, int], None]) -> KnownRun:
        """Let somebody change the state of a run; RunStateError where it does not allow this."""
        for _ in range(TRIES):
            known, now = await self.get(tenant, run_id), await self._commands.date()
            change(known.run, now)
            wanted = RunChange(
                version=known.record.version,
                status=known.run.kept(),
                marks=bytes(known.run.marks),
                ended=known.run.state.final,
            )
            if await self._store.write(run_id, wanted) is Written.YES:
                return await self.get(tenant, run_id)
        raise RunStateError(f"fleet run {run_id} changes too fast to be changed; try again")

    async def approves(self, owner: RunOwner, run_id: str) -> int | None:
        """Return the wave behind which the caller, as a second person, approves the next one; AccessError.

        None where the run waits for nobody. What it is about never changes, so its id stands for exactly this.
        """
        known = await self.get(owner.tenant, run_id)
        if not known.run.awaits_approval:
            return None
        targets, method = await self._store.targets(run_id), known.plan.command.method
        await self._selection.check_second(owner.caller, known.plan.caller, targets, method)
        return known.run.status.wave

    async def _read(self, run_id: str) -> KnownRun:
        record = await self._store.read(run_id)
        if record is None:
            raise RunNotFoundError(f"there is no fleet run {run_id}")
        return KnownRun.of(record)


def _is_of(tenant: str | None, known: KnownRun) -> bool:
    """True if a caller of the tenant knows of the run: of all, whoever operates Homing, and where nobody is asked."""
    return not tenant or tenant == known.plan.tenant


def _row(known: KnownRun, index: int, target: Sequence[str], result: Sequence[Any] | None) -> TargetRow:
    """The target as this version of the run has it: it may have ended since, and its result is of a later one then."""
    device, profile, *_ = target
    mark = TargetMark(known.run.marks[index])
    if not mark.ended:
        result = None
    has_command = mark not in (TargetMark.WAITING, TargetMark.SKIPPED, TargetMark.UNREACHABLE) or (
        mark is TargetMark.UNREACHABLE and result is not None and result[1] == "hold_expired"
    )
    identity = known.child(index, device) if has_command else None
    return TargetRow(index, device, profile, known.run.wave_of(index), mark, identity, result or ())


def _frozen(target: TargetCandidate, spec: RunSpec) -> list[str]:
    """The id, the profile, and the value of each label of which few may be in flight."""
    return [target.device_id, target.profile, *(target.labels.get(one.label, "") for one in spec.per)]


def _longest(spec: RunSpec, command: FleetCommand, now: int) -> timedelta:
    """Return how long it is to the latest possible end of a run: that of a command which the last moment brings."""
    return timedelta(microseconds=spec.until - now) + spec.hold + command.timeout


def _other(run_id: str) -> RunMismatchError:
    return RunMismatchError(f"the idempotency key belongs to {run_id}, which is a different run")
