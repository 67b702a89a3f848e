"""The targets of a run, read a chunk at a time by whoever needs a few of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.store.fleets import CHUNK, FleetStore


class TargetList:
    """The frozen targets of a run that exists. The chunk that was read last is kept, so ask in their order."""

    def __init__(self, store: FleetStore, run_id: str) -> None:
        self._store = store
        self._run_id: Final = run_id
        self._begin = 0
        self._chunk: Sequence[Sequence[str]] = ()

    async def at(self, index: int) -> Sequence[str]:
        """Return the id and the profile of a target; two empty strings where the run is gone meanwhile."""
        if not self._begin <= index < self._begin + len(self._chunk):
            self._begin = index - index % CHUNK
            self._chunk = await self._store.targets(self._run_id, self._begin, self._begin + CHUNK)
        place = index - self._begin
        return self._chunk[place] if place < len(self._chunk) else ("", "")
