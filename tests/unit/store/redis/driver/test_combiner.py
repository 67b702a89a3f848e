"""The combiner on a real Redis: nobody gets another's reply, budgets are kept, outages are survived."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from app.core.errors import StoreRefusedError, StoreUnavailableError
from app.store.redis.driver.combiner import AWAY_BUDGET_SECONDS, Combiner
from app.store.redis.driver.lane import CombinerOptions, Script
from app.store.redis.driver.server import connector
from tests.services import RedisProcess
from tests.unit.store.redis.proxy import Proxy
from tests.waiting import PATIENCE, eventually, turns

ECHO = Script.of("return ARGV[1]")
KEY = ["mqtt:callback:{000}:x"]
BUDGET = 3600.0
"""More than a test has: nobody gets away with waiting for its end."""

PATIENT = CombinerOptions(answer_seconds=PATIENCE, silent_seconds=PATIENCE)
"""For tests that freeze Redis and are not about how soon that is noticed."""


@asynccontextmanager
async def combining(url: str, options: CombinerOptions | None = None) -> AsyncIterator[tuple[Combiner, Counter[str]]]:
    counters: Counter[str] = Counter()
    combiner = Combiner(connector(url), [ECHO], counters=counters, options=options, chance=random.Random(1))
    combiner.start()
    try:
        await combiner.call(("PING",), None)
        yield combiner, counters
    finally:
        await combiner.close()


async def echo(combiner: Combiner, tag: str, budget: float | None = BUDGET) -> str:
    reply = await combiner.run_script(ECHO, KEY, [tag], budget)
    assert isinstance(reply, bytes)
    return reply.decode()


@pytest.mark.parametrize("lanes", [1, 2])
async def test_F23_cancelled_callers_never_shift_the_replies_of_others(redis_server: RedisProcess, lanes: int) -> None:
    chance = random.Random(lanes)
    async with combining(redis_server.url, CombinerOptions(lanes=lanes)) as (combiner, _):
        calls: dict[str, asyncio.Task[str]] = {}
        for number in range(5000):
            calls[str(number)] = asyncio.create_task(echo(combiner, str(number)))
            if chance.random() < 0.3:
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                calls[chance.choice(list(calls)[-50:])].cancel()
        results = await asyncio.gather(*calls.values(), return_exceptions=True)
        replies = {tag: one for tag, one in zip(calls, results, strict=True) if not isinstance(one, BaseException)}
        assert all(tag == reply for tag, reply in replies.items())
        cancelled = [one for one in results if isinstance(one, asyncio.CancelledError)]
        assert len(replies) + len(cancelled) == 5000
        assert min(len(replies), len(cancelled)) > 300
        assert await echo(combiner, "after") == "after"
        assert combiner.outstanding == 0
        async with Redis.from_url(redis_server.url) as client:
            ours = [one for one in await client.client_list() if one["name"] == "homing"]
        assert len(ours) == lanes


async def test_what_queues_up_during_a_round_trip_is_the_next_pipeline(redis_server: RedisProcess) -> None:
    async with Proxy(redis_server.port) as proxy, combining(proxy.url) as (combiner, _):
        before = proxy.requests
        assert await asyncio.gather(*(echo(combiner, str(i)) for i in range(100))) == [str(i) for i in range(100)]
        assert proxy.requests - before < 20  # TCP may cut a pipeline into pieces
        before = proxy.requests
        await echo(combiner, "alone")
        assert proxy.requests - before == 1


async def test_F24_a_frozen_redis_is_noticed_and_all_is_well_after_it(redis_server: RedisProcess) -> None:
    options = CombinerOptions(answer_seconds=0.2)
    async with combining(redis_server.url, options) as (combiner, counters):
        with redis_server.paused():
            patient = asyncio.create_task(echo(combiner, "patient", None))
            hasty = await asyncio.gather(*(echo(combiner, "x", 0.1) for _ in range(50)), return_exceptions=True)
            assert all(isinstance(one, StoreUnavailableError) for one in hasty)
            await eventually(lambda: not combiner.connected)
            assert not patient.done()
        assert await patient == "patient"
        assert await asyncio.gather(*(echo(combiner, str(i)) for i in range(500))) == [str(i) for i in range(500)]
        assert counters["store.reconnected"] >= 1
        assert counters["store.timed_out"] == 50


async def test_F24_a_black_hole_is_noticed_and_left(redis_server: RedisProcess) -> None:
    options = CombinerOptions(answer_seconds=0.2)
    async with Proxy(redis_server.port) as proxy, combining(proxy.url, options) as (combiner, _):
        proxy.silent = True
        calls = [asyncio.create_task(echo(combiner, str(i), None)) for i in range(500)]
        await eventually(lambda: not combiner.connected)
        proxy.silent = False
        assert await asyncio.gather(*calls) == [str(i) for i in range(500)]


async def test_F25_lost_replies_cost_a_repetition_only(redis_server: RedisProcess) -> None:
    async with Proxy(redis_server.port) as proxy, combining(proxy.url) as (combiner, counters):
        for turn in range(20):
            proxy.cut_replies = 1 + turn % 2
            assert await asyncio.gather(*(echo(combiner, str(i)) for i in range(50))) == [str(i) for i in range(50)]
        assert counters["store.retried"] >= 20


async def test_F26_flushed_scripts_are_loaded_again_unnoticed(redis_server: RedisProcess) -> None:
    async with combining(redis_server.url) as (combiner, counters), Redis.from_url(redis_server.url) as client:
        over = asyncio.Event()

        async def flush() -> None:
            while not over.is_set():  # cancelling the driver's own client is not always heeded
                await client.script_flush()
                await asyncio.sleep(0.002)

        async def reloaded() -> bool:
            assert await asyncio.gather(*(echo(combiner, str(i)) for i in range(50))) == [str(i) for i in range(50)]
            return counters["store.scripts_reloaded"] > 2 * counters["store.reconnected"] + 2

        flushing = asyncio.create_task(flush())
        await eventually(reloaded)
        over.set()
        await flushing


async def test_F32_while_redis_is_away_callers_are_told_soon() -> None:
    with RedisProcess() as server:
        async with combining(server.url) as (combiner, _):
            patient = asyncio.create_task(echo(combiner, "patient", None))
            await patient
            server.kill()
            with pytest.raises(StoreUnavailableError):
                await echo(combiner, "x", 0.2)
            with pytest.raises(StoreUnavailableError):
                await asyncio.wait_for(echo(combiner, "x", BUDGET), PATIENCE)
            patient = asyncio.create_task(echo(combiner, "patient", None))
            await asyncio.sleep(0.1)
            assert not patient.done()
            server.start()
            assert await patient == "patient"
            assert await echo(combiner, "x") == "x"


async def test_F32_who_is_under_way_when_redis_dies_is_told_as_soon_as_who_comes_then() -> None:
    with RedisProcess() as server:
        async with combining(server.url, PATIENT) as (combiner, counters):
            (lane,) = combiner._lanes
            server.pause()
            under_way = asyncio.create_task(echo(combiner, "under way"))
            patient = asyncio.create_task(echo(combiner, "patient", None))
            await eventually(lambda: lane.asked_at)
            server.kill()
            with pytest.raises(StoreUnavailableError):
                await asyncio.wait_for(under_way, PATIENCE)
            assert counters["store.timed_out"] == 1
            assert not patient.done()
            server.start()
            assert await patient == "patient"


async def test_F32_a_redis_that_has_answered_by_the_time_its_pulse_is_felt_is_not_silent() -> None:
    with RedisProcess() as server:
        async with combining(server.url, PATIENT) as (combiner, counters):
            (lane,) = combiner._lanes
            server.pause()
            under_way = asyncio.create_task(echo(combiner, "under way"))
            await eventually(lambda: lane.asked_at)
            asked_at = lane.asked_at
            server.resume()
            await under_way
            server.kill()
            assert asked_at is not None
            await combiner._feel(lane, asked_at)
            assert not lane.silent
            assert counters["store.silent"] == 0


async def test_F32_a_frozen_redis_is_known_to_be_away_before_its_connection_is_given_up(
    redis_server: RedisProcess,
) -> None:
    async with combining(redis_server.url, PATIENT) as (combiner, _):
        (lane,) = combiner._lanes
        with redis_server.paused():
            first = asyncio.create_task(echo(combiner, "first"))
            await eventually(lambda: lane.asked_at)
            asked_at = lane.asked_at or 0.0
            assert combiner.within(2.0, asked_at + 0.9) == 2.0
            assert combiner.within(2.0, asked_at + 1.1) == AWAY_BUDGET_SECONDS
            assert combiner.connected
        assert await first == "first"
        await eventually(lambda: lane.asked_at is None)
        assert combiner.within(2.0, asked_at + 1.1) == 2.0


async def test_the_queue_is_bounded_and_the_patient_wait_for_room(redis_server: RedisProcess) -> None:
    options = replace(PATIENT, max_queue=10)
    async with combining(redis_server.url, options) as (combiner, counters):
        with redis_server.paused():
            first = asyncio.create_task(echo(combiner, "first"))
            await eventually(lambda: combiner.outstanding == 1)
            await turns()  # the lane has taken it
            queued = [asyncio.create_task(echo(combiner, str(i))) for i in range(10)]
            await turns()
            with pytest.raises(StoreUnavailableError, match="too many"):
                await echo(combiner, "one too many")
            patient = [asyncio.create_task(echo(combiner, str(i), None)) for i in range(25)]
            given_up = asyncio.create_task(echo(combiner, "given up", None))
            await turns()
            given_up.cancel()
            assert combiner.outstanding == 11
        assert await first == "first"
        assert await asyncio.gather(*queued) == [str(i) for i in range(10)]
        assert await asyncio.gather(*patient) == [str(i) for i in range(25)]
        assert counters["store.rejected"] == 1


async def test_an_error_belongs_to_its_caller_alone(redis_server: RedisProcess) -> None:
    async with combining(redis_server.url) as (combiner, counters):
        calls = [
            echo(combiner, "before"),
            combiner.call(("NO_SUCH_COMMAND",), None),
            echo(combiner, "after"),
        ]
        before, refused, after = await asyncio.gather(*calls, return_exceptions=True)
        assert (before, after) == ("before", "after")
        assert isinstance(refused, StoreRefusedError)
        assert counters["store.failed"] == 1
        assert counters["store.reconnected"] == 0


async def test_calls_that_are_refused_again_and_again_are_one_line(redis_server: RedisProcess) -> None:
    async with combining(redis_server.url) as (combiner, counters):
        with capture_logs() as logs:
            calls = [combiner.call(("NO_SUCH_COMMAND",), None) for _ in range(5)]
            replies = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(one) for one in replies} == {StoreRefusedError}
        assert [(one["event"], one["count"]) for one in logs] == [("store_refused", 1)]
        assert counters["store.failed"] == 5


async def test_a_busy_script_is_waited_for(redis_server: RedisProcess) -> None:
    async with combining(redis_server.url) as (combiner, _), Redis.from_url(redis_server.url) as client:
        await client.config_set("busy-reply-threshold", 20)
        endless = asyncio.ensure_future(client.eval("while true do end", 0))
        async with Redis.from_url(redis_server.url) as second:

            async def busy() -> bool:
                try:
                    return not await second.ping()
                except ResponseError as error:
                    return str(error).startswith("BUSY")

            await eventually(busy)
            with pytest.raises(StoreUnavailableError):
                await echo(combiner, "hasty", 0.1)
            patient = asyncio.create_task(echo(combiner, "patient", None))
            await asyncio.sleep(0.05)
            assert not patient.done()
            await second.script_kill()
        await asyncio.gather(endless, return_exceptions=True)
        assert await patient == "patient"
        await client.config_set("busy-reply-threshold", 5000)


@pytest.mark.parametrize("setting", ["min-replicas-to-write", "maxmemory"])
async def test_a_redis_that_takes_no_writes_is_read_over_the_same_connection(setting: str) -> None:
    with RedisProcess() as server:
        async with combining(server.url) as (combiner, counters), Redis.from_url(server.url) as client:
            await client.config_set(setting, 1)
            patient = asyncio.create_task(combiner.call(("SET", KEY[0], "patient"), None))
            await eventually(lambda: counters["store.retried"] >= 2)
            assert await combiner.call(("GET", KEY[0]), BUDGET) is None
            with pytest.raises(StoreUnavailableError):
                await asyncio.wait_for(combiner.call(("SET", KEY[0], "hasty"), BUDGET), PATIENCE)
            assert not patient.done()
            await client.config_set(setting, 0)
            assert await patient == b"OK"
            assert await combiner.call(("GET", KEY[0]), BUDGET) == b"patient"
            assert counters["store.reconnected"] == 0


async def test_closing_lets_everybody_fail_who_waits(redis_server: RedisProcess) -> None:
    async with combining(redis_server.url, CombinerOptions(max_queue=5)) as (combiner, _):
        with redis_server.paused():
            calls = [asyncio.create_task(echo(combiner, str(i), None)) for i in range(20)]
            await asyncio.sleep(0.01)
            await combiner.close()
            results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, StoreUnavailableError) for one in results)
        with pytest.raises(StoreUnavailableError):
            await echo(combiner, "late")
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("store combiner")]
