"""The last values of topics, as callers read them, and what they say of the presence of devices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from app.core.events.event import Event, Position
from app.core.events.plan import Plan
from app.core.events.presence import FILTER, Change, change_of, topic_of
from app.events.gate import LogGate
from app.events.reader import EventsReader
from app.store.events import EventLog


class LastValues:
    """Calls raise DatabaseNotFoundError, and StoreUnavailableError, also while the log is not open."""

    def __init__(self, log: EventLog, plan: Plan, reader: EventsReader, gate: LogGate) -> None:
        self._log = log
        self._plan = plan
        self._reader = reader
        self._gate = gate

    async def value(self, database: str | None, topic: str) -> Event | None:
        """The last value of a topic: in the database that is named, else the latest one of all."""
        found = await self.found(database, topic)
        return None if found is None else found[1]

    async def found(self, database: str | None, topic: str) -> tuple[str, Event] | None:
        """The last value of a topic, and the name of its database."""
        self._gate.check()
        shards = self._reader.shards(self._reader.scope(database, topic).databases)
        values = await asyncio.gather(*(self._log.value(shard, topic) for shard in shards))
        # A topic has one shard, but may have had another one under other profiles.
        known = [(shard.database, event) for shard, event in zip(shards, values, strict=True) if event is not None]
        return max(known, key=lambda one: one[1].position, default=None)

    async def latest(self, topic: str, device_id: str = "") -> Event | None:
        """Return the last value of a topic, as far as it lies where its events go now: it asks one shard.

        Homing's own topics about a device lie in the first database, where all of that device does; it is named then.
        """
        self._gate.check()
        own = self._plan.database(self._plan.kept[0].name) if device_id else None
        shard = self._plan.shard(self._plan.home(topic), topic) if own is None else own.shard(device_id)
        return await self._log.value(shard, topic)

    async def database_of(self, topic: str) -> str:
        """The database of a topic where none is named: that of its last value, else that of its profile."""
        found = await self.found(None, topic)
        return self._plan.home(topic) if found is None else found[0]

    async def values_of(self, device_id: str) -> list[Event]:
        """The last values on the topics of a device, in the order of the topics."""
        self._gate.check()
        topics = dict.fromkeys(self._plan.topics_of(device_id))
        found = await asyncio.gather(*(self.value(database, topic) for database, topic in topics))
        return sorted((event for event in found if event is not None), key=lambda event: event.entry.topic)

    async def latest_of(self, device_id: str) -> list[Event]:
        """The last values on the topics of a device, as far as they lie where its events go now.

        It asks one shard for each topic where `values_of` asks all, for those who look at many devices.
        """
        self._gate.check()
        topics = dict.fromkeys(self._plan.topics_of(device_id))
        asked = (self._log.value(self._plan.shard(database, topic), topic) for database, topic in topics)
        return [one for one in await asyncio.gather(*asked) if one is not None]

    async def topics(self, database: str | None, topic_filter: str, after: str, limit: int) -> list[Event]:
        """Last values by topic, behind this topic."""
        self._gate.check()
        shards = self._reader.shards(self._reader.scope(database, topic_filter).databases)
        found = await asyncio.gather(*(self._log.values(shard, topic_filter, after, limit) for shard in shards))
        latest: dict[str, Event] = {}
        for event in sorted(event for part in found for event in part):
            latest[event.entry.topic] = event
        return [latest[topic] for topic in sorted(latest, key=str.encode)[:limit]]


class DevicePresence:
    """The presence of devices, from last values. `is_heard` tells whether some node listens to devices now."""

    def __init__(self, values: LastValues, plan: Plan, is_heard: Callable[[], Awaitable[bool]]) -> None:
        self._values = values
        self._database: Final = plan.kept[0].name
        self._is_heard = is_heard

    async def presence_of(self, device_id: str) -> tuple[Change, Position] | None:
        """Return whether the device is there, and since when; None when nobody has heard of it."""
        found = await self.event_of(device_id)
        return None if found is None else change_of(found.entry)

    async def event_of(self, device_id: str) -> Event | None:
        """Return the event that told its latest change; None when nobody has heard of it."""
        return await self._values.value(self._database, topic_of(device_id))

    async def told(self, after: str, limit: int) -> list[Event]:
        """Return the events that told the latest changes of all devices, by topic, behind this topic."""
        return await self._values.topics(self._database, FILTER, after, limit)

    async def offline_since(self, device_id: str) -> Position | None:
        """The instant since which the device is known to be away: it has said so, or its will, and has not come back.

        None where there is no such evidence: nobody has heard of it, only its silence tells, or no node listens now.
        """
        found = await self.presence_of(device_id)
        if found is None or found[0].online or not found[0].said or not await self._is_heard():
            return None
        return found[1]
