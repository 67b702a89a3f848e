"""Retained messages: the last one of each topic, for those who subscribe later (MQTT 5, section 3.3.1.3)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from app.core.broker.bounds import BrokerBounds
from app.core.broker.journal import BrokerJournal
from app.core.broker.message import Message

LEVEL_BYTES: Final = 400
"""Bytes that a level takes which has no message itself, roughly."""
MOST_AT_ONCE: Final = 2_000
"""Messages that are looked at in one go when they have expired: others wait meanwhile."""
_SPARE_INSTANTS: Final = 1_024


class _Level:
    """A level of topics: what follows, and the message whose topic ends here."""

    __slots__ = ("below", "message")

    def __init__(self) -> None:
        self.below: dict[str, _Level] = {}
        self.message: Message | None = None


class RetainedMessages:
    """In a tree of levels, so that a filter without wildcards costs next to nothing."""

    def __init__(self, bounds: BrokerBounds, journal: BrokerJournal | None = None) -> None:
        self.looked = 0
        """The levels that were looked at for filters, ever: what a filter costs, though it brings nothing."""
        self._bounds = bounds
        self._journal = journal or BrokerJournal()
        self._root = _Level()
        self._bytes = 0
        self._count = 0
        self._bare = 0
        """Levels that have no message themselves: a topic may bring 32 that no other one has."""
        self._instants: list[tuple[float, str]] = []
        """A heap of the instants at which messages expire, and their topics; of messages that are gone, too."""

    def __len__(self) -> int:
        return self._count

    def has_room(self, message: Message) -> bool:
        """True if it could be kept. One without payload takes none: it removes."""
        if not message.payload:
            return True
        level, missing = self._reach(message.topic)
        old = None if missing else level.message
        count = self._count + (old is None)
        bare = self._bare + missing - (old is None)  # each message may bring one, as `homing/DEVICE/state` does
        size = self._bytes + message.size - (0 if old is None else old.size) + max(0, bare - count) * LEVEL_BYTES
        return count <= self._bounds.retained and size <= self._bounds.retained_bytes

    def get(self, topic: str) -> Message | None:
        """The message of this topic."""
        level, missing = self._reach(topic)
        return None if missing else level.message

    def keep(self, message: Message) -> bool:
        """In place of the one before; without payload there is none afterwards [MQTT-3.3.1-6, -7]. False: no room."""
        if not message.payload:
            self.remove(message.topic)
            return True
        if not self.has_room(message):
            return False
        level = self._root
        for name in message.topic.split("/"):
            below = level.below.get(name)
            if below is None:
                below = level.below[name] = _Level()
                self._bare += 1
            level = below
        self._bare -= level.message is None
        self._journal.retain(message.topic, level.message, message)
        self._count_off(level.message)
        level.message = message
        self._count += 1
        self._bytes += message.size
        self._note_expiry(message)
        return True

    def remove(self, topic: str) -> None:
        """Remove the message of a topic, where there is one."""
        path, level = [], self._root
        for name in topic.split("/"):
            below = level.below.get(name)
            if below is None:
                return
            path.append((level, name))
            level = below
        if level.message is None:
            return
        self._journal.retain(topic, level.message, None)
        self._count_off(level.message)
        level.message = None
        self._bare += 1
        for above, name in reversed(path):
            one = above.below[name]
            if one.message is not None or one.below:
                return
            del above.below[name]
            self._bare -= 1

    def forget_expired(self, now: float) -> None:
        """Remove what has expired, though nobody asks for it, as it keeps others out; some of it, where it is much."""
        for _ in range(MOST_AT_ONCE):
            if not self._instants or self._instants[0][0] > now:
                return
            _, topic = heapq.heappop(self._instants)
            if (one := self.get(topic)) is not None and one.expired(now):
                self.remove(topic)

    def all(self) -> list[Message]:
        """All messages, also those of topics that begin with `$`, and those that have expired."""
        return list(self._below(self._root, ["#"]))

    def matching(self, topic_filter: str, now: float) -> list[Message]:
        """Yield those that a subscriber of the filter, which is not shared, gets; remove expired ones on the way."""
        found = list(self._below(self._root, topic_filter.split("/"), first=True))
        for one in found:
            if one.expired(now):
                self.remove(one.topic)
        return [one for one in found if not one.expired(now)]

    def is_wide(self, topic_filter: str, levels: int) -> bool:
        """True if a filter looks at more than so many levels."""
        return self._left(self._root, topic_filter.split("/"), levels, first=True) < 0

    def _left(self, level: _Level, wanted: list[str], left: int, *, first: bool = False) -> int:
        """Look at levels as `_below` does, until none is left to be looked at."""
        left -= 1
        if not wanted or left < 0:
            return left
        name, rest = wanted[0], wanted[1:]
        if name not in ("+", "#"):
            return self._left(level.below[name], rest, left) if name in level.below else left
        for one, below in level.below.items():
            if not (first and one.startswith("$")):
                left = self._left(below, wanted if name == "#" else rest, left)
                if left < 0:
                    break
        return left

    def _note_expiry(self, message: Message) -> None:
        if message.expires_at is None:
            return
        heapq.heappush(self._instants, (message.expires_at, message.topic))
        if len(self._instants) > self._count * 5 // 4 + _SPARE_INSTANTS:  # the rest are of messages that were replaced
            kept = self._below(self._root, ["#"])
            self._instants = [(one.expires_at, one.topic) for one in kept if one.expires_at is not None]
            heapq.heapify(self._instants)

    def _reach(self, topic: str) -> tuple[_Level, int]:
        """Return the last level on the way to a topic that there is, and how many are missing from there."""
        level, names = self._root, topic.split("/")
        for depth, name in enumerate(names):
            below = level.below.get(name)
            if below is None:
                return level, len(names) - depth
            level = below
        return level, 0

    def _count_off(self, message: Message | None) -> None:
        if message is not None:
            self._count -= 1
            self._bytes -= message.size

    def _below(self, level: _Level, wanted: list[str], *, first: bool = False) -> Iterator[Message]:
        """A wildcard in the first level does not stand for one that begins with `$` [MQTT-4.7.2-1]."""
        self.looked += 1
        if (not wanted or wanted[0] == "#") and level.message is not None:
            yield level.message  # `#` stands for the level above it as well
        if not wanted:
            return
        name, rest = wanted[0], wanted[1:]
        if name not in ("+", "#"):
            if name in level.below:
                yield from self._below(level.below[name], rest)
            return
        for one, below in level.below.items():
            if not (first and one.startswith("$")):
                yield from self._below(below, wanted if name == "#" else rest)
