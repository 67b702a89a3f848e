"""Permits for concurrency: how many commands a caller has open at the same time, here and on the other nodes.

An open command holds one permit of each limit that applies to it, until it ends. In a cluster each node gives out its
share of the permits, rounded up, and none while all that the nodes know of are held: so more may be open than the rule
says only by what several nodes began within the same second, and by one for each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Final

_DIGITS: Final = 9
"""Shares are fractions: three times a third of three permits must not be four."""


class ConcurrencyPermits:
    """The permits that are held on this node, by limit."""

    def __init__(self) -> None:
        self._taken: Final[dict[str, int]] = {}

    def taken(self) -> Mapping[str, int]:
        """The number of places held of each limit; limits of which none is held are left out."""
        return self._taken

    def free(self, key: str, most: int, share: float, others: float) -> int:
        """The number of places that may be given now of `most`: `share` is this node's part, others hold `others`."""
        own = self._taken.get(key, 0)
        return max(0, min(ceil(round(most * share, _DIGITS)) - own, ceil(most - others) - own))

    def place(self, keys: Iterable[str]) -> ConcurrencyPermit:
        """A permit of each of these limits, which is held from `enter` on."""
        return ConcurrencyPermit(self._taken, tuple(keys))


class ConcurrencyPermit:
    """A command holds it while it is open, and gives it back when it ends."""

    __slots__ = ("_entered", "_keys", "_taken")

    def __init__(self, taken: dict[str, int], keys: tuple[str, ...]) -> None:
        self._taken = taken
        self._keys = keys
        self._entered = False

    def enter(self) -> None:
        """Take it, once."""
        if not self._entered:
            self._entered = True
            for key in self._keys:
                self._taken[key] = self._taken.get(key, 0) + 1

    def leave(self) -> None:
        """Give it back, if it was taken."""
        if self._entered:
            self._entered = False
            for key in self._keys:
                left = self._taken[key] - 1
                if left:
                    self._taken[key] = left
                else:
                    del self._taken[key]
