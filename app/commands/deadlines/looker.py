"""Looks at the last word of a device, and judges a command by it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from app.commands.send.admission import READ_BUDGET, LastEvent
from app.core.clock import Clock, wall_us
from app.core.commands.command import Command
from app.core.errors import EventLogError, UnavailableError
from app.core.profiles.probes import Probe, ProbeFinding, ProbeLook, ToldState, Unsettled, judge_state
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.templates import facts_of


class StateLooker:
    """Reads last values. `profiles` are those that have probes, by name."""

    def __init__(self, *, profiles: Mapping[str, DeviceProfile], last_event: LastEvent, clock: Clock) -> None:
        self.profiles = {name: one for name, one in profiles.items() if one.probes}
        self._last_event = last_event
        self._clock = clock

    def probe_of(self, profile: str, method: str) -> Probe | None:
        """Return the probe of a method, if its profile has one."""
        known = self.profiles.get(profile)
        return None if known is None else known.probe_of(method)

    async def look(
        self, command: Command, probe: Probe, since: int, answered_at: int | None = None
    ) -> ProbeFinding | Unsettled:
        """Return what the state of the device says at this moment; `since` and `answered_at` as in `ProbeLook`."""
        topic = self.profiles[command.profile].topic_for(probe.topic, command.device_id)
        try:
            async with asyncio.timeout(READ_BUDGET.total_seconds()):
                event = await self._last_event(probe.database, topic)
        except (TimeoutError, EventLogError, UnavailableError):
            return Unsettled.BLIND
        told = None if event is None else ToldState(event.entry.value, event.position)
        look = ProbeLook(wall_us(self._clock), since, answered_at)
        return judge_state(probe, topic, told, look, facts_of(command))
