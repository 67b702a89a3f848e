"""Times out the commands of nodes that cannot do it themselves any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import structlog

from app.callbacks.open_commands import OpenCommands
from app.cluster.directory import ClusterDirectory
from app.cluster.shares import SLICE, shares_of
from app.core.errors import CapacityError, UnavailableError
from app.runtime.telemetry import Counters
from app.store.commands import CommandWriter

GRACE = timedelta(milliseconds=500)
"""A live home node ends its own commands; others wait this long for it."""
COVER = timedelta(milliseconds=750)
"""The node that a partition falls to may be dead, with a lease that outlives it by seconds: others wait this long."""


class Sweeper:
    """Visits the partitions that fall to this node once per interval, and others in case their node is dead.

    Behind the node that a partition falls to stands a second one, which visits it as often, and all others take turns.
    So a partition is visited three times per interval, however many nodes there are, and two nodes that die together
    delay nothing for longer than a lease.

    Where nodes share a store, a slice comes after each pause, as commands of all nodes wait behind it. A node with a
    store of its own only lets others run between two slices, and wakes up once per interval.
    """

    def __init__(
        self,
        *,
        store: CommandWriter,
        cluster: ClusterDirectory,
        open_commands: OpenCommands,
        node_id: str,
        interval: float,
        shared: bool,
        counters: Counters,
        slice_size: int = SLICE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._open_commands = open_commands
        self._node_id = node_id
        self._interval = interval
        self._shared = shared
        self._counters = counters
        self._slice_size = slice_size
        self._sleep = sleep
        self._live: tuple[str, ...] = ()
        self._shares = shares_of(node_id, ())
        self._round = 0
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            try:
                await self.sweep()
            except (UnavailableError, CapacityError) as failure:
                self._log.debug("sweep_skipped", reason=str(failure))
                await self._sleep(self._interval)

    async def sweep(self) -> None:
        """One round, which takes the interval."""
        with suppress(UnavailableError):  # a Redis Cluster may be without the primary that tells, and have others
            live = tuple(node.node_id for node in await self._cluster.nodes())
            if live != self._live:
                self._live, self._shares = live, shares_of(self._node_id, live)
        self._round += 1
        slices = [
            (partitions[first : first + self._slice_size], grace)
            for partitions, grace in ((self._shares.own, GRACE), (self._covered(), COVER))
            for first in range(0, len(partitions), self._slice_size)
        ]
        for number, (partitions, grace) in enumerate(slices):
            await self._sleep(self._pause(number, len(slices)))
            for outcome in await self._store.sweep(partitions, self._node_id, grace):
                self._counters["sweep.timed_out"] += 1
                self._open_commands.ended(outcome)

    def _covered(self) -> list[int]:
        """The partitions of others that this node visits in this round."""
        turns = self._shares.others_each
        return sorted((*self._shares.second, *self._shares.others[self._round % turns :: turns]))

    def _pause(self, number: int, slices: int) -> float:
        if self._shared:
            return self._interval / slices
        return 0 if number else self._interval
