"""Members of a Redis Cluster are asked together, and nobody waits for the slowest."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from typing import Any

import pytest
from redis.exceptions import BusyLoadingError

from app.core.redis_address import Place, RedisAddress, RedisKind
from app.store.redis.driver import topology
from app.store.redis.driver.slots import SLOTS, parse_slots
from app.store.redis.driver.topology import View, read_slots

WHOLE = parse_slots([[0, SLOTS - 1, [b"127.0.0.1", 7000, b"a"]]], ("127.0.0.1", 7000))


async def test_a_member_that_answers_too_late_leaves_no_error_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """One was loading its data when its answer was wanted no more (found by R11-CLUSTER)."""

    async def ask(_address: RedisAddress, place: Place) -> View:
        if place[1] == 7000:
            return True, True, 1, WHOLE
        try:
            await asyncio.Event().wait()
        finally:
            raise BusyLoadingError("Redis is loading the dataset in memory")

    said: list[Mapping[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, told: said.append(told))
    monkeypatch.setattr(topology, "_ask", ask)
    assert await read_slots(RedisAddress(RedisKind.CLUSTER, [("127.0.0.1", 7000), ("127.0.0.1", 7001)])) is WHOLE
    await asyncio.sleep(0)
    gc.collect()
    assert said == []
