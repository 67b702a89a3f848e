"""Moves the windows of queues forward over one database: of its shards, those that fall to this node.

Sources that are at the same place of a shard are read for together, and only those that an event is for cost anything.
One that is far behind has a place of its own, and a page each round. A feeder holds nothing that matters: where a
source was fed up to is in the store, and decides.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import structlog

from app.core.clock import Clock
from app.core.errors import HomingError
from app.core.events.event import BEGINNING, END, Event, Position, Shard
from app.core.events.reading import EVERYTHING, Reading
from app.core.filtertree import FilterTree
from app.core.queues.dated import not_before_of
from app.core.queues.loans import QueueSource, micros_of
from app.core.queues.model import DeclaredQueue
from app.core.queues.portion import portion_of
from app.queues.originals import Originals
from app.queues.shard_feed import FeedPlace, FeedProgress, ShardFeed
from app.queues.sources import QueueSources, patterns_of
from app.runtime.telemetry import Counters
from app.store.events import ArchivedError, EventStore
from app.store.queues import QueueStore

PAGE: Final = 500
"""Events that are read at once."""
TICK_SECONDS: Final = 0.5
"""The time after which a feeder looks though nothing happened."""
FULL_SECONDS: Final = 0.05
"""The same while a window is full from which somebody takes."""
BUSY_SECONDS: Final = 1.0
"""A log that gives hints is watched for so long after an event, as some of those that follow have no hint."""
SLOW_SECONDS: Final = 5.0
"""The time between two looks at windows that are full, though nobody takes from them."""
KEPT_US: Final = 60_000_000
"""The distance for which a queue was looked through without a match, before the store is told."""
MOST_REFERENCES: Final = 8 * 128
"""The references that one call feeds."""

_log = structlog.get_logger(__name__)


class KnownQueues(Protocol):
    """The queues that are declared, as the node knows them."""

    @property
    def all(self) -> Sequence[DeclaredQueue]:
        """All that this version can read."""

    def is_gone(self, queue_id: str) -> bool:
        """True if no queue has this id, not even one that this version cannot read: of that, windows are left alone."""


class QueueFeeder:
    """`mine` tells whether a shard falls to this node.

    A log that is `hinted` tells that something came. Then nothing but hints, and a look now and then for those that are
    lost, is needed while nothing comes.
    """

    def __init__(
        self,
        database: str,
        *,
        log: EventStore,
        store: QueueStore,
        sources: QueueSources,
        originals: Originals,
        book: KnownQueues,
        mine: Callable[[Shard], bool],
        hinted: bool,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._database = database
        self._log = log
        self._hinted = hinted
        self._store = store
        self._sources = sources
        self._originals = originals
        self._book = book
        self._mine = mine
        self._clock = clock
        self._counters = counters
        self._feeds: dict[Shard, ShardFeed] = {}
        self._heads: dict[Shard, Position] = {}
        """The positions up to which shards have something to read, as far as they are known."""
        self._tree: FilterTree[str] = FilterTree()
        self._by_id: Mapping[str, DeclaredQueue] = {}
        self._changed = True
        self._stale: set[str] = set()
        self._kicked = asyncio.Event()
        self._slow_at = 0.0
        self._busy_until = 0.0
        self._ready: set[QueueSource] = set()
        self._gone: list[QueueSource] = []
        self._gone_before: list[QueueSource] = []

    def changed(self) -> None:
        """The queues are others."""
        self._changed = True
        self._kicked.set()

    def kick(self, queue_id: str) -> None:
        """There may be room in a queue that waits for some; "": in any, and the store may be an older copy."""
        if not queue_id or any(
            QueueSource(queue_id, shard, dead=dead) in feed.full
            for shard, feed in self._feeds.items()
            for dead in (False, True)
        ):
            self._stale.add(queue_id)
            self._kicked.set()

    def appended(self, names: Collection[str]) -> None:
        """Something came in these shards: those of them that this node feeds from are read at once."""
        for shard, feed in self._feeds.items():
            if feed.places and str(shard) in names:
                self._heads.pop(shard, None)
                self._kicked.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                if not await self.round():
                    await self._wait()
            except HomingError as error:
                _log.debug("queue_feeding_waits", database=self._database, reason=str(error))
                self._feeds.clear()
                self._heads = {}
                self._changed = True
                await asyncio.sleep(TICK_SECONDS)

    async def round(self) -> bool:
        """Read a page for each place; whether some are behind still."""
        self._kicked.clear()
        await self._learn()
        delayed = any(one.options.delay for one in self._by_id.values())
        now = await self._store.now() if delayed else END
        behind = False
        for shard, feed in list(self._feeds.items()):
            try:
                behind |= await self._feed_shard(shard, feed, now)
            except HomingError as error:
                self._leave([shard], error)
        if self._ready:
            ready, self._ready = self._ready, set()
            await self._store.hint(ready)
        return behind

    async def _learn(self) -> None:
        """Ask the store about sources that are new here, and about those that may have room again."""
        shards = [one for one in self._sources.shards(self._database) if self._mine(one)]
        if "" in self._stale:
            self._feeds.clear()
            self._heads = {}
        slow = self._clock.monotonic() >= self._slow_at
        if slow:
            self._slow_at = self._clock.monotonic() + SLOW_SECONDS
        changed = self._changed or list(self._feeds) != shards
        news = self._read_book(shards) if changed else ()
        # Whoever did not know yet that a queue was deleted, and fed it or took from it, may have begun it anew.
        again = self._gone_before if slow else []
        if self._gone or again:
            await self._store.forget([*self._gone, *again])
            self._gone_before = [*(() if slow else self._gone_before), *self._gone]
            self._gone = []
        stale, self._stale = self._stale, set()
        asked: list[QueueSource] = []
        for feed in self._feeds.values():
            full = feed.full.items()
            asked += (one for one, at in full if slow or one.queue_id in stale or not at.is_left)
        asked += (
            source
            for queue in news
            for source in self._sources.of(queue)
            if source.shard in self._feeds and source not in self._feeds[source.shard].known
        )
        await self._ask(asked)

    def _read_book(self, shards: Sequence[Shard]) -> Collection[DeclaredQueue]:
        """Return the queues of which sources may be new here: of a thousand, those that are others than before."""
        self._changed = False
        before, self._by_id = self._by_id, {one.id: one for one in self._book.all}
        left = [one for one in before.values() if self._by_id.get(one.id) is not one]  # changed, moved or deleted
        come = [one for one in self._by_id.values() if before.get(one.id) is not one]
        for queues, change in ((left, self._tree.remove), (come, self._tree.add)):
            for queue in queues:
                for pattern in patterns_of(self._database, queue):
                    change(pattern, queue.id)
        deleted = (queue for queue in left if queue.id not in self._by_id and self._book.is_gone(queue.id))
        self._gone += (source for queue in deleted for source in self._sources.of(queue) if source.shard in shards)
        for feed in self._feeds.values():
            feed.forget({one.id for one in left})
        is_wider = not self._feeds.keys() >= set(shards)
        self._feeds = {one: self._feeds.get(one) or ShardFeed() for one in shards}
        return self._by_id.values() if is_wider else come

    def _leave(self, shards: Collection[Shard], error: HomingError) -> None:
        """Begin these anew in the next round. Where there are no others to feed from, the error is raised."""
        _log.debug("queue_feeding_waits", database=self._database, reason=str(error))
        for one in shards:
            del self._feeds[one]
            self._heads.pop(one, None)
        if not self._feeds:
            raise error

    async def _ask(self, asked: Sequence[QueueSource]) -> None:
        """Ask each server for its own part, so that one that is away keeps no other from being fed."""
        parts: defaultdict[str, list[QueueSource]] = defaultdict(list)
        for source in asked:
            parts[self._store.server_of(source)].append(source)
        failed = await asyncio.gather(*map(self._ask_server, parts.values()))
        for error, sources in zip(failed, parts.values(), strict=True):
            if error is not None:
                self._leave({one.shard for one in sources}, error)

    async def _ask_server(self, asked: Sequence[QueueSource]) -> HomingError | None:
        try:
            await self._ask_states(asked)
        except HomingError as error:
            return error
        return None

    async def _ask_states(self, asked: Sequence[QueueSource]) -> None:
        for source, state in zip(asked, await self._store.states(asked), strict=True):
            queue, feed = self._by_id[source.queue_id], self._feeds[source.shard]
            start = self._start(source, queue)
            at = FeedProgress(queue, start)
            if state is None and _needs_window(queue):
                await self._store.feed(source, start, start, start, (), 0)
            elif state is not None:
                at = FeedProgress(queue, state.fed, state.until, state.size - state.dated, state.asked, state.dated)
            feed.put(source, at, at.fed)

    def _start(self, source: QueueSource, queue: DeclaredQueue) -> Position:
        return BEGINNING if source.dead else queue.starts.get(self._database, BEGINNING)

    async def _feed_shard(self, shard: Shard, feed: ShardFeed, now: Position) -> bool:
        """A page for each place; those that come to lie within it are read for with it, and join."""
        head = self._heads.get(shard, END)
        feed.places.sort(key=lambda one: one.seen)
        places = [one for one in feed.places if one.alone or one.seen < head]
        feed.places = [one for one in feed.places if not one.alone and one.seen >= head]
        behind = False
        while places:
            place = places.pop(0)
            if place.alone:
                behind |= await self._feed_alone(shard, feed, place, now)
                continue
            events, end, more = await self._read(shard, place.seen, END, EVERYTHING)
            self._originals.keep(shard, events)
            joined = [place, *(one for one in places if not one.alone and one.seen <= end)]
            places = [one for one in places if one.alone or one.seen > end]
            await self._feed_together(shard, feed, joined, events, end)
            behind |= more
            if not more:  # so there is nothing for those that begin later, of which a thousand may each have a place
                feed.places += [one for one in places if not one.alone]
                places = [one for one in places if one.alone]
        return behind

    async def _feed_together(
        self, shard: Shard, feed: ShardFeed, places: Sequence[FeedPlace], events: Sequence[Event], end: Position
    ) -> None:
        """Feed sources at these places. One without an event is left alone for a minute: there may be a thousand."""
        matched = self._matched(events)
        together = FeedPlace(max(end, places[0].seen))
        for place in places:
            sources = place.sources
            if place.told > end - KEPT_US:
                looked_at = [one for one in (QueueSource(each, shard) for each in matched) if one in sources]
            else:
                looked_at, place.told = list(sources), END
            for source in looked_at:
                at = sources[source]
                wanted = [one for one in matched.get(source.queue_id, ()) if one.position > place.seen]
                wanted = [one for one in wanted if self._sources.may_have(at.queue, one.entry)]
                is_kept = not wanted and at.fed > end - KEPT_US
                if is_kept or await self._feed(source, at, wanted, together.seen):
                    place.told = min(place.told, at.fed)
                else:
                    del sources[source]
                    feed.put(source, at, at.fed)
            together.join(place)
        if together.sources:
            feed.places.append(together)

    def _matched(self, events: Sequence[Event]) -> Mapping[str, Sequence[Event]]:
        """The events that each queue wants."""
        found: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            for queue_id in self._tree.match(event.entry.topic.split("/")):
                found[queue_id].append(event)
        return found

    async def _feed_alone(self, shard: Shard, feed: ShardFeed, place: FeedPlace, now: Position) -> bool:
        ((source, at),) = place.sources.items()
        if source.dead:
            until, topic_filter = at.until, at.queue.dead_topic
        else:
            until, topic_filter = now - micros_of(at.queue.options.delay), EVERYTHING
        if until <= place.seen:
            feed.put(source, at, place.seen)
            return False
        events, end, more = await self._read(shard, place.seen, until, topic_filter)
        if not source.dead:
            events = [one for one in events if self._is_for(at.queue, one)]
        end = until if source.dead and not more else end
        if await self._feed(source, at, events, end):
            feed.put(source, at, end)
        else:
            feed.put(source, at, at.fed)
        return more

    def _is_for(self, queue: DeclaredQueue, event: Event) -> bool:
        return queue.id in self._tree.match(event.entry.topic.split("/")) and self._sources.may_have(queue, event.entry)

    async def _read(
        self, shard: Shard, after: Position, until: Position, topic_filter: str
    ) -> tuple[Sequence[Event], Position, bool]:
        try:
            found = await self._log.read(shard, Reading(topic_filter, after, until), PAGE)
        except ArchivedError as error:  # what was there was dropped: it is missed, and was never in a window
            return (), max(after + 1, error.until), True
        if found.events:
            self._busy_until = self._clock.monotonic() + BUSY_SECONDS
        return found.events, found.position, found.more

    async def _feed(self, source: QueueSource, at: FeedProgress, events: Sequence[Event], end: Position) -> bool:
        """Hand over as many as there is room for; whether that was all, and there is room for more."""
        most, ordered = min(at.room(end), MOST_REFERENCES), at.queue.options.order == "device"
        now = await self._store.now() if any(not_before_of(one.entry) for one in events) else END
        part = portion_of(events, now, most, at.room_for_dated, ordered=ordered)
        target = end if part.complete else part.last or at.fed
        start, window = self._start(source, at.queue), at.queue.options.rules.window
        found = await self._store.feed(source, start, at.fed, target, part.groups, window, 0, part.dated)
        if found.fed == target and part.references:  # consumers learn with the next take when something is due
            self._ready.add(source)
            self._counters["queues.fed"] += part.references
        at.fed, at.size, at.asked, at.dated = found
        return found.fed == end and at.room(end) > 0

    async def _wait(self) -> None:
        """Until there is more in the log, or room, or some time has passed."""
        after: list[Position] = []
        full = False
        shards = self._sources.shards(self._database)
        for shard in shards:
            feed = self._feeds.get(shard)
            read = [] if feed is None else [one.seen for one in feed.places if not one.alone]
            after.append(max(read, default=END))
            full = full or (feed is not None and any(not one.is_left for one in feed.full.values()))
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._kicked.wait())]
        coming: asyncio.Task[Sequence[Position]] | None = None
        watches = not self._hinted or self._clock.monotonic() < self._busy_until
        if watches and any(one < END for one in after):
            coming = asyncio.create_task(self._log.wait(self._database, after))
            waits.append(coming)
        try:
            seconds = FULL_SECONDS if full else TICK_SECONDS
            done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
            if coming in done:
                self._heads = dict(zip(shards, coming.result(), strict=True))
            if not watches:
                self._heads = {}
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def _needs_window(queue: DeclaredQueue) -> bool:
    """True if it needs windows before something came: there is noted whose turn it is, and that somebody asks."""
    return queue.options.single or queue.options.ends_after is not None
