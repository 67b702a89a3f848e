"""Fetches the responses that are parked in the MQTT session of a dead node (F50).

A broker goes on giving a durable session its share of the responses while its node is dead, and Mosquitto never hands
them to anybody else. A survivor connects as that client, unsubscribes, takes what is there, and ends the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import structlog

from app.cluster.base import Cluster, NodeInfo
from app.core.errors import UnavailableError
from app.observability import Counters

RIGHT: Final = timedelta(seconds=30)
"""How long a survivor that dies over it keeps others from adopting the same session."""
IDLE: Final = timedelta(seconds=1)
"""A session from which nothing has come for so long is empty."""

Drain = Callable[[NodeInfo, timedelta], Awaitable[int]]
"""Empties and ends the session of a node; the number of messages that it held."""


class Adopter:
    """Looks for orphans once per interval, and adopts those that were orphans in the round before as well.

    A node whose lease ran out because Redis was frozen takes it up again within that time.
    """

    def __init__(self, *, cluster: Cluster, drain: Drain, interval: float, counters: Counters) -> None:
        self._cluster = cluster
        self._drain = drain
        self._interval = interval
        self._counters = counters
        self._suspects: frozenset[NodeInfo] = frozenset()
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Adopt until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.look()
            except UnavailableError as error:
                self._log.debug("adoption_waits", reason=str(error))

    async def look(self) -> None:
        """One round."""
        suspects, self._suspects = self._suspects, frozenset(await self._cluster.orphans())
        for orphan in self._suspects & suspects:
            try:
                if await self._cluster.claim(orphan, RIGHT):
                    await self._adopt(orphan)
            except UnavailableError as error:  # its turn comes again; the others must not wait for it
                self._log.debug("session_not_adopted", client_id=orphan.client_id, reason=str(error))

    async def _adopt(self, orphan: NodeInfo) -> None:
        holding = asyncio.get_running_loop().create_task(self._hold(orphan))
        try:
            found = await self._drain(orphan, IDLE)
        finally:
            holding.cancel()
        await self._cluster.adopted(orphan)
        self._counters["adoption.sessions"] += 1
        self._counters["adoption.responses"] += found
        self._log.info("session_adopted", dead_node=orphan.node_id, client_id=orphan.client_id, responses=found)

    async def _hold(self, orphan: NodeInfo) -> None:
        while True:
            await asyncio.sleep(RIGHT.total_seconds() / 3)
            try:
                await self._cluster.claim(orphan, RIGHT)
            except UnavailableError:
                continue
