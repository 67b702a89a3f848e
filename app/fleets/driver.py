"""Drives one run, in rounds: learns what has ended, hands out what may be, and registers its commands.

A target is marked as handed before its command is registered, under an id that follows from the run. So whoever drives
the run next registers the same command again, and the store answers with the first: nobody makes a second one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol

import structlog

from app.access.origin import ASKING, RequestOrigin
from app.access.ports import Access
from app.commands.send.invoker import Invocation
from app.commands.send.registrar import CommandRequest
from app.core.access.callers import Caller
from app.core.access.rules import Action
from app.core.clock import Clock
from app.core.commands.routing import Outcome
from app.core.errors import (
    AccessError,
    CapacityError,
    CommandError,
    InvalidInputError,
    NeedsSecondPersonError,
    NotYetError,
    UnavailableError,
)
from app.core.fleets.fields import SHORTEST
from app.core.fleets.hand_rate import HandAllowance
from app.core.fleets.marks import TargetMark
from app.core.fleets.quorum import LabelKinds, LabelRoom
from app.core.fleets.run import RunState
from app.fleets.counters import STOPPING
from app.fleets.plan import KnownRun
from app.fleets.replaced import CommandCanceller, ReplacedCommands
from app.fleets.target_note import MOST_SAID, mark_of_outcome, note_of
from app.fleets.turns import LOOKS, TargetTurns
from app.runtime.telemetry import Counters
from app.store.commands import CommandReader
from app.store.fleets import FleetStore, RunChange, Written
from app.store.rules import micros

LEASE: Final = timedelta(seconds=5)
RENEW_SECONDS: Final = 1.0
BUSY_SECONDS: Final = 0.25
"""The time between two rounds while commands are in flight."""
IDLE_SECONDS: Final = 1.0
TOGETHER: Final = 500
"""The number of commands that are read in one call."""
AT_A_TIME: Final = 16
"""The number of commands that are registered at the same time: other callers wait behind few of them."""
FULL_SECONDS: Final = 2.0
MOST_FULL_SECONDS: Final = 60.0
"""A command for which there was no room is tried again after the first of these, then twice as long, up to the last."""
SEEN_US: Final = 10_000_000
"""It is noted so often that somebody drives the run."""
ABANDONED_SECONDS: Final = 10.0
"""After so long no driver before this one registers a command any more: all know that the run is over."""
WITHDRAW_SECONDS: Final = 10.0
"""The time between two looks for commands of an aborted run that are held again, as nobody got them."""
NOT_ALLOWED: Final = "not_allowed_any_more"
_AWAY: Final = "it was away until its hold was over"
_ABORTED: Final = TargetMark.CANCELLED, "run_aborted", "the run was aborted; it was not sent"
_OVER: Final = TargetMark.SKIPPED, "run_over", "there was no room for its command until the time of the run was over"


class ChildHolder(Protocol):
    """The part that registers commands which wait for their device; see CommandHolder."""

    async def invoke(self, request: CommandRequest, caller: Caller | None, *, park: bool) -> Invocation:
        """Register one. Repeating it with the same command id changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPorts:
    """The parts of a node that drivers work with. `online` says whether a device is there, None where nobody knows."""

    store: FleetStore
    commands: CommandReader
    children: ChildHolder
    cancel: CommandCanceller
    replaced: ReplacedCommands
    online: Callable[[str], Awaitable[bool | None]]
    access: Access
    retention: timedelta
    clock: Clock
    counters: Counters


