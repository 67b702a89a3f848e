"""The ends of commands that the store did not take when they were due."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Final, NamedTuple

from app.core.clock import Clock
from app.core.commands.command import CommandState

RETRY_SECONDS: Final = 0.2
"""The pause between two tries, while the store takes nothing."""
AT_ONCE: Final = 500
"""The most ends that are under way at the same time, where the store takes them."""


class Due(NamedTuple):
    """A command that is to end at an instant, and how. It sorts by that instant."""

    at: float
    command_id: str
    state: CommandState
    error: bytes | None
    kept_at: float = 0.0
    only_held: bool = False


class MissedEnds:
    """While the store takes none, one of them is tried now and then, as the others would fail too; then all follow.

    They take turns: a Redis Cluster without one of its primaries takes some, and others not.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: deque[Due] = deque()
        self._at_once = 1
        self._next_at = 0.0

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[Due]:
        return iter(self._ends)

    @property
    def next_at(self) -> float:
        """The instant of the next try; infinite where there is nothing to be tried."""
        return self._next_at if self._ends else inf

    def add(self, due: Due) -> None:
        """Try it later."""
        if not self._ends:
            self._next_at = self._clock.monotonic() + RETRY_SECONDS
        self._ends.append(due)

    def pop_due(self, concerns_us: Callable[[Due], bool]) -> list[Due]:
        """Take out what is to be tried now; what does not concern us any more is forgotten."""
        now = self._clock.monotonic()
        some: list[Due] = []
        if now >= self.next_at:
            while self._ends and len(some) < self._at_once:
                due = self._ends.popleft()
                if concerns_us(due):
                    some.append(due)
            self._at_once, self._next_at = 1, now + RETRY_SECONDS
        return some

    def taken(self) -> None:
        """Note that the store took what was tried: it takes more."""
        self._at_once, self._next_at = AT_ONCE, self._clock.monotonic()
