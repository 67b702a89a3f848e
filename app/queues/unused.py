"""Finds the queues that end by themselves, as nobody has used them for as long as they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from app.core.clock import Clock
from app.core.events.event import Position
from app.core.queues.loans import NOTED_US, micros_of
from app.core.queues.model import LEAST_UNUSED, DeclaredQueue
from app.queues.sources import QueueSources
from app.queues.stats import stats_in
from app.store.queues import QueueStore

SEEN_SECONDS: Final = LEAST_UNUSED.total_seconds()
"""This node sees for so long that nobody uses a queue, whatever the store says of the time before."""
GAP_SECONDS: Final = 30.0
"""Consumers that could not be served for so long, or longer, are given the time to come back."""


class UnusedQueues:
    """A queue is used while somebody takes from it, and until the last loan of it runs out.

    That is told by the clock of the store, which can be set, and stood still for whoever was cut off from it. So the
    node has seen it as well, on its own clock and without a gap. `mine` tells whether a queue falls to this node.
    """

    def __init__(
        self, *, store: QueueStore, sources: QueueSources, mine: Callable[[DeclaredQueue], bool], clock: Clock
    ) -> None:
        self._store = store
        self._sources = sources
        self._mine = mine
        self._clock = clock
        self._looked_at = 0.0
        self._seen: dict[str, tuple[Position, float]] = {}
        """The instant at which each queue was used last, and since when this node has seen no other use."""

    async def look(self, queues: Sequence[DeclaredQueue]) -> list[DeclaredQueue]:
        """Return those of these that are to end. To be asked every few seconds. StoreUnavailableError."""
        here = self._clock.monotonic()
        before = {} if here - self._looked_at >= GAP_SECONDS else self._seen
        self._looked_at, self._seen = here, {}
        ended = []
        for queue in queues:
            if queue.options.ends_after is None or not self._mine(queue):
                continue
            used, now = await self._used(queue), await self._store.now()
            known, since = before.get(queue.id, (used, here))
            if used - known >= NOTED_US:
                known, since = used, here
            self._seen[queue.id] = known, since
            if used + micros_of(queue.options.ends_after) < now and here - since >= SEEN_SECONDS:
                ended.append(queue)
        return ended

    async def _used(self, queue: DeclaredQueue) -> Position:
        """Return when it was used last, or until when it is lent."""
        sources = self._sources.of(queue)
        asked = (await stats_in(self._store, sources)).asked
        return max(queue.created_us, asked, await self._store.lent_until(sources))
