"""Several shards read as one order: a little of each, and more of those of which that was not enough."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.core.events.event import BEGINNING, END, Entry, Event, Position, Shard
from app.core.events.reading import Cursor, Reading, Slice
from app.store.events import ArchivedError, EventStore

MAX_STEP: Final = 1000
"""The number of events of a shard that are read at once."""
SPARE: Final = 32
"""The events that are read of each shard beyond one and a half times its part of a page."""
LEAST_STEP: Final = 100
"""The same where some events may be passed over: these are not known beforehand."""
ROUNDS: Final = 12
"""The number of times that shards are read again for one page. Then it is short, though there may be more."""
MOST_HIDDEN: Final = 5_000
"""The events that the reader may not know of which one page passes over; then it is short as well."""

May = Callable[[Entry], bool]


@dataclass(frozen=True, slots=True)
class MergedPage:
    """Events by position, and where to read on. `more` when there may be some right now.

    Up to `lost` something was left out that cannot be read any more; 0: nothing was.
    """

    events: Sequence[Event]
    cursor: Cursor
    more: bool
    lost: Position = BEGINNING


class _ShardSource:
    """One shard, of which some events are known ahead."""

    def __init__(self, number: int, shard: Shard, after: Position, step: int) -> None:
        self._number = number
        self._shard = shard
        self._step = step
        self._position = after
        self.ahead: deque[Event] = deque()
        self.more = True
        self.lost = BEGINNING

    async def read(self, store: EventStore, topic_filter: str, until: Position) -> None:
        after = self._position
        reading = Reading(topic_filter, after, max(after, until))
        try:
            part = await store.read(self._shard, reading, self._step)
        except ArchivedError as error:  # this node knows no cold tier, so what is there is missed
            border = min(error.until, reading.until)
            part = Slice([], border, border < reading.until, lost=border)
        same = self._number == self._shard.number
        self.ahead.extend(part.events if same else [one._replace(shard=self._number) for one in part.events])
        self._position, self.more, self.lost = part.position, part.more, max(self.lost, part.lost)
        self._step = min(2 * self._step, MAX_STEP)

    @property
    def horizon(self) -> Position:
        """Up to where its events are known; what is behind that may come before those of other shards."""
        return self._position if self.more else END

    @property
    def place(self) -> Position:
        """Up to where all was given out."""
        return self.ahead[0].position - 1 if self.ahead else self._position


class Merge:
    """Reads the shards for one page of at most `limit` events that fit, and that the reader `may` know of.

    With `may`, the page is filled up with those behind what is passed over, and `more` speaks of them alone, as long
    as that is no more than `most_hidden`: nobody learns how much others have from what is left out.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        cursor: Cursor,
        limit: int,
        may: May | None = None,
        *,
        most_hidden: int = MOST_HIDDEN,
    ) -> None:
        # A page needs more of some shards than of others: events of a shard come in batches of dozens.
        step = min(limit, limit * 3 // (2 * len(shards)) + SPARE)
        step = step if may is None else max(step, LEAST_STEP)
        self._sources = [
            _ShardSource(number, shard, after, step)
            for number, (shard, after) in enumerate(zip(shards, cursor.positions, strict=True))
        ]
        self._limit = limit
        self._may = may
        self._given: list[Event] = []
        self._hidden = 0
        self._most_hidden = most_hidden

    async def page(self, store: EventStore, topic_filter: str, until: Position) -> MergedPage:
        """The page."""
        full = False
        for _ in range(ROUNDS):
            bare = [one for one in self._sources if one.more and not one.ahead]
            await asyncio.gather(*(one.read(store, topic_filter, until) for one in bare))
            full = self._take()
            if full or self._hidden >= self._most_hidden or not any(one.more for one in self._sources):
                break
        more = full if self._may else any(one.ahead for one in self._sources)
        return MergedPage(
            self._given,
            Cursor(tuple(one.place for one in self._sources)),
            more or any(one.more for one in self._sources),
            max(one.lost for one in self._sources),
        )

    def _take(self) -> bool:
        """Take what is next in the order of all shards; whether the page is full, and it is known what follows."""
        horizon = min(one.horizon for one in self._sources)
        following = sorted([event for one in self._sources for event in one.ahead if event.position <= horizon])
        taken: Counter[int] = Counter()
        full = False
        for event in following:
            shown = self._may is None or self._may(event.entry)
            if shown and len(self._given) == self._limit:
                full = True
                break
            taken[event.shard] += 1
            if shown:
                self._given.append(event)
            else:
                self._hidden += 1
        for number, count in taken.items():
            for _ in range(count):
                self._sources[number].ahead.popleft()
        return full or (self._may is None and len(self._given) == self._limit)
