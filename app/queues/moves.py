"""Moves queues to other places of the log: they deliver once more what they had settled, or forget all, or end."""

from __future__ import annotations

from app.core.errors import QueueNotEmptyError, QueueNotFoundError, StoreUnavailableError
from app.core.events.event import BEGINNING, Position, Shard
from app.core.queues.model import DeclaredQueue
from app.queues.book import QueueBook
from app.queues.sources import QueueSources
from app.queues.stats import stats_in
from app.queues.unread import UnreadEvents
from app.store.events import EventLog
from app.store.queues import QueueStore


class QueueMoves:
    """Asks the log up to where it is: its positions may be ahead of a clock that was set back."""

    def __init__(
        self, *, log: EventLog, store: QueueStore, sources: QueueSources, book: QueueBook, unread: UnreadEvents
    ) -> None:
        self._log = log
        self._store = store
        self._sources = sources
        self._book = book
        self._unread = unread

    async def rewind(self, queue: DeclaredQueue, to: Position | None) -> None:
        """Let it go on behind an instant; None is now, so that all before is forgotten, redriven letters, too.

        An instant that is ahead is now as well: nothing of what comes until then is left out.
        """
        for source in self._sources.of(queue):
            if to is None:
                await self._store.seek(source, await self._head(source.shard))
            elif not source.dead:
                await self._store.seek(source, min(max(BEGINNING, to - 1), await self._head(source.shard)))
        await self._tell(queue)

    async def redrive(self, queue: DeclaredQueue, until: Position | None) -> None:
        """Let it read the dead letters that it has now again, or those of them up to an instant."""
        source = self._sources.dead(queue)
        head = await self._head(source.shard)
        await self._store.redrive(source, head if until is None else min(until, head))
        await self._tell(queue)

    async def delete(self, queue: DeclaredQueue, *, if_empty: bool) -> None:
        """Delete it with all that is known of what it has not settled. QueueNotEmptyError."""
        if if_empty and (waits := (await stats_in(self._store, self._sources.of(queue))).unsettled):
            raise QueueNotEmptyError(f"queue {queue.name!a} has {waits} events that are not settled")
        if if_empty and await self._unread.wait_for(queue):
            raise QueueNotEmptyError(f"in the log are events for queue {queue.name!a} that it has not looked at yet")
        await self._book.delete(queue)
        await self._store.forget(self._sources.of(queue))

    async def _head(self, shard: Shard) -> Position:
        """Return where the last event of a shard is; BEGINNING where it has none."""
        shards = self._sources.shards(shard.database)
        heads = await self._log.wait(shard.database, [BEGINNING - 1] * len(shards))  # which each of them is behind
        head = heads[shards.index(shard)]
        if head < BEGINNING:
            raise StoreUnavailableError(f"the server of shard {shard} is away")
        return head

    async def _tell(self, queue: DeclaredQueue) -> None:
        """Tell all nodes. Of a queue that was deleted meanwhile nothing may be left: its window was begun anew."""
        if not await self._book.move(queue, await self._store.now()):
            await self._store.forget(self._sources.of(queue))
            raise QueueNotFoundError(f"there is no queue {queue.name!a}: it was deleted meanwhile")
