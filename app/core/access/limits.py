"""Token buckets: how often somebody may do something, on several nodes together.

A bucket holds up to `burst` tokens and gets `count` new ones in each period; what is done takes one. Of a cluster each
node has a share of the rate and of the burst, as large as its part of what is asked for: callers need not be spread
evenly. Nodes tell each other once a second what they were asked for; while they cannot, the shares are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from typing import Final

from app.core.access.rules import Limit

MOST_BUCKETS: Final = 10_000
MOST_TOLD: Final = 200
"""Of so many buckets, those that are asked for most, the others are told."""
EQUAL: Final = 0.05
"""Which part of a limit is shared equally, so that a node that nobody has asked yet has something to give."""
_LEAST: Final = 0.05
"""A demand (requests in a second) that counts for none any more."""


class Buckets:
    """One bucket for each key; the one that was used least recently is forgotten when there are too many."""

    def __init__(self, most: int = MOST_BUCKETS) -> None:
        self._most = most
        self._filled: dict[str, tuple[float, int]] = {}
        """Tokens, and the instant at which there were so many; in the order of use."""

    def __len__(self) -> int:
        return len(self._filled)

    def take(self, wanted: Iterable[tuple[str, Limit, float]], now_us: int) -> float:
        """Take one token from each bucket, or none at all: then the seconds until each will have one.

        A bucket is wanted by its key, with its limit and with this node's share of that, up to 1.
        """
        tokens = [(key, limit, share, self.left(key, limit, share, now_us)) for key, limit, share in wanted]
        wait = max([_missing(limit, share, held) for _, limit, share, held in tokens], default=0.0)
        if not wait:
            for key, _, _, held in tokens:
                self._put(key, held - 1, now_us)
        return wait

    def left(self, key: str, limit: Limit, share: float, now_us: int) -> float:
        """How many tokens are in a bucket."""
        full = max(1.0, limit.burst * share)
        held, since_us = self._filled.get(key, (full, now_us))
        return min(full, held + max(0, now_us - since_us) * _rate(limit, share))

    def _put(self, key: str, tokens: float, now_us: int) -> None:
        self._filled.pop(key, None)
        if len(self._filled) >= self._most:
            del self._filled[next(iter(self._filled))]
        self._filled[key] = tokens, now_us


class Shares:
    """Which part of each limit is this node's. `nodes` tells how many there are."""

    def __init__(self, nodes: Callable[[], int]) -> None:
        self._nodes = nodes
        self._asked: dict[str, int] = {}
        """How often since `tell` was called last."""
        self._own: dict[str, float] = {}
        self._others: Mapping[str, float] = {}

    def ask(self, key: str) -> float:
        """The share of a bucket, of which a token is asked for now."""
        if len(self._asked) < MOST_BUCKETS or key in self._asked:
            self._asked[key] = self._asked.get(key, 0) + 1
        return self.of(key)

    def of(self, key: str) -> float:
        """The share of a bucket. Over all nodes that know of each other it is 1."""
        nodes = max(1, self._nodes())
        own = self._own.get(key, 0.0)
        total = own + self._others.get(key, 0.0)
        if nodes == 1 or not total:
            return 1 / nodes
        return EQUAL / nodes + (1 - EQUAL) * own / total

    def tell(self) -> dict[str, float]:
        """What this node was asked for in a second, lately, for the others to hear. To be called once a second."""
        asked, self._asked = self._asked, {}
        keys = self._own.keys() | asked.keys()
        demand = {key: (self._own.get(key, float(asked.get(key, 0))) + asked.get(key, 0)) / 2 for key in keys}
        most = nlargest(MOST_TOLD, demand.items(), key=lambda one: one[1])
        self._own = {key: round(count, 2) for key, count in most if count > _LEAST}
        return dict(self._own)

    def hear(self, told: Iterable[Mapping[str, float]]) -> None:
        """What the others told last; nothing, when they cannot be heard."""
        total: dict[str, float] = {}
        for one in told:
            for key, count in one.items():
                total[key] = total.get(key, 0.0) + count
        self._others = total


def _rate(limit: Limit, share: float) -> float:
    """Tokens in a microsecond."""
    return limit.count / limit.per_us * share


def _missing(limit: Limit, share: float, held: float) -> float:
    return 0.0 if held >= 1 else (1 - held) / _rate(limit, share) / 1_000_000
