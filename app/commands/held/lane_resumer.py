"""Has lanes go on that stand since a command failed, by the word of a person on this node."""

from __future__ import annotations

from typing import Final, Protocol

from app.commands.held.drainer import Drainer
from app.core.commands.command import Command
from app.core.profiles.lanes import CommandLane
from app.runtime.telemetry import Counters
from app.store.commands import CommandReader
from app.store.holds import HoldStore, Resumed


class LaneReader(CommandReader, HoldStore, Protocol):
    """Commands on record, and the lanes that they go through."""


class LaneResumer:
    """Resumes lanes. Whoever asks for it has judged that the caller may."""

    def __init__(self, *, store: LaneReader, drainer: Drainer, counters: Counters) -> None:
        self._store: Final = store
        self._drainer: Final = drainer
        self._counters: Final = counters

    async def stopped_by(self, device_id: str, lane: str) -> Command | None:
        """Return the command whose end has stopped a lane; None where it does not stand, or that is off the record."""
        stop = (await self._store.lane_now(device_id, CommandLane(lane, stops=True))).stop
        if stop is None:
            return None
        (command,) = await self._store.get([stop.command_id])
        return command

    async def resume(self, device_id: str, lane: str) -> Resumed:
        """Have it go on: the next in line is tried at once. Nothing happens to a lane that does not stand."""
        resumed = await self._store.resume(device_id, lane)
        if resumed.stop is not None:
            self._counters["lane.resumed"] += 1
        if resumed.follower is not None:
            self._drainer.begin(device_id, resumed.follower.command_id)
        return resumed
