"""The events that references are of, read when they are lent: what was read lately is kept, up to some megabytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from app.core.events.event import Event, Position, Shard, size_of
from app.core.events.reading import MOST_PICKED
from app.store.events import Pickable

MOST_BYTES: Final = 8 * 1024 * 1024
"""The bytes of events that are kept on a node."""


class Originals:
    """StoreUnavailableError where the log does not answer, or has what this node cannot read."""

    def __init__(self, log: Pickable, most_bytes: int = MOST_BYTES) -> None:
        self._log = log
        self._most = most_bytes
        self._size = 0
        self._kept: OrderedDict[tuple[Shard, Position], Event] = OrderedDict()

    def keep(self, shard: Shard, events: Sequence[Event]) -> None:
        """Remember what was read: it will be lent soon."""
        for event in events:
            place = (shard, event.position)
            if place not in self._kept:
                self._kept[place] = event
                self._size += size_of(event.entry)
        while self._size > self._most:
            _, gone = self._kept.popitem(last=False)
            self._size -= size_of(gone.entry)

    async def pick(self, shard: Shard, positions: Sequence[Position]) -> list[Event | None]:
        """The event of each position; None for what the log does not have any more, or cannot read."""
        found = {one: self._kept[shard, one] for one in positions if (shard, one) in self._kept}
        missing = [one for one in dict.fromkeys(positions) if one not in found]
        for start in range(0, len(missing), MOST_PICKED):
            part = missing[start : start + MOST_PICKED]
            picked = await self._log.pick(shard, part)
            self.keep(shard, [*picked.events.values(), *picked.beside])
            found |= picked.events
        return [found.get(one) for one in positions]
