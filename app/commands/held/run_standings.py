"""Tells whether fleet runs stand or are over: what of them is held is not sent meanwhile, or never."""

from __future__ import annotations

from enum import StrEnum, auto
from typing import Final, Protocol

from app.core.clock import Clock
from app.core.fleets.run import RunState
from app.store.fleets import RunRecord

KNOWN_SECONDS: Final = 0.5
"""A run that was read so lately is not read again."""
MOST_KNOWN: Final = 200
"""The number of runs that are remembered; a cluster drives 100."""


class RunStanding(StrEnum):
    """The standing of a fleet run, for what is held of it."""

    GOES_ON = auto()
    STANDS = auto()
    """It is paused, or its driver is about to cancel what is held of it."""
    OVER = auto()
    """It has ended, and so have all its targets: a driver that was frozen has registered a command since."""


class RunReader(Protocol):
    """The reader of fleet runs."""

    async def read(self, run_id: str) -> RunRecord | None:
        """Return a run, None if there is none. UnavailableError."""


class RunStandings:
    """Remembers for a moment what it has read, as thousands of commands may belong to one run."""

    def __init__(self, runs: RunReader, clock: Clock) -> None:
        self._runs: Final = runs
        self._now: Final = clock.monotonic
        self._known: Final[dict[str, tuple[float, RunStanding]]] = {}

    async def of(self, run_id: str) -> RunStanding:
        """Return how a run stands. UnavailableError."""
        asked_at = self._now()
        read_at, standing = self._known.get(run_id, (-KNOWN_SECONDS, RunStanding.GOES_ON))
        if asked_at - read_at < KNOWN_SECONDS:
            return standing
        record = await self._runs.read(run_id)
        standing = RunStanding.GOES_ON if record is None else _standing(record.status["state"])
        while len(self._known) >= MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[run_id] = asked_at, standing
        return standing


def _standing(text: str) -> RunStanding:
    try:
        state = RunState(text)
    except ValueError:  # a later version has another state, which nobody here can judge
        return RunStanding.STANDS
    if state.final:
        return RunStanding.OVER
    return RunStanding.STANDS if state in (RunState.PAUSED, RunState.ABORTING) else RunStanding.GOES_ON
