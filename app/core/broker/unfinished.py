"""Packets whose rest has not come yet: of all connections together they take no more than a bound."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class UnfinishedPackets(Generic[T]):
    """The bytes that are here of each one, by whose it is; the one that has begun first comes first."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._held: dict[T, int] = {}
        self.taken = 0

    @property
    def surplus(self) -> T | None:
        """The owner of the oldest one, if they take too much together: its rest had the most time to come."""
        return next(iter(self._held)) if self.taken > self._bound else None

    def note(self, owner: T, held: int, *, anew: bool = True) -> None:
        """Take note of the bytes that are here of a packet, which is another one than before if it has begun `anew`."""
        self.taken += held - self._held.get(owner, 0)
        if anew or not held:
            self._held.pop(owner, None)
        if held:
            self._held[owner] = held
