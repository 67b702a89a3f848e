"""The last positions of shards, as this process knows them, and what shards are told that have forgotten theirs.

A replica that is promoted, or a server that was started again, may not have the last events, though readers have them.
Whoever finds a shard behind what they know of lets it go on behind that, and readers are told of the span (ADR 0246).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

import structlog

from app.core.errors import StoreUnavailableError
from app.core.events import keys
from app.core.events.event import BEGINNING, Position, Shard
from app.core.events.reading import ForgottenSpan
from app.store.redis.driver.scripts import FORGOT_EVENTS
from app.store.redis.events.calls import EventCalls, parsing

MOST_SPANS: Final = 16
"""The spans that a shard remembers, the latest ones."""
AGAIN_SECONDS: Final = 1.0
"""The time without a further attempt to tell a shard, after one that failed: Redis may be full."""

_log = structlog.get_logger(__name__)


class ShardEnds:
    """The ends that this process knows of. `known` is noted before a shard is asked: it may grow until it answers."""

    def __init__(self, calls: EventCalls, counters: Counter[str]) -> None:
        self._calls = calls
        self._counters = counters
        self._known: dict[Shard, Position] = {}
        self._again_at = 0.0

    def known(self, shard: Shard) -> Position:
        """The last position that was given out, if only before the server forgot it."""
        return self._known.get(shard, BEGINNING)

    def see(self, shard: Shard, position: Position) -> None:
        """The shard has got so far."""
        self._known[shard] = max(position, self.known(shard))

    async def agreed(self, shard: Shard, known: Position, head: Position) -> Position:
        """The head as it is once the shard was told of what was known when it was asked; it had this one."""
        if head >= known:
            self.see(shard, head)
            return head
        now = asyncio.get_running_loop().time()
        if now < self._again_at:
            return head
        try:
            return await self.tell(shard, known)
        except StoreUnavailableError:  # reading goes on; somebody tells it later
            self._again_at = now + AGAIN_SECONDS
            return head

    async def tell(self, shard: Shard, known: Position) -> Position:
        """Let the shard go on behind this position; StoreUnavailableError. Returns where it is then, or behind that."""
        span = await self._calls.run(FORGOT_EVENTS, [keys.state(shard)], [known, MOST_SPANS])
        if not span:  # somebody else was faster
            return known
        after, until = int(span[0]), int(span[1])
        self.see(shard, until)
        self._counters["events.forgotten"] += 1
        _log.error("events_forgotten", shard=str(shard), after=after, known=known, until=until)
        return until


def spans_of(key: str, text: bytes | None) -> Sequence[ForgottenSpan]:
    """The spans that a shard remembers; StoreUnavailableError."""
    if text is None:
        return ()
    with parsing(key):
        spans = [map(int, one.split(b"-")) for one in text.split()]
        return [ForgottenSpan(after, until) for after, until in spans]
