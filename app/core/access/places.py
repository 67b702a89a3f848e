"""Places: how many commands somebody has open at the same time, here and on the other nodes.

A command that is open takes one place of each limit that holds for it, until it ends. Of a cluster each node gives its
share of the places, rounded up, and none as long as those that the nodes know of are all taken: so what is open may
be more than the rule says only by what several nodes began within the same second, and by one for each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Final

_DIGITS: Final = 9
"""Shares are fractions: three times a third of three places must not be four."""


class Places:
    """Those that are taken here, by the limit."""

    def __init__(self) -> None:
        self._taken: Final[dict[str, int]] = {}

    def taken(self) -> Mapping[str, int]:
        """How many of each limit; of limits of which any are."""
        return self._taken

    def free(self, key: str, most: int, share: float, others: float) -> int:
        """How many this node may give now, of `most`, of which this is its share, and others have taken so many."""
        own = self._taken.get(key, 0)
        return max(0, min(ceil(round(most * share, _DIGITS)) - own, ceil(most - others) - own))

    def place(self, keys: Iterable[str]) -> ConcurrencyPermit:
        """A place of each of these limits, which is taken by `enter`."""
        return ConcurrencyPermit(self._taken, tuple(keys))


class ConcurrencyPermit:
    """What a command takes while it is open, and gives back when it ends."""

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
