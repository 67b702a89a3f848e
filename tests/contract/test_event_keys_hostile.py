"""Keys of the event log in Redis that somebody else wrote: every call ends, with an error that says so, or does its
work. None is a mistake of Homing, for such a mistake would end the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from app.core.errors import EventLogError, StoreUnavailableError
from app.core.events import keys
from app.core.events.batches import BatchId
from app.core.events.event import MOST_VALUE_BYTES, MOST_VALUES, Database, Entry, Shard, TenantShares
from app.core.events.generation import ColdFile
from app.core.events.reading import Reading
from app.core.events.transaction import Transaction, ValueCondition
from app.store.events import EventStore
from tests.contract.event_places import RedisEvents
from tests.services import RedisProcess
from tests.waiting import PATIENCE

TENANTS = TenantShares(lambda: 2, lambda device: device)
DATABASE = Database("events", 1, (), MOST_VALUES, MOST_VALUE_BYTES, TENANTS)
SHARD = Shard("events", 0)
BATCH = BatchId("writer", 1)
KEYS = {
    "slab": f"{keys.slabs(SHARD)}1",
    "shard": keys.state(SHARD),
    "cuts": keys.cuts(SHARD),
    "cold": keys.cold(SHARD),
    "latest": keys.latest(SHARD),
    "topics": keys.topics(SHARD),
    "owners": keys.owners(SHARD),
    "shares": keys.shares(SHARD),
    "writers": keys.writers(SHARD),
    "structures": keys.structures("events"),
    "database": keys.shards("events"),
}
RUBBISH = b"\xff\x00rubbish"
"""No number, no JSON, and no UTF-8."""


async def type_of(admin: Redis, key: str) -> str:
    held: Any = await admin.type(key)
    return str(held.decode())


async def another_type(admin: Redis, key: str) -> None:
    held = await type_of(admin, key)
    await admin.delete(key)
    if held == "list":
        await admin.set(key, RUBBISH)
    else:
        await admin.rpush(key, RUBBISH)


async def another_content(admin: Redis, key: str) -> None:
    """Rubbish where it is possible: in each value, and as one more name."""
    match await type_of(admin, key):
        case "hash":
            held: Any = await admin.hgetall(key)
            await admin.hset(key, mapping=dict.fromkeys([*held, RUBBISH], RUBBISH))
        case "zset":
            await admin.zadd(key, {RUBBISH: 0})
        case "stream":
            await admin.xadd(key, {RUBBISH: RUBBISH}, id=f"{2**60}-0")
        case _:
            await admin.set(key, RUBBISH)


CALLS: dict[str, Callable[[EventStore], Awaitable[object]]] = {
    "read": lambda log: log.read(SHARD, Reading(), 10),
    "read one topic": lambda log: log.read(SHARD, Reading("a"), 10),
    "read a generation": lambda log: log.read(SHARD, Reading(generation=1), 10),
    "wait": lambda log: log.wait("events", [0]),
    "value": lambda log: log.value(SHARD, "a"),
    "values": lambda log: log.values(SHARD, "#", "", 10),
    "structures": lambda log: log.structures("events"),
    "generations": lambda log: log.generations("events"),
    "append": lambda log: log.append(SHARD, [Entry("a", b"2", "other"), Entry("b", b"2", "other")]),
    "append a batch": lambda log: log.append(SHARD, [Entry("c", b"2")], 7, BATCH._replace(number=2)),
    "commit": lambda log: log.commit(Transaction(SHARD, (ValueCondition("a", 1),), (Entry("a", b"3", "one"),))),
    "allow": lambda log: log.allow("events", 10**9),
    "rotate": lambda log: log.rotate("events", 1),
    "cool": lambda log: log.cool("events", 1, [ColdFile(0, 1, 2, 1, 1, "x")]),
    "drop": lambda log: log.drop("events", 1),
}


@pytest.fixture
async def admin(redis_server: RedisProcess) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
        yield client


@pytest.mark.parametrize("poison", [another_type, another_content])
@pytest.mark.parametrize("name", KEYS)
async def test_no_call_makes_a_mistake(
    admin: Redis, redis_server: RedisProcess, name: str, poison: Callable[[Redis, str], Awaitable[None]]
) -> None:
    place = RedisEvents(redis_server.url, redis_server.node_url)
    for what, call in CALLS.items():
        await admin.flushall()
        log = await place.open([DATABASE])
        await log.append(SHARD, [Entry("a", b"1", "one"), Entry("b", b"1", "other")], 6, BATCH)
        if what in {"drop", "cool"} or name == "cold":
            await log.rotate("events", 1)
            await log.append(SHARD, [Entry("a", b"1")])
        if name == "cold":
            await log.cool("events", 1, [ColdFile(0, 1, 2, 1, 1, "x")])
        await poison(admin, KEYS[name])
        async with asyncio.timeout(PATIENCE):
            try:
                await call(log)
            except (StoreUnavailableError, EventLogError):
                pass
            except Exception as error:  # noqa: BLE001 - this is what is looked for
                pytest.fail(f"{what}: {error!r}")
    await place.close()


@pytest.mark.parametrize("name", ["cuts", "shard"])
async def test_reading_says_which_key_it_is(admin: Redis, redis_server: RedisProcess, name: str) -> None:
    place = RedisEvents(redis_server.url, redis_server.node_url)
    log = await place.open([DATABASE])
    await log.append(SHARD, [Entry("a", b"1")])
    await another_content(admin, KEYS[name])
    with pytest.raises(StoreUnavailableError, match="the event log in Redis cannot be read: "):
        await log.read(SHARD, Reading(), 10)
    await another_type(admin, KEYS[name])
    with pytest.raises(StoreUnavailableError, match="WRONGTYPE"):
        await log.read(SHARD, Reading(), 10)
    await place.close()


@pytest.mark.parametrize("poison", [another_type, another_content])
async def test_a_node_does_not_start_on_a_database_that_is_none(
    admin: Redis, redis_server: RedisProcess, poison: Callable[[Redis, str], Awaitable[None]]
) -> None:
    place = RedisEvents(redis_server.url, redis_server.node_url)
    await place.open([DATABASE])
    await poison(admin, KEYS["database"])
    with pytest.raises(StoreUnavailableError):
        await place.open([DATABASE])
    await place.close()
