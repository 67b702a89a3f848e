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
from app.store.holds import HoldStore, LaneStop, Resumed


class LaneReader(CommandReader, HoldStore, Protocol):
    """Commands on record, and the lanes that they go through."""


@dataclass(frozen=True, slots=True)
class LaneStopper:
    """The command that has stopped a lane, or one that could have where it is not known.

    `stop` is None of a lane that does not stand.
    """

    profile: str
    method: str
    stop: LaneStop | None


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
                return LaneStopper(command.profile, command.method, stop)
        known = self._profiles.get(profile)
        rules = () if known is None else known.lanes
        method = next((one.methods[0] for one in rules if one.lane.name == lane), lane)
        return LaneStopper(profile, method, stop)

    async def resume(self, device_id: str, lane: str, stop: LaneStop | None) -> Resumed:
        """Have it go on that stands for this reason: the next in line is tried at once.

        Nothing happens to a lane that does not stand, or stands for another reason by now: nobody has judged that one.
        """
        if stop is None:
            return Resumed(None)
        resumed = await self._store.resume(device_id, lane, stop.command_id)
        if resumed.stop is not None:
            self._counters["lane.resumed"] += 1
        if resumed.follower is not None:
            self._drainer.begin(device_id, resumed.follower.command_id)
        return resumed