class RunDriver:
    """The driver of one run, while `holder` has the lease with this epoch."""

    def __init__(self, run_id: str, epoch: int, holder: str, ports: DriverPorts) -> None:
        self._run_id = run_id
        self._epoch = epoch
        self._holder = holder
        self._node_id = holder.partition(" ")[0]
        self._ports = ports
        self._store = ports.store
        self._commands = ports.commands
        self._retention_us = micros(ports.retention)
        self._monotonic = ports.clock.monotonic
        self._leased_at = self._monotonic()
        self._targets: Sequence[Sequence[str]] = ()
        self._kinds = LabelKinds(())
        self._registered: set[int] = set()
        """The targets whose command this driver has registered, or took for open once the run was over."""
        self._turns = TargetTurns(ports.clock)
        self._withdrawn: set[int] = set()
        """The targets whose commands were cancelled as far as nobody had sent them, since the last look at all."""
        self._withdrew_at = self._monotonic()
        self._cancelled: set[int] = set()
        self._replaced: set[int] = set()
        """The targets whose commands were cancelled as far as they were not spared."""
        self._refused: dict[int, str] = {}
        """The reasons why commands can never be registered, by target."""
        self._missing: dict[int, float] = {}
        """The instant since which it is known that a target has no command and will have none, as the run is over."""
        self._full: dict[int, tuple[float, float]] = {}
        """The instant at which a command without room is tried again, and how long that is after the last time."""
        self._results: dict[int, Sequence[Any]] = {}
        self._allowance = HandAllowance(ports.clock)
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Drive it until it has ended, or somebody else does; NotYetError where this node cannot read it."""
        while True:
            try:
                delay = await self.round()
            except NotYetError:
                raise
            except (UnavailableError, CapacityError) as failure:
                self._log.debug("fleet_round_failed", run_id=self._run_id, reason=str(failure))
                delay = IDLE_SECONDS
            if delay is None:
                return
            await asyncio.sleep(delay)

    async def round(self) -> float | None:
        """Do what is due; the seconds to the next round, None where there is none."""
        if not await self._holds_lease():
            return None
        record = await self._store.read(self._run_id)
        if record is None:  # and so it is not among the open ones any more, which nobody has seen end
            await self._store.write(self._run_id, RunChange(version=0, status={}, marks=b"", epoch=self._epoch))
            return None
        known, now = KnownRun.of(record), await self._commands.date()
        self._results = {}
        if not self._targets:
            self._targets = await self._store.targets(self._run_id)
            self._kinds = LabelKinds(labels for _, _, *labels in self._targets)
        if known.run.state.final:  # whoever ended it died before it was off the list
            await self._store.write(self._run_id, self._change(known, now))
            return None
        unregistered = await self._learn(known, now)
        known.run.advance(now)
        handed = await self._hand(known, now)
        known.run.advance(now)
        match await self._write(known, now):
            case Written.OTHERWISE:
                return 0
            case Written.FENCED | Written.GONE:
                return None
        self._count(known)
        if known.run.state.final:
            self._log.info("fleet_run_ended", run_id=self._run_id, state=str(known.run.state), **known.run.counts())
            return None
        await self._register(known, [*unregistered, *handed], now)
        await self._cancel_open(known)
        if 2 * len(handed) >= LOOKS and known.run.room:
            return 0  # more of them have their turn, and most are there
        return BUSY_SECONDS if known.run.count(TargetMark.HANDED) else IDLE_SECONDS

    async def _holds_lease(self) -> bool:
        now = self._monotonic()
        if now - self._leased_at < RENEW_SECONDS:
            return True
        if await self._store.drive(self._run_id, self._holder, LEASE) != self._epoch:
            self._log.info("fleet_lease_lost", run_id=self._run_id)
            return False
        self._leased_at = now
        return True

    def _is_late(self) -> bool:
        """True if the lease may end before what is begun now is done."""
        return self._monotonic() - self._leased_at > LEASE.total_seconds() / 2

    async def _learn(self, known: KnownRun, now: int) -> list[int]:
        """Note how targets have ended; return those whose command is to be registered, or registered again."""
        unregistered, is_over = [], _is_over(known, now)
        handed = known.run.marked(TargetMark.HANDED)
        for start in range(0, len(handed), TOGETHER):
            some = handed[start : start + TOGETHER]
            ids = [known.child(index, self._targets[index][0]) for index in some]
            for index, outcome in zip(some, await self._commands.outcomes(ids), strict=True):
                if outcome is None:
                    if is_over:
                        self._registered.add(index)
                    elif index not in self._registered:
                        # A driver that died may have told nobody that it waits: so it is tried at once.
                        unregistered.append(index)
                elif self._is_new(known, index, outcome, now):
                    if not self._is_given_up(known, index, now):
                        unregistered.append(index)
                elif known.run.end_target(index, mark_of_outcome(outcome), now):
                    self._results[index] = note_of(outcome)
        return [index for index in unregistered if self._full.get(index, (0.0, 0.0))[0] <= self._monotonic()]

    def _is_new(self, known: KnownRun, index: int, outcome: Outcome, now: int) -> bool:
        """Return whether there never was a command for a target that was handed.

        Only while a driver has looked at everything so lately that a record could not have ended since.
        """
        return (
            mark_of_outcome(outcome) is TargetMark.UNKNOWN
            and index not in self._registered
            and now - known.run.status.driven_at < self._retention_us // 2
        )

    def _is_given_up(self, known: KnownRun, index: int, now: int) -> bool:
        """End a target whose command was refused, or is not registered any more as the run is over."""
        if (refusal := self._refused.get(index)) is not None:
            self._end(known, index, TargetMark.UNSENT, now, "invalid", refusal)
        elif _is_over(known, now) and self._is_abandoned(index):
            mark, code, said = _ABORTED if known.run.state is RunState.ABORTING else _OVER
            self._end(known, index, mark, now, code, said)
        else:
            return False
        return True

    def _is_abandoned(self, index: int) -> bool:
        """Return whether no driver before this one registers the command of a target any more."""
        now = self._monotonic()
        return now - self._missing.setdefault(index, now) > ABANDONED_SECONDS

    def _end(self, known: KnownRun, index: int, mark: TargetMark, now: int, code: object, said: str) -> None:
        if known.run.end_target(index, mark, now):
            self._results[index] = [now, code, said[:MOST_SAID]]

    async def _hand(self, known: KnownRun, now: int) -> list[int]:
        """Mark the targets whose turn it is, up to what may be in flight; those that are away wait or are given up."""
        chosen: list[int] = []
        labels, allowance = self._room_of_labels(known), self._allowance
        due = self._turns.due(known.run, labels)
        room = known.run.room if known.plan.spec.rate is None else allowance.room(known.plan.spec.rate, known.run.room)
        while due and len(chosen) < room and known.run.state is RunState.RUNNING and not self._is_late():
            size = min(AT_A_TIME, room - len(chosen))
            some, due = due[:size], due[size:]
            there = await asyncio.gather(*(self._ports.online(self._targets[index][0]) for index in some))
            try:
                async for index in self._allowed(known, dict(zip(some, there, strict=True)), labels, now):
                    chosen.append(index)  # noqa: PERF401 - those before an error count
            except (UnavailableError, CapacityError):  # the rules are too old, or allow no more in this moment
                break
        if known.run.state is not RunState.RUNNING:
            return []
        known.run.hand(chosen)
        allowance.spend(len(chosen))
        return chosen

    def _room_of_labels(self, known: KnownRun) -> LabelRoom:
        budgets = known.plan.spec.per
        return LabelRoom(budgets, self._kinds, known.run.marked(TargetMark.HANDED) if budgets else ())

    async def _allowed(
        self, known: KnownRun, there: Mapping[int, bool | None], labels: LabelRoom, now: int
    ) -> AsyncIterator[int]:
        """Yield those that are not known to be away, have room with their labels, and may be sent to by who asked."""
        for index, online in there.items():
            if online is False:
                if self._turns.is_away(index) >= known.plan.spec.hold.total_seconds():
                    self._end(known, index, TargetMark.UNREACHABLE, now, "device_offline", _AWAY)
                continue
            self._turns.is_there(index)
            if labels.has(index) and await self._may(known, index, now) and labels.takes(index):
                yield index

    async def _may(self, known: KnownRun, index: int, now: int) -> bool:
        """Spend the limits of who asked for the run; who may not send it any more sees the target cancelled."""
        device, profile, *_ = self._targets[index]
        access, about = self._ports.access, (Action.SEND, device, profile, known.plan.command.method)
        try:
            access.spend(known.plan.caller, *about)
        except AccessError:
            try:
                await access.renew()
                access.spend(known.plan.caller, *about)
            except AccessError as error:
                self._end(known, index, TargetMark.CANCELLED, now, NOT_ALLOWED, str(error))
                return False
            except UnavailableError:  # its turn comes again, as another node may have given the right since
                return False
        return True

    def _count(self, known: KnownRun) -> None:
        """Count if the run has stopped by itself in this round."""
        before = known.record.status["steps"]
        for step in known.run.kept()["steps"]:
            _, state, why, *_ = step
            if step not in before and state in (RunState.PAUSED, RunState.ABORTING) and why in STOPPING:
                self._ports.counters[f"fleet.stopped.{why}"] += 1

    async def _write(self, known: KnownRun, now: int) -> Written:
        """Write what has changed."""
        status = known.run.status
        # A clock that was set back: what was noted before it would count as lately for as long as that.
        seen = known.run.count(TargetMark.HANDED) and not 0 <= now - status.driven_at <= SEEN_US
        changed = known.run.kept() != known.record.status or known.run.marks != known.record.marks
        if not (changed or seen or status.driver != self._node_id):
            return Written.YES
        return await self._store.write(self._run_id, self._change(known, now))

    def _change(self, known: KnownRun, now: int) -> RunChange:
        known.run.status.driven_at, known.run.status.driver = now, self._node_id
        return RunChange(
            version=known.record.version,
            status=known.run.kept(),
            marks=bytes(known.run.marks),
            results=self._results,
            epoch=self._epoch,
            ended=known.run.state.final,
        )

    async def _register(self, known: KnownRun, indexes: Sequence[int], now: int) -> None:
        """Register the commands of targets that are marked as handed; what does not succeed comes again."""
        if _is_over(known, now) or not indexes:
            return
        ASKING.set(RequestOrigin(known.plan.caller, None, self._run_id.encode()))  # who the audit names
        for start in range(0, len(indexes), AT_A_TIME):
            if self._is_late():
                return  # another node may have registered them, and their records may have ended since
            hold = known.plan.spec.longest_hold(await self._commands.date()) if known.plan.spec.windows else None
            if hold is not None and hold < SHORTEST:
                return  # when the next window opens
            some = indexes[start : start + AT_A_TIME]
            await asyncio.gather(*(self._register_one(known, index, hold or known.plan.spec.hold) for index in some))

    async def _register_one(self, known: KnownRun, index: int, hold: timedelta) -> None:
        device, profile, *_ = self._targets[index]
        request = known.plan.command.request(device, profile, hold, known.child(index, device), self._run_id)
        try:
            await self._ports.children.invoke(request, known.plan.caller, park=False)
        except (InvalidInputError, NeedsSecondPersonError) as refusal:
            self._refused[index] = str(refusal)
        except (UnavailableError, CapacityError) as failure:
            if isinstance(failure, CapacityError):
                pause = min(MOST_FULL_SECONDS, max(FULL_SECONDS, 2 * self._full.get(index, (0.0, 0.0))[1]))
                self._full[index] = self._monotonic() + pause, pause
            self._ports.counters["fleet.again"] += 1
            self._log.debug("fleet_command_not_registered", device_id=device, run_id=self._run_id, reason=str(failure))
        else:
            self._registered.add(index)
            self._full.pop(index, None)
            self._ports.counters["fleet.commands"] += 1

    async def _cancel_open(self, known: KnownRun) -> None:
        """Cancel what nobody has sent yet of a run that was aborted, and all that is open where it was aborted so."""
        status, ports = known.run.status, self._ports
        if known.run.state is not RunState.ABORTING:
            return
        cancel: Callable[[str], Awaitable[object]]
        if not status.cancels:
            self._look_again_at_withdrawn()
            cancel, done = partial(ports.cancel, only_held=True), self._withdrawn
        elif status.spares:
            cancel, done = ports.replaced.end, self._replaced
        else:
            cancel, done = ports.cancel, self._cancelled
        handed = known.run.marked(TargetMark.HANDED)
        due = [index for index in handed if index in self._registered and index not in done]
        for start in range(0, len(due), AT_A_TIME):
            if self._is_late():
                return
            some = due[start : start + AT_A_TIME]
            await asyncio.gather(*(self._cancel(known.child(one, self._targets[one][0]), cancel) for one in some))
            done.update(some)

    def _look_again_at_withdrawn(self) -> None:
        now = self._monotonic()
        if now - self._withdrew_at >= WITHDRAW_SECONDS:
            self._withdrew_at = now
            self._withdrawn.clear()

    async def _cancel(self, command_id: str, cancel: Callable[[str], Awaitable[object]]) -> None:
        try:
            await cancel(command_id)
        except CommandError as failure:  # it was sent, or nobody here can end it, and the others are to end
            self._log.debug("fleet_command_not_cancelled", command_id=command_id, reason=str(failure))


def _is_over(known: KnownRun, now: int) -> bool:
    """Return whether no command of a run is registered any more."""
    return known.run.state is RunState.ABORTING or now >= known.plan.spec.until
