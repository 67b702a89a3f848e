"""Facts from the event log for the parts that send commands and reply to devices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from app.core.errors import HomingError
from app.core.events.event import Entry
from app.events.plane import EventPlane

PRESENCE_SECONDS: Final = 0.25
"""How long a command waits to be told that its device is away; then it is sent."""


class KnownFromEvents:
    """`plane` is None where no events are kept."""

    def __init__(self, plane: EventPlane | None) -> None:
        self._plane = plane

    async def offline_since(self, device_id: str) -> int | None:
        """Since when a device is known to be away, in microseconds since 1970; soon or not at all."""
        if self._plane is None:
            return None
        with suppress(TimeoutError, HomingError):
            async with asyncio.timeout(PRESENCE_SECONDS):
                return await self._plane.offline_since(device_id)
        return None

    async def last_entry(self, database: str | None, topic: str) -> Entry | None:
        """What was said last on a topic, in the database that a profile proposes."""
        if self._plane is None:
            return None
        found = await self._plane.value(self._plane.plan.name(database), topic)
        return None if found is None else found.entry

    def gone(self, node_id: str) -> None:
        """A node is dead, whose session is adopted."""
        if self._plane is not None:
            self._plane.gone(node_id)

    async def adopt(self, client_id: str, topic_filters: Sequence[str], idle: timedelta) -> int:
        """Take in what the events' session of a dead node holds; the number of messages."""
        return 0 if self._plane is None else await self._plane.adopt(client_id, topic_filters, idle)
