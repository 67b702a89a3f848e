"""Client ids that several clients have: they take the session from each other, so each one waits longer than before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FIRST_WAIT: Final = 0.1
MOST_WAIT: Final = 5.0
QUIET_SECONDS: Final = 60.0
"""After so long without a take-over, the next one is the first again."""
LOOP: Final = 5
"""A client that has lost its connection does not take over so many times without such a pause."""
MOST_CONTESTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Contest:
    times: int
    last: float


class TakeOvers:
    """The last take-overs of each client id. The first one waits for nothing."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._contests: dict[str, _Contest] = {}

    @property
    def contested(self) -> list[str]:
        """The client ids that are taken over in a loop at this moment."""
        since = self._now() - QUIET_SECONDS
        return [name for name, one in self._contests.items() if one.times >= LOOP and one.last >= since]

    def wait(self, client_id: str) -> float:
        """Return the seconds that whoever takes this one over has to wait."""
        times = self._times(client_id)
        return min(MOST_WAIT, FIRST_WAIT * 2.0 ** min(times - 1, 10)) if times else 0.0

    def note(self, client_id: str) -> None:
        """It was taken over."""
        times = self._times(client_id)
        self._contests.pop(client_id, None)
        while len(self._contests) >= MOST_CONTESTS:
            del self._contests[next(iter(self._contests))]
        self._contests[client_id] = _Contest(times + 1, self._now())

    def _times(self, client_id: str) -> int:
        found = self._contests.get(client_id)
        return found.times if found is not None and self._now() - found.last <= QUIET_SECONDS else 0
