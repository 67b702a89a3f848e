"""Brings outcomes to parked callers: from wake-ups, and from the store when a wake-up was lost.

Whoever may publish in Redis can publish a wake-up. One with the token of its command is believed; any other is a hint,
for which the store is read: so are those of 0.1.0, and those of large outcomes. Hints have a budget, so that a flood of
them is no flood of reads; what is over it is found by the resync.
"""

from __future__ import annotations

import asyncio
from itertools import islice

import structlog

from app.callbacks.observer import Observers, Way
from app.callbacks.open_commands import OpenCommands
from app.callbacks.waiters import Waiters
from app.core.clock import Clock
from app.core.cluster.wakekey import WakeKey
from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome
from app.core.errors import CapacityError, UnavailableError
from app.store.commands import CommandStore

BATCH = 500
MARKS_PER_ROUND = 2000
HINTS_PER_SECOND = 2000
"""More than a node has answers; as many may come at once."""


class Waker:
    """A wake-up is a hint, as Redis Pub/Sub loses what nobody hears; the store is the truth."""

    def __init__(
        self,
        *,
        store: CommandStore,
        open_commands: OpenCommands,
        waiters: Waiters,
        clock: Clock,
        interval: float,
        wake_key: WakeKey,
        observers: Observers,
    ) -> None:
        self._wake_key = wake_key
        self._observers = observers
        self._hints: set[str] = set()
        self._budget = float(HINTS_PER_SECOND)
        self._budget_at = clock.monotonic()
        self._store = store
        self._open_commands = open_commands
        self._waiters = waiters
        self._clock = clock
        self._interval = interval
        self._now = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._log = structlog.get_logger()

    def wake(self, command_id: str, outcome: Outcome | None) -> None:
        """Handle a wake-up; one without an outcome is about a large one, which is read from the store."""
        if outcome is not None and outcome.token:
            if self._wake_key.made(outcome.token, command_id):
                if self._open_commands.complete(outcome):
                    for tell in self._observers.brought:
                        tell(outcome, Way.INLINE)
                return
            self._drop("forged_wake_up", command_id)
        self._hint(command_id)

    def _hint(self, command_id: str) -> None:
        """Read the outcome of a command soon, if anybody here waits for it."""
        if not self._concerns_us(command_id) or command_id in self._hints:
            return
        now = self._clock.monotonic()
        self._budget = min(HINTS_PER_SECOND, self._budget + (now - self._budget_at) * HINTS_PER_SECOND)
        self._budget_at = now
        if self._budget < 1:
            self._drop("hint_over_budget", command_id)
            return
        self._budget -= 1
        self._hints.add(command_id)
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_hints())

    async def _read_hints(self) -> None:
        """One read at a time, of all that was hinted at meanwhile."""
        try:
            while self._hints:
                hinted = [self._hints.pop() for _ in range(min(BATCH, len(self._hints)))]
                await self._fetch(hinted, Way.FETCHED)
        finally:
            self._reading = None

    def resync(self) -> None:
        """Read all parked commands at once: wake-ups may have been lost until now."""
        self._now.set()

    async def run(self) -> None:
        """Once per interval, read the outcomes of commands whose callers have waited for that long."""
        while True:
            everything = False
            try:
                async with asyncio.timeout(self._interval):
                    await self._now.wait()
                everything = True
                self._now.clear()
            except TimeoutError:
                pass
            now = self._clock.monotonic()
            parked = self._parked_before(now if everything else now - self._interval)
            for start in range(0, len(parked), BATCH):
                await self._fetch(parked[start : start + BATCH], Way.RESYNC)
            await self._mark(now - self._interval)

    async def _fetch(self, command_ids: list[str], way: Way) -> None:
        try:
            outcomes = await self._store.outcomes(command_ids)
        except (UnavailableError, CapacityError) as failure:
            self._log.debug("outcomes_not_read", reason=str(failure))
            return
        for outcome in outcomes:
            if outcome is not None and self._open_commands.complete(outcome):
                for tell in self._observers.brought:
                    tell(outcome, way)

    async def _mark(self, opened_before: float) -> None:
        """Record what the broker has acknowledged, for readers on other nodes.

        Only of commands that take longer than an interval: the others cost two round trips and no third.
        """
        marks = islice(self._open_commands.long_acknowledged(opened_before), MARKS_PER_ROUND)
        try:
            await asyncio.gather(*(self._store.mark(command_id, CommandState.ACKNOWLEDGED) for command_id in marks))
        except (UnavailableError, CapacityError) as failure:
            self._log.debug("commands_not_marked", reason=str(failure))

    def _concerns_us(self, command_id: str) -> bool:
        """True if its outcome is news here: an open command of this node, or one that a caller waits for."""
        known = command_id in self._open_commands or command_id in self._waiters
        return known and self._open_commands.on_record(command_id)

    def _parked_before(self, instant: float) -> list[str]:
        """Return what a lost wake-up may concern: commands with a caller parked since before `instant`."""
        return [one for one in self._waiters.parked_before(instant) if self._open_commands.on_record(one)]

    def _drop(self, reason: str, command_id: str) -> None:
        for tell in self._observers.dropped:
            tell(reason, command_id=command_id)
