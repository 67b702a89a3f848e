"""Makes dead letters of what is dying in the shards that fall to this node: appended once, whoever dies meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from app.core.errors import HomingError
from app.core.events.batches import BatchId
from app.core.events.event import Entry, Shard
from app.core.queues.letters import letter_entry
from app.core.queues.loans import MOST_BURIED, Dying
from app.queues.book import QueueBook
from app.queues.originals import Originals
from app.queues.sources import QueueSources
from app.runtime.telemetry import Counters
from app.store.events import EventLog
from app.store.queues import QueueStore


class Burials:
    """An event that dies in a queue that was deleted is forgotten."""

    def __init__(
        self,
        *,
        log: EventLog,
        store: QueueStore,
        sources: QueueSources,
        originals: Originals,
        book: QueueBook,
        counters: Counters,
    ) -> None:
        self._log = log
        self._store = store
        self._sources = sources
        self._originals = originals
        self._book = book
        self._counters = counters

    async def bury_all(self, shards: Sequence[Shard]) -> None:
        """Bury all that is dying in these. One that cannot be read holds up no other; then its error is raised."""
        failed: HomingError | None = None
        for shard in shards:
            try:
                while await self.bury(shard):
                    pass
            except HomingError as error:
                failed = error
        if failed is not None:
            raise failed

    async def bury(self, shard: Shard) -> bool:
        """Bury those that were dying first; whether there may be more. Until that is done the same ones come again."""
        dying = await self._store.dying(shard, MOST_BURIED)
        if not dying:
            return False
        unknown = {one.source.queue_id for one in dying if self._book.by_id(one.source.queue_id) is None}
        if unknown:  # they were deleted, or are newer than what is known here
            await self._book.refresh()
        if any(self._book.by_id(one) is None and not self._book.is_gone(one) for one in unknown):
            return False  # a node of the version that declared it does it
        last = dying[-1].number
        for there, letters in (await self._letters(shard, dying)).items():
            await self._log.append(there, letters, batch=BatchId(f"dead:{shard}", last))
            self._counters["queues.dead_letters"] += len(letters)
        await self._store.buried(shard, last)
        return len(dying) == MOST_BURIED

    async def _letters(self, shard: Shard, dying: Sequence[Dying]) -> dict[Shard, list[Entry]]:
        found = await self._originals.pick(shard, [one.reference.position for one in dying])
        letters: defaultdict[Shard, list[Entry]] = defaultdict(list)
        for one, original in zip(dying, found, strict=True):
            queue = self._book.by_id(one.source.queue_id)
            if queue is not None:
                letter = letter_entry(queue.dead_topic, queue.name, one, original)
                letters[self._sources.dead_shard(queue)].append(letter)
        return letters
