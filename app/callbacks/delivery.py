"""Brings outcomes to parked callers: from wake-ups, and from the store when a wake-up was lost."""

from __future__ import annotations

import asyncio
from itertools import islice

import structlog

from app.callbacks.registry import Registry
from app.core.clock import Clock
from app.core.command import CommandState
from app.core.errors import CapacityError, UnavailableError
from app.core.routing import Outcome
from app.observability import Counters
from app.store.base import StateStore

BATCH = 500
MARKS_PER_ROUND = 2000


class Delivery:
    """A wake-up is a hint, the store is the truth (F20)."""

    def __init__(
        self, *, store: StateStore, registry: Registry, clock: Clock, interval: float, counters: Counters
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._interval = interval
        self._counters = counters
        self._now = asyncio.Event()
        self._fetches: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    def wake(self, command_id: str, outcome: Outcome | None) -> None:
        """Handle a wake-up; one without an outcome is about a large one, which is read from the store."""
        if outcome is not None:
            if self._registry.complete(outcome):
                self._counters["wakeup.delivered"] += 1
            return
        task = asyncio.get_running_loop().create_task(self._fetch([command_id], "wakeup.fetched"))
        self._fetches.add(task)
        task.add_done_callback(self._fetches.discard)

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
            parked = self._registry.parked_before(now if everything else now - self._interval)
            for start in range(0, len(parked), BATCH):
                await self._fetch(parked[start : start + BATCH], "sweep.delivered")
            await self._mark(now - self._interval)

    async def _fetch(self, command_ids: list[str], counter: str) -> None:
        try:
            outcomes = await self._store.outcomes(command_ids)
        except (UnavailableError, CapacityError) as failure:
            self._log.debug("outcomes_not_read", reason=str(failure))
            return
        for outcome in outcomes:
            if outcome is not None and self._registry.complete(outcome):
                self._counters[counter] += 1

    async def _mark(self, opened_before: float) -> None:
        """Record what the broker has acknowledged, for readers on other nodes.

        Only of commands that take longer than an interval: the others cost two round trips and no third.
        """
        marks = islice(self._registry.long_acknowledged(opened_before), MARKS_PER_ROUND)
        try:
            await asyncio.gather(*(self._store.mark(command_id, CommandState.ACKNOWLEDGED) for command_id in marks))
        except (UnavailableError, CapacityError) as failure:
            self._log.debug("commands_not_marked", reason=str(failure))
