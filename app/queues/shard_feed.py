"""The sources that read one shard: how far each is, and which of them are read for together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from app.core.events.event import BEGINNING, END, Position
from app.core.queues.loans import MOST_DATED, UNASKED_US, WINDOW_UNASKED, QueueSource
from app.core.queues.model import DeclaredQueue


@dataclass(slots=True)
class FeedProgress:
    """A source as the store last told of it."""

    queue: DeclaredQueue
    fed: Position
    until: Position = BEGINNING
    size: int = 0
    asked: Position = 0
    dated: int = 0

    @property
    def is_left(self) -> bool:
        """True if no room comes soon: nobody has taken from it for long, or what fills it waits for an instant."""
        return self.asked < self.fed - UNASKED_US or self.dated >= MOST_DATED

    @property
    def room_for_dated(self) -> int:
        """Return how many references may be added that wait for an instant."""
        return MOST_DATED - self.dated

    def room(self, seen: Position) -> int:
        """References that may be added. A queue nobody takes from is kept short, so that it costs little."""
        if self.dated >= MOST_DATED:
            return 0
        most = self.queue.options.rules.window
        if self.asked < seen - UNASKED_US:
            most = min(most, WINDOW_UNASKED)
        return most - self.size


@dataclass(slots=True)
class FeedPlace:
    """Sources that were looked through up to the same position of a shard."""

    seen: Position
    sources: dict[QueueSource, FeedProgress] = field(default_factory=dict)
    alone: bool = False
    """It waits for events to become older, or reads dead letters: it never joins others."""
    told: Position = END
    """The store knows of each source at least that it was looked through up to here."""

    def put(self, source: QueueSource, at: FeedProgress) -> None:
        """Add a source."""
        self.sources[source] = at
        self.told = min(self.told, at.fed)

    def join(self, other: FeedPlace) -> None:
        """Take in the sources of another place."""
        self.sources |= other.sources
        self.told = min(self.told, other.told)


class ShardFeed:
    """One shard, and where its sources are."""

    def __init__(self) -> None:
        self.places: list[FeedPlace] = []
        self.full: dict[QueueSource, FeedProgress] = {}
        self.known: set[QueueSource] = set()

    def forget(self, queues: Collection[str]) -> None:
        """Forget the sources of queues with these ids."""
        forgotten = {one for one in self.known if one.queue_id in queues}
        self.known -= forgotten
        for sources in (self.full, *(one.sources for one in self.places)):
            for source in forgotten.intersection(sources):
                del sources[source]
        self.places = [one for one in self.places if one.sources]

    def put(self, source: QueueSource, at: FeedProgress, seen: Position) -> None:
        """Let it be read for, or wait for room. With all its dead letters read it waits for a redrive, a change."""
        self.known.add(source)
        self.full.pop(source, None)
        if source.dead and seen >= at.until:
            return
        if at.room(seen) <= 0:
            self.full[source] = at
            return
        alone = source.dead or bool(at.queue.options.delay)
        for place in self.places:
            if place.seen == seen and not (alone or place.alone):
                place.put(source, at)
                return
        self.places.append(FeedPlace(seen, {source: at}, alone, at.fed))
