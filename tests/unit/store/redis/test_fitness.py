"""A Redis that is changed under a running node: noticed, named, and forgiven when it is mended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from app.core.errors import StoreUnavailableError
from app.core.events.event import Database, Entry, Shard
from app.core.events.reading import Reading
from app.core.redis_address import RedisKind
from app.runtime.tasks import end
from app.store.redis.commands.store import RedisStateStore
from app.store.redis.driver import server
from app.store.redis.driver.lane import CombinerOptions
from tests.contract.event_places import RedisEvents
from tests.services import RedisProcess
from tests.stores import redis_store
from tests.waiting import PATIENCE, eventually, turns


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at more often than in life, where it is every three seconds."""
    assert server.LOOK_SECONDS <= 5
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.05)


@asynccontextmanager
async def opened(url: str, counters: Counter[str]) -> AsyncIterator[RedisStateStore]:
    store = redis_store(url, counters=counters)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def said_by(store: RedisStateStore) -> str:
    """Return what readiness would say."""
    try:
        await store.ping()
    except StoreUnavailableError as error:
        return str(error)
    return "ok"


async def test_F30_an_eviction_policy_that_is_set_at_run_time_is_noticed_and_its_end_as_well() -> None:
    counters: Counter[str] = Counter()
    with RedisProcess() as server:
        async with Redis.from_url(server.url) as admin, opened(server.node_url, counters) as store:

            async def says(words: str) -> bool:
                return words in await said_by(store)

            assert await says("ok")
            await admin.config_set("maxmemory-policy", "allkeys-lru")
            await eventually(lambda: says("maxmemory-policy allkeys-lru; needed is noeviction"))
            assert counters["store.unfit"] == 1
            await admin.config_set("maxmemory-policy", "noeviction")
            await eventually(lambda: says("ok"))
            assert counters["store.unfit"] == 1


async def test_a_primary_that_becomes_a_replica_is_named_with_its_primary() -> None:
    counters: Counter[str] = Counter()
    with RedisProcess() as server, RedisProcess() as primary:
        async with Redis.from_url(server.url) as admin, opened(server.node_url, counters) as store:

            async def says(words: str) -> bool:
                return words in await said_by(store)

            await admin.replicaof("127.0.0.1", primary.port)
            await eventually(
                lambda: says(f"this Redis is a replica of 127.0.0.1:{primary.port}, which takes no writes")
            )
            await admin.replicaof("NO", "ONE")
            await eventually(lambda: says("ok"))


async def test_a_replica_as_store_is_named_at_the_start_and_until_it_is_one_no_more() -> None:
    with RedisProcess() as primary, RedisProcess("--replicaof", f"127.0.0.1 {primary.port}") as replica:
        store = redis_store(
            replica.node_url,
            counters=Counter(),
            options=CombinerOptions(answer_seconds=5),
        )
        wanted = f"this Redis is a replica of 127.0.0.1:{primary.port}"
        with pytest.raises(StoreUnavailableError, match=wanted):
            await store.start()
        assert wanted in await said_by(store)
        async with Redis.from_url(replica.url) as admin:
            await admin.replicaof("NO", "ONE")
        await store.start()
        assert await said_by(store) == "ok"
        await store.close()


async def test_who_may_not_ask_is_refused_once() -> None:
    counters: Counter[str] = Counter()
    with RedisProcess() as server:
        async with Redis.from_url(server.url) as admin:
            await admin.execute_command("ACL", "SETUSER", "homing", "-info")  # type: ignore[no-untyped-call]
            async with opened(server.node_url, counters) as store:
                for _ in range(20):
                    await store.ping()
                assert counters["store.failed"] == 1


async def test_F30_a_log_of_its_own_redis_takes_nothing_while_that_evicts() -> None:
    """An event that is acknowledged might be gone at once. Those that are there can be read."""
    with RedisProcess() as server:
        place = RedisEvents(server.url, server.node_url)
        shard = Shard("events", 0)
        async with Redis.from_url(server.url) as admin:
            log = await place.open([Database("events", 1, ())])
            await log.append(shard, [Entry("a", b"1")])

            async def says(words: str) -> bool:
                try:
                    await log.append(shard, [Entry("a", b"2")])
                except StoreUnavailableError as error:
                    return words in str(error)
                return words == "ok"

            await admin.config_set("maxmemory-policy", "allkeys-lru")
            await eventually(lambda: says("maxmemory-policy allkeys-lru; needed is noeviction"))
            assert (await log.read(shard, Reading(), 10)).events
            await admin.config_set("maxmemory-policy", "noeviction")
            await eventually(lambda: says("ok"))
        await place.close()


@pytest.mark.parametrize("kind", [RedisKind.CLUSTER, RedisKind.SENTINEL])
async def test_a_server_that_was_replaced_a_moment_ago_is_no_fault_where_others_lead_on(kind: RedisKind) -> None:
    """Calls go to its successor, by the map of slots or by Sentinels, and no setting has to be changed."""
    asked = asyncio.Event()

    async def replaced() -> Sequence[bytes]:
        asked.set()
        return [b"redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\nrole:slave\r\nmaster_host:r2\r\n"]

    counters: Counter[str] = Counter()
    watch = server.ServerWatch(replaced, counters, kind)
    await watch.check()
    asked.clear()
    watching = asyncio.create_task(watch.run())
    async with asyncio.timeout(PATIENCE):
        await asked.wait()
    await turns()
    assert watch.unfit == ""
    assert not counters
    await end([watching])
