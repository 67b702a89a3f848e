"""Token buckets: how often somebody may do something, on several nodes together.

A bucket holds up to `burst` tokens and gets `count` new ones in each period; what is done takes one. Of a cluster each
node has a share of the rate and of the burst, as large as its part of what is asked for: callers need not be spread
evenly. Nodes tell each other once a second what they were asked for; while they cannot, the shares are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest, nsmallest
from typing import Final

from app.core.access.callers import Caller, CallerStanding
from app.core.access.rules import AccessRule, Limit, Per

MOST_BUCKETS: Final = 10_000
MOST_TOLD: Final = 200
"""The buckets of which other nodes are told: those that are asked for most."""
EQUAL: Final = 0.05
"""The part of a limit that is shared equally, so that a node that nobody has asked yet has something to give."""
_LEAST: Final = 0.05
"""A demand (requests in a second) that counts for none any more."""
_OPEN: Final = "open\n"
"""The beginning of the key under which nodes tell how many places of a limit are taken."""


def bucket_of(standing: CallerStanding, caller: Caller, rule: AccessRule, device: str) -> str:
    """The name of what is emptied: who shares the limit, and the rule."""
    per = Per.PRINCIPAL if rule.limit is None else rule.limit.per
    if per is Per.DEVICE:
        return f"device\n{device}\n{rule.name}"
    if per is Per.TENANT:
        return f"tenant\n{standing.tenant_id or ''}\n{rule.name}"
    if standing.principal is None:
        return f"subject\n{caller.issuer}\n{caller.subject}\n{rule.name}"
    return f"principal\n{standing.principal.id}\n{rule.name}"


class Buckets:
    """One bucket for each key. When there are too many, the half that was used longest ago is forgotten."""

    def __init__(self, most: int = MOST_BUCKETS) -> None:
        self._most = most
        self._filled: dict[str, tuple[float, int]] = {}
        """Tokens, and the instant at which there were so many."""

    def __len__(self) -> int:
        return len(self._filled)

    def take(self, wanted: Iterable[tuple[str, Limit, float]], now_us: int) -> float:
        """Take one token from each bucket, or none at all: then the seconds until each will have one.

        A bucket is wanted by its key, with its limit and with this node's share of that, up to 1.
        """
        wait, taken = 0.0, []
        for key, limit, share in wanted:
            held = self.left(key, limit, share, now_us)
            if held < 1:
                wait = max(wait, _missing(limit, share, held))
                self._set_back(key, now_us)
            taken.append((key, held - 1))
        if not wait:
            for key, held in taken:
                if len(self._filled) >= self._most and key not in self._filled:
                    self._forget()
                self._filled[key] = held, now_us
        return wait

    def left(self, key: str, limit: Limit, share: float, now_us: int) -> float:
        """The number of tokens in a bucket."""
        full = limit.burst * share
        if full < 1:
            full = 1.0
        found = self._filled.get(key)
        if found is None:
            return full
        held, since_us = found
        if now_us > since_us:
            held += (now_us - since_us) * limit.count / limit.per_us * share
        return full if held > full else held  # noqa: FURB136 - `min` takes as long as all before

    def _set_back(self, key: str, now_us: int) -> None:
        """A bucket of the future fills from now on: it would stay empty until a clock is where it had been."""
        held, since_us = self._filled.get(key, (0.0, now_us))
        if since_us > now_us:
            self._filled[key] = held, now_us

    def _forget(self) -> None:
        for one in nsmallest((self._most + 1) // 2, self._filled, key=lambda one: self._filled[one][1]):
            del self._filled[one]


class Shares:
    """This node's parts of limits. `nodes` tells how many nodes there are, `taken` which places are taken here.

    A place that is taken counts as demand, so that who keeps many open on one node has its share there.
    """

    def __init__(self, nodes: Callable[[], int], taken: Callable[[], Mapping[str, int]] = dict) -> None:
        self._nodes = nodes
        self._taken = taken
        self._asked: dict[str, int] = {}
        """The same since `tell` was called last."""
        self._current: dict[str, float] = {}
        """The shares of these, which are the same until somebody tells or hears something."""
        self._own: dict[str, float] = {}
        self._others: Mapping[str, float] | None = None
        """None: they were not heard yet, or cannot be."""

    def ask(self, key: str) -> float:
        """The share of a bucket, of which a token is asked for now."""
        share = self._current.get(key)
        if share is not None:
            self._asked[key] += 1
            return share
        share = self.of(key)
        asked = self._asked.get(key, 0)
        if asked or len(self._asked) < MOST_BUCKETS:
            self._asked[key] = asked + 1
            self._current[key] = share
        return share

    def of(self, key: str) -> float:
        """The share of a bucket. Over all nodes that know of each other it is 1."""
        nodes = self._nodes()
        if nodes <= 1:
            return 1.0
        if self._others is None:
            return 1 / nodes
        own = self._own.get(key, 0.0)
        total = own + self._others.get(key, 0.0)
        return EQUAL / nodes + (1 - EQUAL) * own / total if total else 1 / nodes

    def taken_elsewhere(self, key: str) -> float:
        """The number of places of which the others have told."""
        return 0.0 if self._others is None else self._others.get(_OPEN + key, 0.0)

    def tell(self) -> dict[str, float]:
        """Return what this node was asked for in a second, lately, for the others to hear.

        To be called once a second.
        """
        asked, self._asked, self._current = self._asked, {}, {}
        taken = self._taken()
        keys = self._own.keys() | asked.keys() | taken.keys()
        demand = {key: _demand(self._own.get(key), asked.get(key, 0) + taken.get(key, 0)) for key in keys}
        held = _most({_OPEN + key: float(count) for key, count in taken.items()}, MOST_TOLD // 2)
        self._own = {
            key: round(count, 2) for key, count in _most(demand, MOST_TOLD - len(held)).items() if count > _LEAST
        }
        return self._own | held

    def hear(self, told: Iterable[Mapping[str, float]] | None) -> None:
        """Take in what the others told last; None, when they cannot be heard."""
        self._current = {}
        if told is None:
            self._others = None
            return
        total: dict[str, float] = {}
        for one in told:
            for key, count in one.items():
                total[key] = total.get(key, 0.0) + count
        self._others = total


def _demand(before: float | None, now: int) -> float:
    return float(now) if before is None else (before + now) / 2


def _most(counts: Mapping[str, float], most: int) -> dict[str, float]:
    return dict(nlargest(most, counts.items(), key=lambda one: one[1]))


def _rate(limit: Limit, share: float) -> float:
    """Tokens in a microsecond."""
    return limit.count / limit.per_us * share


def _missing(limit: Limit, share: float, held: float) -> float:
    """Seconds until there is a whole token."""
    return (1 - held) / _rate(limit, share) / 1_000_000
