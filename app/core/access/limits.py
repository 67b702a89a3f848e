"""Token buckets: how often somebody may do something.

A bucket holds up to `burst` tokens and gets `count` new ones in each period; what is done takes one. Of a cluster of N
nodes each has an N-th of the rate, as balancers spread the callers over them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from app.core.access.rules import Limit

MOST_BUCKETS: Final = 10_000


class Buckets:
    """One bucket for each key; the one that was used least recently is forgotten when there are too many."""

    def __init__(self, most: int = MOST_BUCKETS) -> None:
        self._most = most
        self._filled: dict[Hashable, tuple[float, int]] = {}
        """Tokens, and the instant at which there were so many; in the order of use."""

    def __len__(self) -> int:
        return len(self._filled)

    def take(self, wanted: Iterable[tuple[Hashable, Limit]], nodes: int, now_us: int) -> float:
        """Take one token from each bucket, or none at all: then the seconds until each will have one."""
        tokens = [(key, limit, self._tokens(key, limit, nodes, now_us)) for key, limit in wanted]
        wait = max((_missing(limit, held, nodes) for _, limit, held in tokens), default=0.0)
        if not wait:
            for key, _, held in tokens:
                self._put(key, held - 1, now_us)
        return wait

    def _tokens(self, key: Hashable, limit: Limit, nodes: int, now_us: int) -> float:
        full = max(1.0, limit.burst / nodes)
        held, since_us = self._filled.get(key, (full, now_us))
        return min(full, held + max(0, now_us - since_us) * _rate(limit, nodes))

    def _put(self, key: Hashable, tokens: float, now_us: int) -> None:
        self._filled.pop(key, None)
        if len(self._filled) >= self._most:
            del self._filled[next(iter(self._filled))]
        self._filled[key] = tokens, now_us


def _rate(limit: Limit, nodes: int) -> float:
    """Tokens in a microsecond on one of so many nodes."""
    return limit.count / limit.per_us / nodes


def _missing(limit: Limit, held: float, nodes: int) -> float:
    return 0.0 if held >= 1 else (1 - held) / _rate(limit, nodes) / 1_000_000
