"""The room that quotas leave is counted where events are appended, over every engine."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from app.core.errors import FencedError, QuotaError, ValueChangedError
from app.core.events.batches import BatchId
from app.core.events.event import Database, Entry, Shard, size_of
from app.core.events.plan import NamedDatabase
from app.core.events.quota import parse_quotas
from app.core.events.reading import Reading
from app.core.events.transaction import Transaction, ValueCondition
from app.events.keeper import Keeper
from app.runtime.system import SystemClock
from app.store.events import EventStore
from tests.contract.event_places import EventPlace, RedisEvents
from tests.services import RedisProcess

SHARD = Shard("events", 1)
OTHER = Shard("events", 0)
A = Entry("a", b"x" * 100)
FULL = r"the events of the database 'events' take as many bytes as quotas allow; reading goes on"


@pytest.fixture
async def log(event_place: EventPlace) -> EventStore:
    return await event_place.fresh([Database("events", 2), Database("telemetry", 1)])


async def count(log: EventStore, shard: Shard = SHARD) -> int:
    return len((await log.read(shard, Reading(), 100)).events)


async def test_each_shard_takes_what_is_left_and_then_no_more(log: EventStore) -> None:
    await log.append(SHARD, [A] * 5)
    await log.allow("events", 2 * size_of(A) + 1)
    await log.append(SHARD, [A] * 2)
    await log.append(SHARD, [A])  # something was left
    with pytest.raises(QuotaError, match=FULL):
        await log.append(SHARD, [A], 4)
    assert await count(log) == 8
    await log.append(OTHER, [A] * 3)
    await log.append(Shard("telemetry", 0), [A] * 10)
    await log.allow("events", size_of(A))
    await log.append(SHARD, [A])
    with pytest.raises(QuotaError, match=FULL):
        await log.append(SHARD, [A])
    await log.allow("events", -1)
    with pytest.raises(QuotaError, match=FULL):
        await log.append(OTHER, [A])
    await log.allow("events", None)
    await log.append(SHARD, [A] * 20)


async def test_transactions_are_counted_and_deleting_goes_on(log: EventStore) -> None:
    position = await log.append(SHARD, [A])
    await log.allow("events", 0)
    for conditions in ((), (ValueCondition("a", None),)):
        with pytest.raises(QuotaError, match=FULL):
            await log.commit(Transaction(SHARD, conditions, (A,)))
    with pytest.raises(ValueChangedError):
        await log.commit(Transaction(SHARD, (ValueCondition("a", None),), (Entry("a", b""),)))
    await log.commit(Transaction(SHARD, (ValueCondition("a", position),), (Entry("a", b""),)))
    assert await log.value(SHARD, "a") is None
    await log.append(SHARD, [Entry("a", b"")])


async def test_what_is_in_or_fenced_is_told_so_before(log: EventStore) -> None:
    position = await log.append(SHARD, [A], 2, BatchId("one", 1))
    await log.allow("events", 0)
    assert await log.append(SHARD, [A], 2, BatchId("one", 1)) == position
    with pytest.raises(FencedError):
        await log.append(SHARD, [A], 1)
    with pytest.raises(QuotaError):
        await log.append(SHARD, [A], 3)
    await log.allow("events", None)
    await log.append(SHARD, [A], 2)  # who was refused has taken nothing over


async def test_a_keeper_says_what_the_tightest_quota_leaves(log: EventStore) -> None:
    kept = [NamedDatabase("events", timedelta(days=1)), NamedDatabase("telemetry", timedelta(days=1))]
    keeper = Keeper(
        log,
        kept,
        generation_bytes=10**9,
        quota_bytes=10**9,
        discard="new",
        clock=SystemClock(),
        counters=Counter(),
        groups=parse_quotas("events+telemetry=10000000, telemetry=20000000:old", ["events", "telemetry"]),
    )
    large = Entry("a", b"x" * 130_000)
    await log.append(Shard("telemetry", 0), [large] * 50)
    await keeper.look()
    keeper.admit("events")
    await log.append(SHARD, [large] * 26)
    await log.append(SHARD, [large] * 26)
    with pytest.raises(QuotaError, match=FULL):
        await log.append(SHARD, [large])  # before the keeper has looked again
    await keeper.look()
    with pytest.raises(QuotaError, match="HOMING_EVENTS_QUOTAS allows 10000000"):
        keeper.admit("events")
    with pytest.raises(QuotaError, match=FULL):
        await log.append(OTHER, [large])
    with pytest.raises(QuotaError, match="of the database 'telemetry' take as many"):
        await log.append(Shard("telemetry", 0), [large])


async def test_what_one_node_says_holds_for_all(redis_server: RedisProcess) -> None:
    place = RedisEvents(redis_server.url, redis_server.node_url)
    databases = [Database("events", 2)]
    one, other = await place.fresh(databases), await place.open(databases)
    await one.allow("events", size_of(A))
    await other.append(SHARD, [A])
    with pytest.raises(QuotaError, match=FULL):
        await other.append(SHARD, [A])
    await place.close()
