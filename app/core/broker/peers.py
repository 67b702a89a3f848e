"""The addresses that clients come from: how many connections each has, and how often it says CONNECT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from app.core.access.limits import Buckets
from app.core.access.rules import Limit
from app.core.broker.bounds import BrokerBounds

SECOND_US: Final = 1_000_000


class PeerLimits:
    """Limits of each peer, an address or a network. One without a name has none: somebody else limits it."""

    def __init__(self, bounds: BrokerBounds, now: Callable[[], float]) -> None:
        self._most: Final = bounds.connections_per_peer
        self._pace: Final = Limit(bounds.connects_per_peer, SECOND_US, bounds.connects_per_peer)
        self._now = now
        self._open: Counter[str] = Counter()
        self._buckets: Final = Buckets()

    def full(self, peer: str) -> bool:
        """True if it has as many connections as it may have."""
        return bool(peer) and self._open[peer] >= self._most

    def arrive(self, peer: str) -> None:
        """Count one more connection, until it leaves."""
        if peer:
            self._open[peer] += 1

    def leave(self, peer: str) -> None:
        """Count one less."""
        if peer:
            self._open[peer] -= 1
            if not self._open[peer]:
                del self._open[peer]

    def may_connect(self, peer: str) -> bool:
        """Return False if it has said CONNECT too often just now; else it counts."""
        return not peer or not self._buckets.take([(peer, self._pace, 1.0)], round(self._now() * SECOND_US))
