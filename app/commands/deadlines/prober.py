"""Looks at what devices say of their state, for commands whose deadline is near and that nobody has answered."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from app.callbacks.open_commands import OpenCommands
from app.commands.deadlines.looker import StateLooker
from app.commands.deadlines.questions import DeviceQuestion, DeviceQuestions
from app.core.clock import Clock
from app.core.commands.command import Command, CommandState
from app.core.errors import CommandNotFoundError, IllegalTransitionError, UnavailableError, UnreadableRecordError
from app.core.profiles.probes import Probe, ProbeFinding, ProbeQuestion, Unsettled
from app.runtime.listeners import Listeners
from app.runtime.telemetry import Counters
from app.store.commands import CommandStore

LOOKS: Final = 8
"""A probe looks so often at most, evenly over its time, as a device may tell its state in parts."""
BATCH: Final = 50
"""Commands that are looked at together, so that the event log has room for others."""
MOST_TAKEN_OVER: Final = 20_000
"""Open commands of a dead node that are looked at: as many as a node has by default."""
_ASKED_ABOUT: Final = frozenset((Unsettled.UNTOLD, Unsettled.NOT_SO, Unsettled.UNKNOWN, Unsettled.ANOTHER))
"""The results of a look after which a device is asked: what it tells then may settle the command."""
_SEEN_BY_BROKER: Final = (CommandState.ACKNOWLEDGED, CommandState.RUNNING)


class _ProbedCommand(NamedTuple):
    """A command that is looked at, and since when the broker has it: in µs on the store's clock, None if unknown."""

    device_id: str
    profile: str
    method: str
    since: int | None
    since_here: float
    """The same on the monotonic clock."""

    def precedes(self, question: DeviceQuestion) -> bool:
        """True if the broker had the command when the question was put to the device."""
        return self.since is not None and question.came_after(self.since, self.since_here)


@dataclass(frozen=True, slots=True, order=True)
class _Look:
    at: float
    command_id: str
    kept_at: float = field(compare=False)
    every: float = field(compare=False)
    left: int = field(compare=False)
    taken_over: _ProbedCommand | None = field(default=None, compare=False)
    """The command of a node that died; None of those whose home is here."""
    question: DeviceQuestion | None = field(default=None, compare=False)
    """The first question that was put to the device since the broker has the command."""


