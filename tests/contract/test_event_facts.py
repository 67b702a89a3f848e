"""The view that the doctor has of an event log in Redis, with the rights of a node."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

from app.core.events.event import Entry, Shard
from app.runtime.system import SystemClock
from app.store.redis.driver.role import open_role
from app.store.redis.events.facts import inspect_events
from tests.contract.event_places import DATABASES, RedisEvents
from tests.services import RedisProcess


async def test_it_sees_who_brings_events_in_and_what_is_kept() -> None:
    clock = SystemClock()
    with RedisProcess() as server:
        place = RedisEvents(server.url, server.node_url)
        nobody = await asyncio.to_thread(inspect_events, server.node_url, DATABASES, "homing-intake", clock.wall)
        assert (nobody.holder, nobody.size, nobody.latest, nobody.oldest) == (None, 0, 0, {})
        log = await place.open()
        first = await log.append(Shard("telemetry", 0), [Entry("a", b"1")])
        last = await log.append(Shard("telemetry", 0), [Entry("a", b"2")])
        role = open_role(
            server.node_url,
            "homing-intake",
            "node-7 secret",
            lease=timedelta(seconds=60),
            clock=clock,
            counters=Counter(),
        )
        await role.hold()
        seen = await asyncio.to_thread(inspect_events, server.node_url, DATABASES, "homing-intake", clock.wall)
        (about,) = await log.generations("telemetry")
        assert (seen.holder, seen.size, seen.latest, seen.oldest) == ("node-7", about.size, last, {"telemetry": first})
        assert seen.maxmemory == 0
        assert abs(seen.clock_off) < 60
        await role.close()
        await place.close()
