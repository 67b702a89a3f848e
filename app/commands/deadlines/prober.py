"""Looks at what devices say of their state, for commands whose deadline is near and that nobody has answered."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from app.callbacks.open_commands import OpenCommands
from app.callbacks.pending import Pending
from app.commands.send.admission import READ_BUDGET, LastEvent
from app.core.clock import Clock, wall_us
from app.core.errors import (
    CommandNotFoundError,
    EventLogError,
    IllegalTransitionError,
    UnavailableError,
    UnreadableRecordError,
)
from app.core.profiles.probes import Probe, ProbeFinding, ToldState, Unsettled, judge_state
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.templates import facts_of
from app.runtime.listeners import Listeners
from app.runtime.telemetry import Counters
from app.store.commands import CommandStore

LOOKS: Final = 8
"""A probe looks so often at most, evenly over its time, as a device may tell its state in parts."""
BATCH: Final = 50
"""Commands that are looked at together, so that the event log has room for others."""


class _Look(NamedTuple):
    at: float
    command_id: str
    kept_at: float
    every: float
    left: int


class Prober:
    """Keeps the instants at which probes look, on the monotonic clock. It looks until something settles the command.

    `kept` tells of each command whose deadline this node keeps, and how far away that is.
    """

    def __init__(
        self,
        *,
        store: CommandStore,
        open_commands: OpenCommands,
        profiles: Mapping[str, DeviceProfile],
        last_event: LastEvent,
        kept: Listeners[str, timedelta],
        clock: Clock,
        node_id: str,
        counters: Counters,
    ) -> None:
        self._store = store
        self._open_commands = open_commands
        self._profiles = {name: one for name, one in profiles.items() if one.probes}
        self._last_event = last_event
        self._clock = clock
        self._node_id = node_id
        self._counters = counters
        self._looks: list[_Look] = []
        self._changed = asyncio.Event()
        self._log = structlog.get_logger()
        if self._profiles:
            kept.add(self.keep)

    def keep(self, command_id: str, timeout: timedelta) -> None:
        """Look at the state of its device before a timeout that begins now, if its profile has a probe for it."""
        pending = self._open_commands.get(command_id)
        if pending is None or not pending.registered or (probe := self._probe_of(pending)) is None:
            return
        now = self._clock.monotonic()
        within = min(timeout, probe.within).total_seconds()
        every = within / LOOKS
        # The first look waits a little as well, so that a probe that begins at once finds something to look at, and
        # the last one leaves room to record what it finds.
        first = now + timeout.total_seconds() - within + every / 2
        self._push(_Look(first, command_id, now, every, LOOKS))

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

    async def _look(self, look: _Look, pending: Pending, probe: Probe) -> None:
        found = await self._found(look.command_id, pending, probe)
        if isinstance(found, ProbeFinding) and await self._settled(look.command_id, found):
            return
        if look.left > 1:
            self._push(look._replace(at=look.at + look.every, left=look.left - 1))
        elif not isinstance(found, ProbeFinding) and look.command_id in self._open_commands:
            self._counters[f"probe.{found}"] += 1

    async def _found(self, command_id: str, pending: Pending, probe: Probe) -> ProbeFinding | Unsettled:
        """Return what the state of the device says about the command at this moment."""
        reach = pending.reach(tells=False)
        if not reach.acknowledged or reach.acknowledged_at is None or reach.subscribed is False:
            return Unsettled.NO_PUBACK
        try:
            async with asyncio.timeout(READ_BUDGET.total_seconds()):
                topic = self._profiles[pending.profile].topic_for(probe.topic, pending.device_id)
                event = await self._last_event(probe.database, topic)
                command = await self._store.read(command_id)
        except (TimeoutError, EventLogError, UnavailableError):
            return Unsettled.BLIND
        except (CommandNotFoundError, UnreadableRecordError):
            return Unsettled.UNKNOWN
        told = None if event is None else ToldState(event.entry.value, event.position)
        return judge_state(probe, topic, told, reach.acknowledged_at, wall_us(self._clock), facts_of(command))

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

    def _probe_of(self, pending: Pending) -> Probe | None:
        profile = self._profiles.get(pending.profile)
        return None if profile is None or pending.one_way else profile.probe_of(pending.method)

    def _push(self, look: _Look) -> None:
        earliest = not self._looks or look.at < self._looks[0].at
        heapq.heappush(self._looks, look)
        if earliest:
            self._changed.set()
        if len(self._looks) > 2 * len(self._open_commands) + 1000:
            self._compact()

    def _compact(self) -> None:
        """Let go of looks at closed commands, so that long timeouts do not pile up."""
        self._looks = [one for one in self._looks if self._concerned(one) is not None]
        heapq.heapify(self._looks)

    def _concerned(self, look: _Look) -> Pending | None:
        """Return the command that is looked at; None when it has ended, or was claimed again since."""
        pending = self._open_commands.get(look.command_id)
        return pending if pending is not None and pending.opened_at <= look.kept_at else None

    def _pop_due(self) -> list[tuple[_Look, Pending, Probe]]:
        now = self._clock.monotonic()
        due: list[tuple[_Look, Pending, Probe]] = []
        while self._looks and self._looks[0].at <= now and len(due) < BATCH:
            look = heapq.heappop(self._looks)
            pending = self._concerned(look)
            if pending is not None and (probe := self._probe_of(pending)) is not None:
                due.append((look, pending, probe))
        return due