class Prober:
    """Keeps the instants at which probes look, on the monotonic clock. It looks until something settles the command.

    `kept` tells of each command whose deadline this node keeps, and how far away that is.
    """

    def __init__(
        self,
        *,
        store: CommandStore,
        open_commands: OpenCommands,
        looker: StateLooker,
        questions: DeviceQuestions,
        kept: Listeners[str, timedelta],
        clock: Clock,
        node_id: str,
        counters: Counters,
    ) -> None:
        self._store = store
        self._open_commands = open_commands
        self._looker = looker
        self._questions = questions
        self._clock = clock
        self._node_id = node_id
        self._counters = counters
        self._looks: list[_Look] = []
        self._taken_over = 0
        """Looks at commands of other nodes."""
        self._changed = asyncio.Event()
        self._log = structlog.get_logger()
        if self._looker.profiles:
            kept.add(self.keep)

    def keep(self, command_id: str, timeout: timedelta) -> None:
        """Look at the state of its device before a timeout that begins now, if its profile has a probe for it.

        Of a command that an earlier start of this node has sent, `take_up` knows more.
        """
        pending = self._open_commands.get(command_id)
        if pending is None or pending.registered_at is None or pending.one_way:
            return
        if (probe := self._looker.probe_of(pending.profile, pending.method)) is not None:
            self._begin(command_id, probe, timeout, None)

    async def take_over(self, node_id: str) -> None:
        """Look for the commands of a node of which no incarnation lives; UnavailableError, and then it may be repeated.

        Where several survivors do so, one of them settles each command.
        """
        if self._looker.profiles:
            left = await self._store.pending_of(node_id, MOST_TAKEN_OVER)
            self.take_up(left, await self._store.now())

    def take_up(self, left: Sequence[Command], now_us: int) -> None:
        """Look for commands that another start has sent; `now_us` is later than they were read, on the store's clock.

        What the record does not call acknowledged may never have reached the broker, and is not settled.
        """
        now = self._clock.monotonic()
        for one in left:
            probe = None if one.one_way else self._looker.probe_of(one.profile, one.method)
            remaining = timedelta(microseconds=one.deadline - now_us)
            if probe is None or one.state is CommandState.HELD or remaining <= timedelta():
                continue
            if one.state in _SEEN_BY_BROKER:
                self._begin(
                    one.id, probe, remaining, _ProbedCommand(one.device_id, one.profile, one.method, now_us, now)
                )
            else:
                self._counters[f"probe.{Unsettled.NO_PUBACK}"] += 1

    def _begin(self, command_id: str, probe: Probe, timeout: timedelta, taken_over: _ProbedCommand | None) -> None:
        now = self._clock.monotonic()
        within = min(timeout, probe.within).total_seconds()
        every = within / LOOKS
        # The first look waits a little as well, so that a probe that begins at once finds something to look at, and
        # the last one leaves room to record what it finds. A device that is asked is asked with the first one.
        first = now + timeout.total_seconds() - within + (every / 2 if probe.ask is None else 0)
        self._push(_Look(first, command_id, now, every, LOOKS, taken_over))

    async def run(self) -> None:
        """Look at what is due, until cancelled."""
        while True:
            due = self._pop_due()
            if due:
                await asyncio.gather(*(self._look(*one) for one in due))
                continue
            self._changed.clear()
            delay = self._looks[0].at - self._clock.monotonic() if self._looks else None
            try:
                async with asyncio.timeout(delay):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _look(self, look: _Look, standing: _ProbedCommand, probe: Probe) -> None:
        found = await self._found(look, standing, probe)
        if found is None or (isinstance(found, ProbeFinding) and await self._settled(look.command_id, found)):
            return
        if look.left > 1:
            question = look.question
            if probe.ask is not None and found in _ASKED_ABOUT:
                question = self._asked(look, standing, probe.ask)
            self._push(replace(look, at=look.at + look.every, left=look.left - 1, question=question))
        elif not isinstance(found, ProbeFinding) and self._standing(look) is not None:
            self._counters[f"probe.{found}"] += 1

    async def _found(self, look: _Look, standing: _ProbedCommand, probe: Probe) -> ProbeFinding | Unsettled | None:
        """Return what the state of the device says about the command at this moment; None if that has ended."""
        if standing.since is None:
            return Unsettled.NO_PUBACK
        try:
            command = await self._store.read(look.command_id)
        except UnavailableError:
            return Unsettled.BLIND
        except (CommandNotFoundError, UnreadableRecordError):
            return Unsettled.UNKNOWN
        if command.state.final:
            return None
        return await self._looker.look(command, probe, standing.since, await self._answered_at(look, standing))

    async def _answered_at(self, look: _Look, standing: _ProbedCommand) -> int | None:
        """Return when the device answered a question that came after the command; None if it has answered none."""
        if look.question is None:
            return None
        await self._questions.hear(look.question)
        return look.question.answered_at if standing.precedes(look.question) else None

    def _asked(self, look: _Look, standing: _ProbedCommand, ask: ProbeQuestion) -> DeviceQuestion | None:
        """Ask the device again, and return the first question that it answers, or may: that one proves most."""
        left = timedelta(seconds=look.every * look.left)
        asked = self._questions.ask(standing.profile, standing.device_id, ask, left)
        before = look.question
        proves = before is not None and not before.in_vain and standing.precedes(before)
        return before if proves else asked

    async def _settled(self, command_id: str, finding: ProbeFinding) -> bool:
        """Record what was found, and return whether there is nothing left to do; false while the store is away."""
        try:
            finished = await self._store.confirm(command_id, finding, self._node_id)
        except UnavailableError as failure:
            self._log.debug("probe_not_recorded", command_id=command_id, reason=str(failure))
            return False
        except (CommandNotFoundError, UnreadableRecordError, IllegalTransitionError):
            return True  # it is too late, and its deadline ends it
        if finished.won:
            self._counters[f"probe.{finding.evidence}"] += 1
            self._open_commands.ended(finished.outcome)
        else:
            self._open_commands.complete(finished.outcome)
        return True

    def _push(self, look: _Look) -> None:
        earliest = not self._looks or look.at < self._looks[0].at
        heapq.heappush(self._looks, look)
        self._taken_over += look.taken_over is not None
        if earliest:
            self._changed.set()
        if len(self._looks) > 2 * len(self._open_commands) + self._taken_over + 1000:
            self._compact()

    def _compact(self) -> None:
        """Let go of looks at closed commands, so that long timeouts do not pile up."""
        self._looks = [one for one in self._looks if self._standing(one) is not None]
        heapq.heapify(self._looks)

    def _standing(self, look: _Look) -> _ProbedCommand | None:
        """Return the command that is looked at; None when it has ended, or was claimed again since."""
        if look.taken_over is not None:
            return look.taken_over
        pending = self._open_commands.get(look.command_id)
        if pending is None or pending.opened_at > look.kept_at:
            return None
        reach = pending.reach(tells=False)
        known = reach.acknowledged and reach.subscribed is not False and pending.acknowledged_at is not None
        since_here = pending.acknowledged_at or 0.0
        return _ProbedCommand(
            *(pending.device_id, pending.profile, pending.method),
            since=reach.acknowledged_at if known else None,
            since_here=since_here,
        )

    def _pop_due(self) -> list[tuple[_Look, _ProbedCommand, Probe]]:
        now = self._clock.monotonic()
        due: list[tuple[_Look, _ProbedCommand, Probe]] = []
        while self._looks and self._looks[0].at <= now and len(due) < BATCH:
            look = heapq.heappop(self._looks)
            self._taken_over -= look.taken_over is not None
            standing = self._standing(look)
            probe = None if standing is None else self._looker.probe_of(standing.profile, standing.method)
            if standing is not None and probe is not None:
                due.append((look, standing, probe))
        return due
