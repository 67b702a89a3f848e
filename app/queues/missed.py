"""Counts what queues miss: events that the log is about to drop, and that nobody has looked at for them yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from app.core.events.event import BEGINNING, Position, Shard
from app.core.events.generation import Generation
from app.core.queues.loans import QueueSource
from app.core.queues.model import DeclaredQueue
from app.queues.sources import QueueSources
from app.queues.unread import UnreadEvents
from app.runtime.telemetry import Counters
from app.store.queues import QueueStore

MOST_PAGES: Final = 200
"""Pages of a shard that are read before its events are dropped; what is behind them is missed and not counted."""

_log = structlog.get_logger(__name__)


class MissedEvents:
    """Counts before a generation is dropped. The store compares, so two nodes count an event once."""

    def __init__(
        self,
        *,
        unread: UnreadEvents,
        store: QueueStore,
        sources: QueueSources,
        queues: Callable[[], Sequence[DeclaredQueue]],
        counters: Counters,
        most_pages: int = MOST_PAGES,
    ) -> None:
        self._unread = unread
        self._store = store
        self._sources = sources
        self._queues = queues
        self._counters = counters
        self._most_pages = most_pages

    async def count(self, database: str, generation: Generation) -> None:
        """Let each queue that is behind go on behind the generation, and note how many events it misses.

        StoreUnavailableError, and what the log raises.
        """
        queues = {one.id: one for one in self._queues() if database in one.options.databases}
        if not queues:
            return
        total = Counter[str]()
        for shard in self._sources.shards(database):
            sources = [QueueSource(one, shard) for one in queues]
            behind = dict[str, Position]()
            for source, state in zip(sources, await self._store.states(sources), strict=True):
                fed = queues[source.queue_id].starts.get(database, BEGINNING) if state is None else state.fed
                if fed < generation.last:
                    behind[source.queue_id] = fed
            if behind:
                total += await self._count_in(shard, {one: queues[one] for one in behind}, behind, generation.last)
        for queue_id, number in sorted(total.items()):
            self._counters["queues.missed"] += number
            queue = queues[queue_id]
            _log.warning("queue_events_missed", queue=queue.name, tenant=queue.tenant, database=database, count=number)

    async def _count_in(
        self, shard: Shard, queues: Mapping[str, DeclaredQueue], behind: Mapping[str, Position], last: Position
    ) -> Counter[str]:
        """Count in one shard. Return the numbers that the store has noted now, by queue."""
        found, reached = await self._unread.count(shard, queues, behind, last, self._most_pages)
        counted = Counter[str]()
        for queue_id, number in found.items():
            queue, fed = queues[queue_id], behind[queue_id]
            start, window = queue.starts.get(shard.database, BEGINNING), queue.options.rules.window
            source = QueueSource(queue_id, shard)
            told = await self._store.feed(source, start, fed, max(fed, reached), (), window, number)
            if told.fed == reached:
                counted[queue_id] += number
        return counted
