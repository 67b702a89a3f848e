"""The store in Redis alone has these: starting checks, lost replies, a full memory, rights."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from app.core.cluster.wakeup import decode_wake_up
from app.core.commands.callback import Expectation
from app.core.commands.command import CommandState
from app.core.commands.routing import MatchResult
from app.core.errors import ConfigurationError, StoreUnavailableError
from app.core.profiles.correlation import Correlation
from app.store.commands import Query, Registered
from app.store.holds import Claimed
from app.store.redis.commands.store import RedisStateStore
from app.store.redis.driver.lane import CombinerOptions
from app.store.redis.driver.server import check_server
from tests.contract.store_backends import MINUTE, answer, by_order, by_value, registration
from tests.services import RedisProcess
from tests.stores import redis_store
from tests.unit.store.redis.proxy import Proxy
from tests.waiting import PATIENCE, eventually


@asynccontextmanager
async def opened(url: str, options: CombinerOptions | None = None) -> AsyncIterator[RedisStateStore]:
    store = redis_store(url, budget=timedelta(seconds=30), options=options)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def next_on(channel: PubSub) -> bytes:
    """Return what is published next."""
    async with asyncio.timeout(PATIENCE):
        async for message in channel.listen():
            if message["type"] == "message":
                data: bytes = message["data"]
                return data
    raise AssertionError("the channel ended")


async def test_starting_without_redis_says_so_and_can_be_repeated() -> None:
    server = RedisProcess()
    store = redis_store(server.url)
    with pytest.raises(StoreUnavailableError, match=r"Redis cannot be used now: .*Connect"):
        await store.start()
    with pytest.raises(StoreUnavailableError):
        await store.ping()
    with server:
        await store.start()
        await store.ping()
        await store.close()


async def test_F30_a_server_that_evicts_is_refused(redis_server: RedisProcess, client: Redis) -> None:
    await client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(ConfigurationError, match="maxmemory-policy allkeys-lru; needed is noeviction"):
            async with opened(redis_server.url):
                pass
    finally:
        await client.config_set("maxmemory-policy", "noeviction")


@pytest.mark.parametrize(
    ("info", "sentence"),
    [
        ({"redis_version": "5.0.14"}, "Redis 5.0.14; needed is 6.0"),
        ({}, "needed is 6.0"),
        (
            {"redis_version": "7.2.4", "redis_mode": "cluster"},
            "Redis Cluster, whose URL is redis\\+cluster://host:port",
        ),
    ],
)
def test_servers_that_cannot_be_used_are_named(info: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        check_server(info)


@pytest.mark.parametrize(
    "url", ["redis://localhost:port", "redis://localhost/0?no_such_option=1", "rediss://localhost?ssl_cert_reqs=maybe"]
)
def test_a_url_that_cannot_be_used_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(ConfigurationError, match="the store's URL cannot be used"):
        redis_store(url)


async def test_user_and_password_come_from_the_url_and_few_rights_are_enough() -> None:
    with RedisProcess("--requirepass", "top") as server:
        async with Redis(port=server.port, password="top") as admin:
            await admin.execute_command(  # type: ignore[no-untyped-call]
                "ACL", "SETUSER", "homing", "on", ">p%40ss", "~mqtt:*", "&mqtt:node:*",
                "+evalsha", "+script|load",
                "+hmget", "+hget", "+hset", "+hdel", "+hgetall", "+exists", "+zadd", "+zrem",
                "+zrange", "+zrangebyscore", "+zrevrangebyscore", "+zcard", "+get", "+set", "+pttl", "+pexpireat",
                "+pexpire", "+publish", "+time", "+ping", "+select", "+client|setname",
            )  # fmt: skip
            async with opened(f"redis://homing:p%2540ss@127.0.0.1:{server.port}/0") as store:
                wanted = registration("dock-1", by_order(), key="k", quarantine=MINUTE)
                await store.register(wanted)
                await store.mark(wanted.command_id, CommandState.SENT)
                await store.respond(answer(wanted, CommandState.RUNNING), "node-b")
                assert (await store.respond(answer(wanted), "node-b")).verdict is MatchResult.WON
                await store.sweep([0], "node-a", timedelta())
                await store.pending_of("node-a")
                assert len((await store.list_commands(Query())).commands) == 1
            wrong = redis_store(
                f"redis://homing:wrong@127.0.0.1:{server.port}/0",
                counters=Counter(),
            )
            with pytest.raises(StoreUnavailableError, match="invalid username-password pair"):
                await wrong.start()


async def test_F3_F25_with_replies_lost_at_random_each_step_happens_once(
    redis_server: RedisProcess, client: Redis
) -> None:
    chance = random.Random(7)
    async with Proxy(redis_server.port) as proxy, opened(proxy.url) as store, client.pubsub() as channel:
        await channel.subscribe("mqtt:node:node-a")

        async def one_life(number: int) -> None:
            proxy.cut_replies = chance.randint(0, 1)
            wanted = registration(f"dock-{number % 7}")
            assert isinstance(await store.register(wanted), Registered)
            recorded = await store.respond(answer(wanted), "node-b")
            assert recorded.verdict in (MatchResult.WON, MatchResult.DUPLICATE)
            assert recorded.outcome is not None

        for _ in range(15):
            await asyncio.gather(*(one_life(number) for number in range(20)))
        assert len((await store.list_commands(Query(limit=500))).commands) == 300
        assert await store.pending_of("node-a") == []
        await client.publish("mqtt:node:node-a", b"the end")
        woken = []
        while (data := await next_on(channel)) != b"the end":
            woken.append(decode_wake_up(data)[0])
        assert len(woken) == len(set(woken)) == 300


async def test_F11_a_repeated_response_by_order_does_not_end_the_next_command(
    redis_server: RedisProcess, client: Redis
) -> None:
    async with Proxy(redis_server.port) as proxy, opened(proxy.url) as behind, opened(redis_server.url) as direct:
        first, second = registration("dock-1", by_order()), registration("dock-1", by_order())
        await direct.register(first)
        proxy.cut_replies = 1
        proxy.shut()  # the step is carried out, the reply is lost, and the repetition has to wait
        responding = asyncio.create_task(behind.respond(answer(first), "node-b"))

        async def carried_out() -> bool:
            return await direct.outcomes([first.command_id]) != [None]

        await eventually(carried_out)
        await direct.register(second)
        proxy.reopen()
        recorded = await responding
        assert (recorded.verdict, recorded.command_id) == (MatchResult.DUPLICATE, first.command_id)
        assert recorded.outcome is not None
        assert await direct.outcomes([second.command_id]) == [None]


async def test_F17_a_repeated_response_for_open_commands_only_is_known_for_what_it_is(
    redis_server: RedisProcess,
) -> None:
    """Else the node would go on, and have the message answer a second command."""
    for place in (by_value("flight-7"), Expectation("thing/product/dock-1/services_reply", Correlation.ID)):
        async with Proxy(redis_server.port) as proxy, opened(proxy.url) as behind, opened(redis_server.url) as direct:
            wanted = registration("dock-1", place)
            await direct.register(wanted)
            proxy.cut_replies = 1
            recorded = await behind.respond(answer(wanted), "node-b", open_only=True)
            assert (recorded.verdict, recorded.command_id) == (MatchResult.DUPLICATE, wanted.command_id)
            again = await behind.respond(answer(wanted), "node-b", open_only=True)
            assert again.verdict is MatchResult.FINISHED


async def test_F22_a_large_outcome_is_not_sent_along_with_the_wake_up(
    redis_server: RedisProcess, client: Redis
) -> None:
    async with opened(redis_server.url) as store, client.pubsub() as channel:
        await channel.subscribe("mqtt:node:node-a")
        for size, inline in ((3000, True), (5000, False)):
            wanted = registration()
            await store.register(wanted)
            recorded = await store.respond(answer(wanted, result=b'"' + b"x" * size + b'"'), "node-b")
            assert decode_wake_up(await next_on(channel)) == (wanted.command_id, recorded.outcome if inline else None)


@pytest.mark.parametrize("listening", [True, False])
async def test_who_makes_an_outcome_is_told_whether_its_home_was_listening(
    redis_server: RedisProcess, client: Redis, *, listening: bool
) -> None:
    wanted = [registration(f"dock-{number}", timeout=timedelta(milliseconds=1)) for number in range(3)]
    answered, cancelled, overdue = wanted
    async with opened(redis_server.url) as store, client.pubsub() as channel:
        for one in wanted:
            await store.register(one)
        for name in (*([answered.home_node] if listening else []), "somebody-else"):
            await channel.subscribe(f"mqtt:node:{name}")
            assert await channel.get_message(timeout=PATIENCE)  # `subscribe` itself waits for no answer
        recorded = await store.respond(answer(answered), "node-b")
        assert recorded.outcome is not None
        assert recorded.outcome.home_heard is listening
        finished = await store.finish(cancelled.command_id, CommandState.CANCELLED, "node-b")
        assert finished.outcome.home_heard is listening
        async with asyncio.timeout(PATIENCE):
            while not (swept := await store.sweep(range(256), "node-b", timedelta())):
                pass  # its millisecond is not over yet
        assert [(one.command_id, one.home_heard) for one in swept] == [(overdue.command_id, listening)]


async def test_F31_at_maxmemory_registrations_are_refused_and_everything_else_goes_on() -> None:
    with RedisProcess("--maxmemory", "24mb") as server:
        async with opened(server.url) as store, Redis.from_url(server.url) as client:
            commands = [registration(f"dock-{i}", timeout=timedelta(seconds=0.001)) for i in range(1000)]
            by_order_too = registration("dock-x", by_order("dock-x"), quarantine=MINUTE)
            await asyncio.gather(*(store.register(one) for one in (*commands, by_order_too)))
            await fill(client)
            with pytest.raises(StoreUnavailableError, match="maxmemory"):
                await store.register(registration())
            await store.mark(commands[0].command_id, CommandState.SENT)
            result = b'"' + b"x" * 2000 + b'"'
            running = await store.respond(answer(commands[0], CommandState.RUNNING, result), "node-b")
            assert running.verdict is MatchResult.PROGRESS
            won = await asyncio.gather(*(store.respond(answer(one, result=result), "node-b") for one in commands[:900]))
            assert {one.verdict for one in won} == {MatchResult.WON}
            assert (await store.finish(by_order_too.command_id, CommandState.TIMED_OUT, "node-a")).won
            assert (await store.respond(answer(by_order_too), "node-b")).verdict is MatchResult.LATE
            swept = await store.sweep(range(256), "node-a", timedelta())
            assert len(swept) == 100
            stored = await store.get([one.command_id for one in commands[:900]])
            assert all(one is not None and one.result == result for one in stored)
            with pytest.raises(StoreUnavailableError, match="maxmemory"):
                await store.register(registration())


async def test_c128_at_maxmemory_what_is_held_is_claimed_and_ends_and_nothing_more_is_held() -> None:
    with RedisProcess("--maxmemory", "24mb") as server:
        async with opened(server.url) as store, Redis.from_url(server.url) as client:
            held = [registration(f"dock-{i}", held=MINUTE) for i in range(30)]
            await asyncio.gather(*(store.register(one) for one in held))
            await fill(client)
            with pytest.raises(StoreUnavailableError, match="maxmemory"):
                await store.register(registration(held=MINUTE))
            claimed = await asyncio.gather(*(store.claim(one.command_id, "node-b", "t1") for one in held[:20]))
            assert all(isinstance(one, Claimed) for one in claimed)
            assert await store.give_back(held[0].command_id, "t1")
            assert isinstance(await store.claim(held[0].command_id, "node-b", "t2"), Claimed)
            won = await asyncio.gather(*(store.respond(answer(one), "node-b") for one in held[:20]))
            assert {one.verdict for one in won} == {MatchResult.WON}
            assert (await store.finish(held[20].command_id, CommandState.CANCELLED, "node-b")).won
            assert len((await store.held()).entries) == 9


async def fill(client: Redis) -> None:
    """Until Redis takes no more."""
    number = 0
    for size in (100_000, 1000, 10):
        refused = False
        while not refused:
            number += 1
            try:
                await client.set(f"junk {number}", b"x" * size)
            except Exception as error:  # noqa: BLE001 - the driver's own error
                refused = "maxmemory" in str(error)
    used = (await client.info("memory"))["used_memory"]
    await client.config_set("maxmemory", used - 4_000_000)  # over the limit for good


async def test_no_error_of_the_driver_leaves_the_store() -> None:
    server = RedisProcess()
    server.start()
    store = redis_store(server.url, budget=timedelta(seconds=0.2))
    await store.start()
    server.__exit__(None, None, None)
    wanted = registration()
    for step in (
        store.ping(),
        store.register(wanted),
        store.finish(wanted.command_id, CommandState.CANCELLED, "node-a"),
        store.mark(wanted.command_id, CommandState.SENT),
        store.get([wanted.command_id]),
        store.outcomes([wanted.command_id]),
        store.list_commands(Query()),
        store.pending_of("node-a"),
        store.sweep([0], "node-a", timedelta()),
    ):
        with pytest.raises(StoreUnavailableError):
            await step
    responding = asyncio.create_task(store.respond(answer(wanted), "node-a"))
    await asyncio.sleep(0.3)
    assert not responding.done()
    await store.close()
    with pytest.raises(StoreUnavailableError):
        await responding


async def test_F34_a_hot_topic_costs_no_more(redis_server: RedisProcess, client: Redis) -> None:
    async with opened(redis_server.url) as store:
        commands = [registration() for _ in range(10_000)]
        for start in range(0, 10_000, 500):
            await asyncio.gather(*(store.register(one) for one in commands[start : start + 500]))
        work = [await processor_seconds(client)]
        for start in range(0, 10_000, 500):
            await asyncio.gather(*(store.respond(answer(one), "node-b") for one in commands[start : start + 500]))
            work.append(await processor_seconds(client))
        await store.sweep(range(256), "node-a", timedelta())
    each = [after - before for before, after in pairwise(work)]
    # The first 500 answers find forty times as many on their topic as the last 500 do.
    assert each[0] < 10 * each[-1], each


async def processor_seconds(client: Redis) -> float:
    """Return what Redis has worked so far, however long it had to wait for the processor."""
    used = await client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
