"""Serves the endpoints that fall to this node, each in a lane of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from app.cluster.shares import falls_to, share_of
from app.core.errors import HomingError, UnavailableError
from app.core.webhooks.endpoints import Endpoint
from app.runtime.tasks import end
from app.runtime.telemetry import Counters, Fill
from app.webhooks.backlog import MOST_OF_TENANT, DeliveryBacklog
from app.webhooks.book import EndpointBook
from app.webhooks.collector import Collector
from app.webhooks.lane import MOST_IN_FLIGHT, DeliveryLane

INTERVAL: Final = 0.5
"""Seconds between two looks at the outbox."""


class Deliverer:
    """`live` tells the nodes of the cluster; `open_lane` makes the lane of an endpoint; `pushes`: this node has queues.

    `root` is the fingerprint of the root secret that this node signs by.
    """

    def __init__(
        self,
        *,
        collector: Collector,
        book: EndpointBook,
        waiting: DeliveryBacklog,
        live: Callable[[], Awaitable[Sequence[str]]],
        node_id: str,
        open_lane: Callable[[Endpoint], DeliveryLane],
        pushes: Callable[[], bool],
        root: str,
        counters: Counters,
        interval: float = INTERVAL,
    ) -> None:
        self._collector = collector
        self._book = book
        self._waiting = waiting
        self._live = live
        self._node_id = node_id
        self._open_lane = open_lane
        self._pushes = pushes
        self._root = root
        self._counters = counters
        self._interval = interval
        self._lanes: dict[str, tuple[DeliveryLane, asyncio.Task[None]]] = {}
        self._known_live: tuple[str, ...] = ()
        self._share = share_of(node_id, ())
        self._log = structlog.get_logger()

    def fills(self) -> Mapping[str, Fill]:
        """Return how many attempts are under way, and how many events wait for the tenant for which most do."""
        flying = sum(lane.in_flight for lane, _ in self._lanes.values())
        return {
            "webhook_attempts": Fill(flying, MOST_IN_FLIGHT * max(1, len(self._lanes))),
            "webhooks_waiting": Fill(self._waiting.most, MOST_OF_TENANT),
        }

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                more = False
                try:
                    more = await self.round()
                except HomingError as error:
                    self._log.debug("webhook_round_skipped", reason=str(error))
                await asyncio.sleep(0 if more else self._interval)
        finally:
            await end([task for _, task in self._lanes.values()])
            self._lanes.clear()

    async def round(self) -> bool:
        """One look at endpoints, nodes and outbox; whether there may be more in it.

        However fast commands end, lanes get their turn after each look.
        """
        more = False
        try:
            await self._book.refresh()
            live = tuple(await self._live())
        except UnavailableError:
            # A Redis Cluster may be without the primary that tells, and have others.
            if not (self._book.is_read and self._known_live):
                raise
            live = self._known_live
        if live != self._known_live:
            self._known_live, self._share = live, share_of(self._node_id, live)
        self._staff()
        if self._book.all:
            await self._waiting.count()
            more = await self._collector.collect(self._share)
        for lane, _ in self._lanes.values():
            lane.wake()
        return more

    def _staff(self) -> None:
        """A lane for each endpoint that falls to this node, and no other."""
        live = self._known_live
        mine = {one.id: one for one in self._book.all if self._serves(one) and falls_to(self._node_id, live, one.id)}
        for gone in [one for one, (_, task) in self._lanes.items() if one not in mine or task.done()]:
            _, task = self._lanes.pop(gone)
            if task.done() and not task.cancelled():
                task.result()  # a lane ends by itself only when its endpoint is not served any more
            task.cancel()
        for new in mine.keys() - self._lanes.keys():
            lane = self._open_lane(mine[new])
            self._lanes[new] = lane, asyncio.create_task(lane.run(), name=f"webhook {new}")

    def _serves(self, endpoint: Endpoint) -> bool:
        """True if this node can sign for it: else its receiver would refuse what comes from here."""
        if endpoint.root != self._root:
            self._counters["webhooks.other_root"] += 1
            return False
        return endpoint.enabled and (not endpoint.queue or self._pushes())
