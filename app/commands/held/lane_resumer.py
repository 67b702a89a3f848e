"""Has lanes go on that stand since a command failed, by the word of a person on this node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from app.commands.held.drainer import Drainer
from app.core.profiles.lanes import CommandLane
from app.core.profiles.profile import DeviceProfile
from app.runtime.telemetry import Counters
from app.store.commands import CommandReader
from app.store.holds import HoldStore, Resumed


class LaneReader(CommandReader, HoldStore, Protocol):
    """Commands on record, and the lanes that they go through."""


@dataclass(frozen=True, slots=True)
class LaneStopper:
    """The command that has stopped a lane, or one that could have; `command_id` is None of the latter."""

    profile: str
    method: str
    command_id: str | None = None


class LaneResumer:
    """Resumes lanes. Whoever asks for it has judged that the caller may."""

    def __init__(
        self, *, store: LaneReader, drainer: Drainer, profiles: Mapping[str, DeviceProfile], counters: Counters
    ) -> None:
        self._store: Final = store
        self._profiles: Final = profiles
        self._drainer: Final = drainer
        self._counters: Final = counters

    async def stop_of(self, device_id: str, lane: str, profile: str) -> LaneStopper:
        """Return what has stopped a lane: the right to send that is the right to resume it.

        Where the lane does not stand, or the command is off the record, a command of the lane in this profile counts.
        """
        stop = (await self._store.lane_now(device_id, CommandLane(lane, stops=True))).stop
        if stop is not None:
            (command,) = await self._store.get([stop.command_id])
            if command is not None:
                return LaneStopper(command.profile, command.method, command.id)
        known = self._profiles.get(profile)
        rules = () if known is None else known.lanes
        return LaneStopper(profile, next((one.methods[0] for one in rules if one.lane.name == lane), lane))

    async def resume(self, device_id: str, lane: str) -> Resumed:
        """Have it go on: the next in line is tried at once. Nothing happens to a lane that does not stand."""
        resumed = await self._store.resume(device_id, lane)
        if resumed.stop is not None:
            self._counters["lane.resumed"] += 1
        if resumed.follower is not None:
            self._drainer.begin(device_id, resumed.follower.command_id)
        return resumed
