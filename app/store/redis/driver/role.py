"""A role in Redis: a lease that is renewed, and a number that grows each time that it changes hands.

Shards of the event log keep the number, too, on servers of their own. So it grows even where its server has forgotten
it (ADR 0231).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import Final

import structlog

from app.core.clock import Clock
from app.core.errors import UnavailableError
from app.core.events import keys
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.tasks import end
from app.store.redis.driver.lane import CombinerOptions
from app.store.redis.driver.scripts import ROLE
from app.store.redis.driver.store_calls import StoreCalls, open_calls

RENEWALS: Final = 4
"""The number of times that a lease is renewed within its time."""

_log = structlog.get_logger(__name__)


class RedisRole:
    """`holder` names this process and no other one. Times are those of this process: a late renewal counts as none."""

    def __init__(self, calls: StoreCalls, name: str, holder: str, *, lease: timedelta, clock: Clock) -> None:
        self._redis = calls
        self._name = name
        self._holder = holder
        self._lease = lease.total_seconds()
        self._clock = clock
        self._until = 0.0
        self._lost = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self._epoch = 0
        self._latest = 0
        """The latest epoch that this one had before, or heard of."""
        self._gone = ""
        self._hurry = asyncio.Event()

    async def hold(self) -> int | None:
        """See the port."""
        self._redis.start()
        while True:
            epoch = await self._ask()
            if epoch and epoch > self._latest:
                break
            if epoch:  # a later one was heard of meanwhile
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lease / RENEWALS):
                    await self._hurry.wait()
        self._epoch = epoch
        self._lost = asyncio.Event()
        self._renewing = asyncio.create_task(self._renew(), name=f"role {self._name}")
        return epoch

    async def lost(self) -> None:
        """See the port."""
        await self._lost.wait()

    async def still_held(self) -> None:
        """See the port."""
        while not self._lost.is_set():
            epoch = await self._ask()
            if epoch == self._epoch:
                return
            if epoch is not None:
                self._lost.set()
            await asyncio.sleep(self._lease / RENEWALS)
        await asyncio.Event().wait()

    async def held(self) -> bool:
        """See the port."""
        try:
            return await self._redis.call(("GET", keys.role(self._name)), self._lease / RENEWALS) is not None
        except UnavailableError:
            return False

    def outrun(self, epoch: int) -> None:
        """See the port."""
        self._latest = max(self._latest, epoch)
        if self._epoch <= epoch:
            self._lost.set()

    def gone(self, node_id: str) -> None:
        """See the port. Whoever has it wrongly taken away notices, as a later epoch shuts him out."""
        if self._renewing is None:
            self._gone = f"{node_id} "
            self._hurry.set()

    async def release(self) -> None:
        """See the port."""
        task, self._renewing = self._renewing, None
        if task is None:
            return
        await end([task])
        held, self._epoch = self._epoch, 0
        self._latest = max(self._latest, held)
        with suppress(UnavailableError):
            if held and await self._redis.call(("GET", keys.role(self._name)), self._lease / RENEWALS) == self._who:
                await self._redis.call(("DEL", keys.role(self._name)), self._lease / RENEWALS)

    async def close(self) -> None:
        """Let go of the connection."""
        try:
            await self.release()
        finally:
            await self._redis.close()

    @property
    def _who(self) -> bytes:
        return self._holder.encode()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease / RENEWALS)
            epoch = await self._ask()
            if (epoch is not None and epoch != self._epoch) or self._clock.monotonic() >= self._until:
                _log.warning("role_lost", role=self._name)
                self._lost.set()
                return

    async def _ask(self) -> int | None:
        """The epoch if it is held by us, 0 if by somebody else; None when nobody can say."""
        began = self._clock.monotonic()
        names = [keys.role(self._name), keys.epoch(self._name)]
        gone = self._gone
        self._hurry.clear()
        arguments: list[str | bytes | int] = [self._holder, round(self._lease * 1000), gone, self._latest]
        try:
            epoch = int(await self._redis.run_script(ROLE, names, arguments, self._lease / RENEWALS))
        except UnavailableError:
            return None
        if self._gone == gone:
            self._gone = ""
        if epoch:
            self._until = began + self._lease
        return epoch


def open_role(
    url: str,
    name: str,
    holder: str,
    *,
    lease: timedelta,
    clock: Clock,
    counters: Counter[str],
    terms: RedisTerms = NO_TERMS,
) -> RedisRole:
    """The role in the Redis of this URL, on connections of its own."""
    options = CombinerOptions(name="homing-roles", on_demand=True, wait_replicas=terms.wait_replicas)
    calls = open_calls(url, [ROLE], counters=counters, options=options, terms=terms)
    return RedisRole(calls, name, holder, lease=lease, clock=clock)
