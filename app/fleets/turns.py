"""The targets of a run that are looked at next: those that nobody has looked at yet, and those that were away."""

from __future__ import annotations

from typing import Final

from app.core.clock import Clock
from app.core.fleets.marks import TargetMark
from app.core.fleets.quorum import LabelRoom
from app.core.fleets.run import FleetRun, RunState

LOOKS: Final = 200
"""The number of devices whose presence one round asks for."""
AGAIN_SECONDS: Final = 2.0
"""A device that is away is asked for again after so long."""
_WAITING: Final = int(TargetMark.WAITING)


class TargetTurns:
    """Remembers which targets are away, so that thousands of them keep nobody from their turn."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._away: Final[dict[int, tuple[float, float]]] = {}
        """The instants since which a target is away, and of its next look. The next one to be looked at is first."""

    def due(self, run: FleetRun, room: LabelRoom) -> list[int]:
        """Return whom to look at in this round: of both kinds half at least, as far as there are so many.

        Those that were away come first, the one first whose last look is the longest ago. Nobody knows who of them is
        back, so none of them takes the room of others with its labels.
        """
        if run.state is not RunState.RUNNING:
            return []
        untried = self._untried(run, room.copy())
        tried = self._tried(run, room, max(LOOKS // 2, LOOKS - len(untried)))
        return [*tried, *untried[: LOOKS - len(tried)]]

    def is_there(self, index: int) -> None:
        """Note that a target is not known to be away."""
        self._away.pop(index, None)

    def is_away(self, index: int) -> float:
        """Note that a target is away, and return for how many seconds it is known to be."""
        now = self._now()
        since, _ = self._away.pop(index, (now, now))
        self._away[index] = since, now + AGAIN_SECONDS
        return now - since

    def _untried(self, run: FleetRun, room: LabelRoom) -> list[int]:
        """Look through the wave, in each round: of 100,000 targets that are not due, each costs next to nothing."""
        wave, found, full = run.status.wave, list[int](), room.full
        begin, end = run.ends[wave - 1] if wave else 0, run.ends[wave]
        for index, mark, kind in zip(range(begin, end), run.marks[begin:end], room.kinds.of[begin:end], strict=True):
            if mark == _WAITING and kind not in full and index not in self._away and room.takes(index):
                found.append(index)
                if len(found) == LOOKS:
                    break
        return found

    def _tried(self, run: FleetRun, room: LabelRoom, most: int) -> list[int]:
        now, found, ended = self._now(), list[int](), list[int]()
        for index, (_, again_at) in self._away.items():
            if again_at > now or len(found) == most:
                break
            if run.marks[index] != TargetMark.WAITING:
                ended.append(index)
            elif room.has(index):
                found.append(index)
        for index in ended:
            del self._away[index]
        return found
