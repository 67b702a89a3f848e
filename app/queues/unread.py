"""Events that are in the log for queues, and that nobody has looked at for them yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from app.core.events.event import BEGINNING, END, Position, Shard
from app.core.events.reading import EVERYTHING, Reading
from app.core.queues.model import DeclaredQueue
from app.queues.sources import QueueSources, tree_of
from app.store.events import ArchivedError, EventStore
from app.store.queues import QueueStore

PAGE: Final = 500
"""Events that are read at once."""
GLANCE: Final = 20
"""Pages of a shard that are read to find whether something waits."""


class UnreadEvents:
    """Calls raise StoreUnavailableError, and what the log raises."""

    def __init__(self, *, log: EventStore, store: QueueStore, sources: QueueSources) -> None:
        self._log = log
        self._store = store
        self._sources = sources

    async def wait_for(self, queue: DeclaredQueue) -> bool:
        """Return whether some wait for a queue, as far as a glance at each shard tells."""
        sources = self._sources.of(queue)
        for source, state in zip(sources, await self._store.states(sources), strict=True):
            if source.dead:
                if state is not None and state.fed < state.until:
                    reading = Reading(queue.dead_topic, state.fed, state.until)
                    if (await self._log.read(source.shard, reading, PAGE)).events:
                        return True
                continue
            fed = queue.starts.get(source.shard.database, BEGINNING) if state is None else state.fed
            found, _ = await self.count(source.shard, {queue.id: queue}, {queue.id: fed}, END, GLANCE)
            if found:
                return True
        return False

    async def count(
        self,
        shard: Shard,
        queues: Mapping[str, DeclaredQueue],
        behind: Mapping[str, Position],
        last: Position,
        most_pages: int,
    ) -> tuple[Counter[str], Position]:
        """Count those of each queue behind a position and up to `last`. Return also up to where that was done."""
        tree = tree_of(shard.database, queues.values())
        found, reached = Counter[str](), min(behind.values())
        for _ in range(most_pages):
            try:
                part = await self._log.read(shard, Reading(EVERYTHING, reached, last), PAGE)
            except ArchivedError as error:  # an earlier generation, which was dropped before
                reached = max(reached + 1, error.until)
                continue
            for event in part.events:
                for queue_id in tree.match(event.entry.topic.split("/")):
                    if event.position > behind[queue_id] and self._sources.may_have(queues[queue_id], event.entry):
                        found[queue_id] += 1
            reached = max(reached, part.position)
            if not part.more or reached >= last:
                return found, last
        return found, reached
