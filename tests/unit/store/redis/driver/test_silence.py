"""A Redis that takes connections and answers nobody counts as away soon; one that is slow elsewhere does not."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from app.core.errors import StoreUnavailableError
from app.store.redis.driver.combiner import Combiner
from app.store.redis.driver.lane import CombinerOptions
from app.store.redis.driver.pulse import answers
from app.store.redis.driver.server import connector
from tests.services import RedisProcess
from tests.unit.store.redis.proxy import Proxy
from tests.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BUDGET = 3600.0
"""More than a test has: only what is known of Redis ends a call before."""


@asynccontextmanager
async def combining(url: str, *, silent: float) -> AsyncIterator[tuple[Combiner, Counter[str]]]:
    """A connection is never given up: what ends calls is the silence alone."""
    counters: Counter[str] = Counter()
    options = CombinerOptions(answer_seconds=BUDGET, silent_seconds=silent)
    combiner = Combiner(connector(url), [], counters=counters, options=options)
    combiner.start()
    try:
        await combiner.call(("PING",), None)
        yield combiner, counters
    finally:
        await combiner.close()


def test_silence_is_noticed_in_a_quarter_of_a_second() -> None:
    assert CombinerOptions().silent_seconds == 0.25


async def test_F32_who_waits_for_a_frozen_redis_is_told_and_who_comes_then_too(redis_server: RedisProcess) -> None:
    async with combining(redis_server.url, silent=0.1) as (combiner, counters):
        with redis_server.paused():
            patient = asyncio.create_task(combiner.call(("PING",), None))
            async with asyncio.timeout(PATIENCE):
                for _ in range(3):
                    with pytest.raises(StoreUnavailableError, match="did not answer in time"):
                        await combiner.call(("PING",), BUDGET)
            assert counters["store.silent"] == 1
            assert combiner.connected
            assert not patient.done()
        assert await patient == b"PONG"
        assert await combiner.call(("PING",), BUDGET) == b"PONG"
        await eventually(lambda: combiner.within(BUDGET, asyncio.get_running_loop().time()) == BUDGET)


async def test_F32_a_slow_way_is_no_silence(redis_server: RedisProcess) -> None:
    """The connection of the calls stands still, and another one gets answers."""
    async with Proxy(redis_server.port) as proxy:
        first = [True]
        to_server, by_proxy = connector(redis_server.url), connector(proxy.url)

        def connect() -> object:
            through = by_proxy if first.pop() else to_server
            first.append(False)
            return through()

        counters: Counter[str] = Counter()
        options = CombinerOptions(answer_seconds=BUDGET, silent_seconds=0.05)
        combiner = Combiner(connect, [], counters=counters, options=options)  # type: ignore[arg-type]
        combiner.start()
        try:
            await combiner.call(("PING",), None)
            proxy.silent = True
            waiting = asyncio.create_task(combiner.call(("PING",), BUDGET))
            (lane,) = combiner._lanes
            await eventually(lambda: lane.asked_at)
            await asyncio.sleep(0.3)  # long enough for several looks
            assert counters["store.silent"] == 0
            assert not waiting.done()
            waiting.cancel()
        finally:
            await combiner.close()


async def test_the_pulse_is_felt_on_a_connection_of_its_own(redis_server: RedisProcess) -> None:
    connect = connector(redis_server.url)
    assert await answers(connect, PATIENCE)
    with redis_server.paused():
        assert not await answers(connect, 0.05)
    assert not await answers(connector("redis://127.0.0.1:1/0"), PATIENCE)
