"""Keeps the log within its bounds: ends generations, drops those that are too old, and says when it is full."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Literal

import structlog

from app.core.clock import Clock
from app.core.errors import HomingError, QuotaError
from app.core.eventlog.generation import Generation, GenerationState, is_full, over
from app.core.eventlog.plan import Kept
from app.observability import Counters
from app.store.eventlog import Generations

ROUND_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class Keeper:
    """`admit` is asked before anything is written: the quota is soft, by what comes within a round."""

    def __init__(
        self,
        generations: Generations,
        kept: Sequence[Kept],
        *,
        generation_bytes: int,
        quota_bytes: int,
        discard: Literal["new", "old"],
        clock: Clock,
        counters: Counters,
        hourly: bool = False,
    ) -> None:
        self._generations = generations
        self._kept = kept
        self._generation_bytes = generation_bytes
        self._quota_bytes = quota_bytes
        self._discard = discard
        self._clock = clock
        self._counters = counters
        self._hourly = hourly
        """Whether generations end with the hour, as files of the cold tier do."""
        self.size = 0
        """Bytes of all databases, as quotas count them; what is in the cold tier does not count."""
        self.full = False
        """Whether nothing is taken any more."""

    def admit(self) -> None:
        """QuotaError while the events take as much room as they may."""
        if self.full:
            raise QuotaError(
                f"the events take {self.size} bytes, and HOMING_EVENTS_QUOTA_BYTES allows {self._quota_bytes}; "
                "reading goes on"
            )

    async def run(self) -> None:
        """Look after it until cancelled."""
        while True:
            try:
                await self.look()
            except HomingError as error:
                _log.debug("events_not_kept", reason=str(error))
            await asyncio.sleep(ROUND_SECONDS)

    async def look(self) -> None:
        """One round."""
        now = round(self._clock.wall() * 1_000_000)
        there: dict[str, Sequence[Generation]] = {}
        for one in self._kept:
            found = await self._generations.generations(one.name)
            # First what makes room: where there is none at all, a new generation cannot begin.
            for number in over(found, now, one.retention_us):
                await self._drop(one.name, number, "retention")
            if is_full(found[-1], now, one.retention_us, self._generation_bytes, hourly=self._hourly):
                await self._generations.rotate(one.name, found[-1].number)
            there[one.name] = await self._generations.generations(one.name)
        await self._keep_quota(there)

    async def _keep_quota(self, there: dict[str, Sequence[Generation]]) -> None:
        self.size = sum(one.hot_size for found in there.values() for one in found)
        if self.size > self._quota_bytes and self._discard == "old":
            filled = [(name, one) for name, found in there.items() for one in found if one.hot_size]
            if filled:
                name, one = min(filled, key=lambda each: each[1].last)
                if one.state is GenerationState.CURRENT:
                    await self._generations.rotate(name, one.number)
                await self._drop(name, one.number, "quota")
                self.size -= one.size
        was, self.full = self.full, self.size > self._quota_bytes and self._discard == "new"
        if self.full and not was:
            _log.error("events_full", size=self.size, quota=self._quota_bytes)

    async def _drop(self, database: str, number: int, why: str) -> None:
        await self._generations.drop(database, number)
        self._counters[f"events.dropped.{why}"] += 1
        _log.info("events_dropped", database=database, generation=number, reason=why)
