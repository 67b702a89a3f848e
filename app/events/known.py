"""Facts from the event log for the parts that send commands and reply to devices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from app.core.errors import HomingError
from app.core.events.event import Entry, Event
from app.core.events.presence import Whereabouts
from app.events.plane import EventPlane, needed
from app.events.shared_intake import NodeSession

PRESENCE_SECONDS: Final = 0.25
"""The time for which a command waits to be told that its device is away; then it is sent."""


class KnownFromEvents:
    """`plane` is None where no events are kept."""

    def __init__(self, plane: EventPlane | None) -> None:
        self._plane = plane

    async def offline_since(self, device_id: str) -> int | None:
        """The instant since which a device is known to be away, in microseconds since 1970; soon or not at all."""
        if self._plane is None:
            return None
        with suppress(TimeoutError, HomingError):
            async with asyncio.timeout(PRESENCE_SECONDS):
                return await self._plane.presence.offline_since(device_id)
        return None

    async def online(self, device_id: str) -> bool | None:
        """Say whether a device is there: False where it, or its will, has said that it goes; None if nobody knows."""
        return (await self.whereabouts(device_id)).online

    async def whereabouts(self, device_id: str) -> Whereabouts:
        """Return whether a device is there, as `online` says it, and since when; soon or not at all."""
        if self._plane is None:
            return Whereabouts(None)
        with suppress(TimeoutError, HomingError):
            async with asyncio.timeout(PRESENCE_SECONDS):
                found = await self._plane.presence.presence_of(device_id)
                if found is not None and found[0].online:
                    return Whereabouts(True, found[1])
                since = await self._plane.presence.offline_since(device_id)
                return Whereabouts(None if since is None else False, since)
        return Whereabouts(None)

    async def last_entry(self, database: str | None, topic: str) -> Entry | None:
        """Return the last entry on a topic, in the database that a profile proposes."""
        if self._plane is None:
            return None
        found = await self._plane.values.value(self._plane.plan.name(database), topic)
        return None if found is None else found.entry

    async def last_event(self, database: str | None, topic: str) -> Event | None:
        """Return what `last_entry` does, with its position; EventsOffError where no events are kept."""
        plane = needed(self._plane)
        return await plane.values.value(plane.plan.name(database), topic)

    async def latest(self, topic: str, device_id: str = "") -> Event | None:
        """Return the last event of a topic, as `LastValues.latest` does; EventsOffError where none are kept."""
        return await needed(self._plane).values.latest(topic, device_id)

    def gone(self, node_id: str) -> None:
        """A node is known to be dead: this one brings events in for it, without waiting for the end of its lease."""
        if self._plane is not None:
            self._plane.intake.gone(node_id)

    async def adopt(self, client_id: str, topic_filters: Sequence[str], idle: timedelta) -> int:
        """Take in what a dead node's session of events holds, where it had one; how many messages that were.

        `client_id` and `topic_filters` are those of the session of its commands. BrokerUnavailableError.
        """
        if self._plane is None or self._plane.shared is None:
            return 0
        return await self._plane.shared.adopt(NodeSession(client_id, topic_filters), idle)
