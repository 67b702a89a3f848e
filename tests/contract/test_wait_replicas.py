"""Acknowledged means on a replica, where the settings say so: nothing of it is lost with the primary."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from app.core.commands.callback import Registration
from app.core.errors import StoreUnavailableError
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.system import SystemClock
from app.store.redis.doctor import inspect
from app.store.redis.driver.combiner import Combiner
from app.store.redis.driver.lane import BATCH, CombinerOptions, Script
from app.store.redis.driver.replicas import READING, writes
from app.store.redis.driver.server import connector
from app.store.redis.rights import COMMANDS
from tests.contract.store_backends import registration
from tests.contract.test_sentinel import Writers, goes_on, lost
from tests.guarded import Guarded, guarded
from tests.services import RedisProcess, require_programs
from tests.stores import redis_store
from tests.waiting import PATIENCE, eventually

ONE = RedisTerms(wait_replicas=1)
BUDGET = 3600.0
COUNT = Script.of("return redis.call('INCR', KEYS[1])")


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    require_programs()


@pytest.fixture
def pair() -> Iterator[tuple[RedisProcess, RedisProcess]]:
    with RedisProcess() as primary, RedisProcess("--replicaof", f"127.0.0.1 {primary.port}") as replica:
        yield primary, replica


@pytest.fixture
def sentinels() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@asynccontextmanager
async def combining(url: str, *, replicas: int = 1) -> AsyncIterator[tuple[Combiner, Counter[str]]]:
    counters: Counter[str] = Counter()
    options = CombinerOptions(wait_replicas=replicas)
    combiner = Combiner(connector(url), [COUNT], counters=counters, options=options)
    combiner.start()
    try:
        async with asyncio.timeout(PATIENCE):
            await combiner.call(("SET", "mqtt:history:{first}", "x"), None)
        counters.clear()  # of the time in which the replica was not there yet
        yield combiner, counters
    finally:
        await combiner.close()


async def test_F28_a_write_that_no_replica_has_is_not_acknowledged_and_is_when_one_has_it(
    pair: tuple[RedisProcess, RedisProcess],
) -> None:
    primary, replica = pair
    async with combining(primary.node_url) as (combiner, counters):
        with replica.paused():
            patient = asyncio.create_task(combiner.call(("SET", "mqtt:history:{a}", "1"), None))
            await eventually(lambda: counters["store.wait_short"] >= 2)
            # It is written, and nobody is told: also who would find that there is nothing more to do.
            with pytest.raises(StoreUnavailableError):
                await asyncio.wait_for(combiner.call(("SET", "mqtt:history:{a}", "2", "NX"), BUDGET), PATIENCE)
            assert not patient.done()
            assert combiner.connected
            assert await combiner.call(("GET", "mqtt:history:{first}"), BUDGET) == b"x"
        assert await patient == b"OK"
        assert counters["store.reconnected"] == 0
    async with Redis.from_url(replica.url) as client:
        assert await client.get("mqtt:history:{a}") == b"1"


async def test_more_unacknowledged_writes_than_a_batch_has_keep_nobody_from_reading(
    pair: tuple[RedisProcess, RedisProcess],
) -> None:
    primary, replica = pair
    async with combining(primary.node_url) as (combiner, counters):
        with replica.paused():
            writes = [("SET", f"mqtt:history:{{{number}}}", "x") for number in range(2 * BATCH)]
            patient = [asyncio.create_task(combiner.call(one, None)) for one in writes]
            await eventually(lambda: counters["store.wait_short"] >= 2)
            read = combiner.call(("GET", "mqtt:history:{first}"), BUDGET)
            assert await asyncio.wait_for(read, PATIENCE) == b"x"
            assert not any(one.done() for one in patient)
        assert await asyncio.gather(*patient) == [b"OK"] * len(writes)


async def test_writes_that_are_sent_again_keep_their_order(pair: tuple[RedisProcess, RedisProcess]) -> None:
    primary, replica = pair
    async with combining(primary.node_url) as (combiner, counters):
        with replica.paused():
            older = asyncio.create_task(combiner.call(("SET", "mqtt:history:{a}", "older"), None))
            await eventually(lambda: counters["store.wait_short"] >= 1)
            newer = asyncio.create_task(combiner.call(("SET", "mqtt:history:{a}", "newer"), None))
            await eventually(lambda: counters["store.wait_short"] >= 3)
        await asyncio.gather(older, newer)
        assert await combiner.call(("GET", "mqtt:history:{a}"), BUDGET) == b"newer"


async def test_what_no_replica_had_beside_a_script_that_was_forgotten_is_sent_again_with_it(
    pair: tuple[RedisProcess, RedisProcess],
) -> None:
    """Both went in one round trip; the next one, with the script, finds the replica there."""
    primary, replica = pair
    async with combining(primary.url) as (combiner, counters), Redis.from_url(primary.url) as client:
        await client.script_flush()
        with replica.paused():
            both = asyncio.gather(
                combiner.call(("SET", "mqtt:history:{a}", "1"), BUDGET),
                combiner.run_script(COUNT, ["mqtt:history:{b}"], [], BUDGET),
            )
            await eventually(lambda: counters["store.scripts_reloaded"] >= 1)
        said, count = await asyncio.wait_for(both, PATIENCE)
        assert (said, count >= 1) == (b"OK", True), "the script counts each time that it is sent"


async def test_without_the_setting_redis_is_never_asked(pair: tuple[RedisProcess, RedisProcess]) -> None:
    primary, replica = pair
    async with combining(primary.node_url, replicas=0) as (combiner, counters), Redis.from_url(primary.url) as client:
        with replica.paused():
            assert await combiner.call(("SET", "mqtt:history:{a}", "1"), BUDGET) == b"OK"
            assert "cmdstat_wait" not in await client.info("commandstats")
        assert counters["store.wait_short"] == 0


@pytest.mark.parametrize("how", ["killed", "switched"])
async def test_F28_nothing_is_lost_that_was_acknowledged_under_load(how: str, sentinels: Guarded) -> None:
    before, after = sentinels.servers
    async with combining(sentinels.url) as (combiner, _):
        writers = Writers(combiner)
        writers.start()
        await goes_on(writers, before)
        await asyncio.to_thread(before.kill if how == "killed" else sentinels.switch)
        if how == "killed":
            # There is no replica any more, so nobody is told anything before the old primary follows the new one.
            await eventually(lambda: sentinels.switched(before))
            await asyncio.to_thread(before.start)
        await goes_on(writers, after)
        await writers.stop()
        assert await lost(writers, after) == set()
        assert len(writers.acknowledged) > 100


async def test_a_store_says_503_soon_while_replicas_are_missing_and_reads(
    pair: tuple[RedisProcess, RedisProcess],
) -> None:
    primary, replica = pair
    store = redis_store(primary.node_url, terms=ONE, budget=timedelta(seconds=2))
    known, later = registration("SN1"), registration("SN3")

    async def registered(one: Registration = known) -> bool:
        with suppress(StoreUnavailableError):
            await store.register(one)
            return True
        return False

    try:
        await store.start()
        await eventually(registered)
        with replica.paused(), pytest.raises(StoreUnavailableError):
            await asyncio.wait_for(store.register(registration("SN2")), PATIENCE)
        await eventually(lambda: registered(later))
        [read] = await store.get([known.command_id])
        assert read is not None
    finally:
        await store.close()


async def test_who_may_not_wait_is_told_at_the_start_and_by_the_doctor(
    pair: tuple[RedisProcess, RedisProcess],
) -> None:
    primary, _ = pair
    async with Redis.from_url(primary.url) as admin:
        await admin.execute_command("ACL", "SETUSER", "homing", "-wait")  # type: ignore[no-untyped-call]
    facts = await asyncio.to_thread(inspect, primary.node_url, SystemClock().monotonic, "r1", ONE)
    assert facts.missing_rights == ["+wait"]
    facts = await asyncio.to_thread(inspect, primary.node_url, SystemClock().monotonic, "r1", NO_TERMS)
    assert facts.missing_rights == []
    with pytest.raises(StoreUnavailableError, match="'wait' command"):
        await redis_store(primary.node_url, terms=ONE).start()


def test_all_that_nodes_send_either_reads_or_writes() -> None:
    """A command of theirs that nobody thought of counts as writing, which is right in any case."""
    named = {name.upper().removesuffix("|NUMSUB") for name in COMMANDS}
    named -= {"ASKING", "CLUSTER|INFO", "CLUSTER|SLOTS", "SUBSCRIBE", "SELECT", "CLIENT|SETNAME", "SCRIPT|LOAD", "WAIT"}
    assert sorted(one for one in named if writes([one])) == [
        *("DEL", "EVALSHA", "HDEL", "HSET", "PEXPIRE", "PEXPIREAT", "SET", "UNLINK", "XADD", "ZADD", "ZREM"),
        "ZREMRANGEBYSCORE",
    ]
    assert named >= READING
