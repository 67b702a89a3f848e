"""Tells whether fleet runs stand: what of them is held is not sent meanwhile."""

from __future__ import annotations

from typing import Final, Protocol

from app.core.clock import Clock
from app.core.fleets.run import RunState
from app.store.fleets import RunRecord

KNOWN_SECONDS: Final = 0.5
"""A run that was read so lately is not read again."""
MOST_KNOWN: Final = 200
"""The number of runs that are remembered; a cluster drives 100."""
_STANDS: Final = (RunState.PAUSED, RunState.ABORTING, RunState.ABORTED)


class RunReader(Protocol):
    """The reader of fleet runs."""

    async def read(self, run_id: str) -> RunRecord | None:
        """Return a run, None if there is none. UnavailableError."""


class RunStands:
    """Remembers for a moment what it has read, as thousands of commands may belong to one run."""

    def __init__(self, runs: RunReader, clock: Clock) -> None:
        self._runs: Final = runs
        self._now: Final = clock.monotonic
        self._known: Final[dict[str, tuple[float, bool]]] = {}

    async def stands(self, run_id: str) -> bool:
        """Return whether a run is paused, or aborted. UnavailableError."""
        asked_at = self._now()
        read_at, stands = self._known.get(run_id, (-KNOWN_SECONDS, False))
        if asked_at - read_at < KNOWN_SECONDS:
            return stands
        record = await self._runs.read(run_id)
        stands = record is not None and record.status["state"] in _STANDS
        while len(self._known) >= MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[run_id] = asked_at, stands
        return stands
