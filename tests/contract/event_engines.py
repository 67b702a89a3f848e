"""The engines of the event log by name, each with and without a cold tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.cold_places import ColdEvents
from tests.contract.event_places import EventPlace, MemoryEvents, RedisEvents, RocksEvents, ShardedEvents
from tests.services import RedisProcess

ENGINES = ("memory", "rocks", "redis", "memory+cold", "rocks+cold", "redis+cold", "sharded")


def place_of(engine: str, folder: Path, request: pytest.FixtureRequest) -> EventPlace:
    """Return where an engine keeps events in a test."""
    hot, plus, _ = engine.partition("+")
    if plus:
        return ColdEvents(place_of(hot, folder, request), folder / "cold")
    if engine == "redis":
        server: RedisProcess = request.getfixturevalue("redis_server")
        return RedisEvents(server.url, server.node_url)
    if engine == "sharded":
        return ShardedEvents(request.getfixturevalue("redis_cluster"))
    return MemoryEvents(folder) if engine == "memory" else RocksEvents(folder)
