"""Keeps the log within its bounds: ends generations, drops those that are too old, and says when it is full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from app.core.clock import Clock, wall_us
from app.core.errors import HomingError
from app.core.events.generation import Generation, GenerationState, is_full, over
from app.core.events.plan import NamedDatabase
from app.core.events.quota import Discard, Quota, of_all
from app.runtime.telemetry import Counters
from app.store.events import Generations

ROUND_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


BeforeDrop = Callable[[str, Generation], Awaitable[None]]
"""Takes the database and the generation."""


class Keeper:
    """`admit` is asked before anything is written, and the log itself counts what comes within a round."""

    def __init__(
        self,
        generations: Generations,
        kept: Sequence[NamedDatabase],
        *,
        generation_bytes: int,
        quota_bytes: int,
        discard: Discard,
        clock: Clock,
        counters: Counters,
        hourly: bool = False,
        groups: Sequence[Quota] = (),
    ) -> None:
        """`groups` are bounded besides, each by itself."""
        self._generations = generations
        self._kept = kept
        self._generation_bytes = generation_bytes
        self._quotas = (of_all([one.name for one in kept], quota_bytes, discard), *groups)
        self._clock = clock
        self._counters = counters
        self._hourly = hourly
        """True if generations end with the hour, as files of the cold tier do."""
        self.dropping: Final[list[BeforeDrop]] = []
        """Called before a generation is dropped, while its events can be read."""
        self.size = 0
        """Bytes of all databases, as quotas count them; what is in the cold tier does not count."""
        self._full: Mapping[Quota, int] = {}
        """The quotas that are reached and refuse new events, with the bytes that their databases take."""

    def admit(self, database: str) -> None:
        """QuotaError while events take as much room as they may: of this database, or of all with which it shares."""
        for quota, taken in self._full.items():
            if database in quota.databases:
                raise quota.refusal(taken)

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
        now = wall_us(self._clock)
        there: dict[str, Sequence[Generation]] = {}
        for one in self._kept:
            found = await self._generations.generations(one.name)
            # First what makes room: where there is none at all, a new generation cannot begin.
            ended = set(over(found, now, one.retention_us))
            for generation in [each for each in found if each.number in ended]:
                await self._drop(one.name, generation, "retention")
            if found and is_full(found[-1], now, one.retention_us, self._generation_bytes, hourly=self._hourly):
                await self._generations.rotate(one.name, found[-1].number)
            there[one.name] = await self._generations.generations(one.name)
        await self._keep_quota(there)

    async def _keep_quota(self, there: dict[str, Sequence[Generation]]) -> None:
        sizes = {name: sum(one.hot_size for one in found) for name, found in there.items()}
        dropped: set[tuple[str, int]] = set()
        full: dict[Quota, int] = {}
        # Groups first: what they drop is room for all.
        for quota in reversed(self._quotas):
            taken = quota.taken(sizes)
            if taken < quota.most:
                continue
            if quota.discard == "new":
                full[quota] = taken
                if quota not in self._full:
                    _log.error("events_full", databases=sorted(quota.databases), size=taken, quota=quota.most)
            else:
                await self._drop_oldest(quota, there, sizes, dropped)
        self._full = full
        self.size = sum(sizes.values())
        for name in there:
            await self._generations.allow(name, self._room(name, sizes))

    def _room(self, database: str, sizes: Mapping[str, int]) -> int | None:
        """The bytes that a shard may take until the next round: all that is left, as nobody knows which needs it."""
        bounds = [one for one in self._quotas if one.discard == "new" and database in one.databases]
        return min((max(0, one.most - one.taken(sizes)) for one in bounds), default=None)

    async def _drop_oldest(
        self,
        quota: Quota,
        there: Mapping[str, Sequence[Generation]],
        sizes: dict[str, int],
        dropped: set[tuple[str, int]],
    ) -> None:
        """One generation in a round."""
        filled = [
            (name, one)
            for name, found in there.items()
            for one in found
            if name in quota.databases and one.hot_size and (name, one.number) not in dropped
        ]
        if filled:
            name, one = min(filled, key=lambda each: each[1].last)
            if one.state is GenerationState.CURRENT:
                await self._generations.rotate(name, one.number)
            await self._drop(name, one, "quota")
            dropped.add((name, one.number))
            sizes[name] -= one.hot_size

    async def _drop(self, database: str, generation: Generation, why: str) -> None:
        for dropping in self.dropping:
            try:
                await dropping(database, generation)
            except HomingError as error:  # room is needed, whoever would like to look once more
                _log.warning("events_dropped_unseen", database=database, reason=str(error))
        await self._generations.drop(database, generation.number)
        self._counters[f"events.dropped.{why}"] += 1
        _log.info("events_dropped", database=database, generation=generation.number, reason=why)
