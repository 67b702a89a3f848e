"""A call that nobody waits for any more puts nothing on record, however late Redis carries it out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest

from app.core.errors import StoreUnavailableError
from app.runtime.system import SystemClock
from app.store.redis.commands.store import RedisStateStore
from tests.contract.store_backends import registration
from tests.services import RedisProcess
from tests.stores import redis_store
from tests.unit.assembly import ManualClock
from tests.waiting import eventually

BUDGET = timedelta(seconds=0.5)


@asynccontextmanager
async def opened(store: RedisStateStore) -> AsyncIterator[RedisStateStore]:
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def registers(store: RedisStateStore) -> bool:
    try:
        await store.register(registration())
    except StoreUnavailableError:
        return False
    return True


async def knows_the_clock(store: RedisStateStore) -> bool:
    """Return whether the store has asked Redis for its time, as each sweep does."""
    try:
        await store.sweep([0], "n1", timedelta())
    except StoreUnavailableError:
        return False
    return True


async def test_F32_a_frozen_redis_does_not_record_what_was_refused_long_ago() -> None:
    given_up = registration()
    with RedisProcess() as server:
        async with opened(redis_store(server.url, budget=BUDGET)) as store, opened(redis_store(server.url)) as patient:
            await eventually(partial(knows_the_clock, store))
            with server.paused():
                asked_at = SystemClock().monotonic()
                with pytest.raises(StoreUnavailableError):
                    await store.register(given_up)
                await eventually(lambda: SystemClock().monotonic() > asked_at + 2 * BUDGET.total_seconds() + 0.6)
            await eventually(partial(registers, store))  # on the same connection, and so behind it
            assert await patient.get([given_up.command_id]) == [None]


@pytest.mark.parametrize("seconds", [-7200, 7200])
async def test_a_redis_whose_clock_is_set_goes_on_recording(redis_server: RedisProcess, seconds: int) -> None:
    clock = ManualClock()
    async with opened(redis_store(redis_server.url, clock=clock)) as store:
        assert await knows_the_clock(store)
        clock.advance(seconds)  # to the store it is the clock of Redis that was set by as much the other way
        for _ in range(2):
            one = registration()
            await store.register(one)
            assert await store.get([one.command_id]) != [None]
