"""A Redis Cluster without one of its primaries: what is at the others goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from itertools import count

import pytest
from redis.crc import key_slot

from app.core import keys
from app.core.errors import StoreUnavailableError
from app.core.events import keys as event_keys
from app.core.events.event import BEGINNING, Database, Entry, Shard
from app.core.identifiers import PARTITIONS, partition_of
from app.core.queues import keys as queue_keys
from app.core.queues.loans import LendingRules, LoanWish, QueueSource, Reference, grouped
from app.runtime.histograms import StoreMeasures
from app.runtime.system import SystemClock
from app.store.holds import Claimed, Restarted
from app.store.queues import TakeCall
from app.store.redis.commands.store import RedisStateStore
from app.store.redis.driver.listener import MISSES
from app.store.redis.driver.store_calls import open_calls
from app.store.redis.queues import RedisQueues
from tests.contract.event_places import ShardedEvents
from tests.contract.store_backends import answer, registration
from tests.contract.test_cluster import Heard, info, redis_member
from tests.contract.test_sharded import opened, slot_of_partition
from tests.services import require_programs
from tests.sharded import MemberProcess, Sharded, sharded
from tests.waiting import PATIENCE, eventually

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    require_programs()


async def test_a_node_is_heard_while_the_primary_of_what_nodes_share_is_away() -> None:
    """Its lease is at another one. Without its heartbeats it would count as deaf, and every other node as well."""
    with sharded() as cluster:
        for one in cluster.members:
            await asyncio.to_thread(one.ask, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        away = await asyncio.to_thread(cluster.owner, key_slot(keys.CLUSTER.encode()))
        name = await asyncio.to_thread(name_that_publishes_at, cluster, away)
        heard = Heard()
        member = redis_member(cluster.url, heard)
        async with asyncio.timeout(2 * PATIENCE):
            await member.charter()
            await member.join(info(name))
            try:
                await asyncio.to_thread(away.kill)
                await eventually(lambda: member._counters["lease.renewal_failed"] >= MISSES + 1)
                assert member.listening
                assert member._counters["wakeup.reconnects"] == 0
            finally:
                await member.leave()


async def test_what_happened_at_the_primaries_that_are_there_is_told_while_one_is_away() -> None:
    with sharded() as cluster:
        for member in cluster.members:
            await asyncio.to_thread(member.ask, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        async with opened(cluster) as store:
            asked = [registration(f"device-{number}", notify=("wh_1",)) for number in range(12)]
            for one in asked:
                await store.register(one)
                await store.respond(answer(one), "node-a")
            away, *_ = cluster.members
            there = {
                one.command_id
                for one in asked
                if cluster.owner(slot_of_partition(partition_of(one.device_id))) is not away
            }
            assert 0 < len(there) < len(asked)
            await asyncio.to_thread(away.kill)
            found = await store.webhooks.outbox(range(PARTITIONS), 10)
            assert {one.command_id for one in found} == there
            outcomes = await store.outcomes([one.command_id for one in asked])
            assert {one.command_id for one in outcomes if one is not None} == there
            queues = [f"wh_{number}" for number in range(12)]
            assert await store.webhooks.waiting(queues) == [0] * len(queues)


async def test_windows_at_the_primaries_that_are_there_are_lent_from_while_one_is_away() -> None:
    with sharded() as cluster:
        for member in cluster.members:
            await asyncio.to_thread(member.ask, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        queues = RedisQueues(cluster.url, clock=SystemClock(), counters=Counter(), new_life=lambda: "00000001")
        await queues.start()
        sources = [QueueSource("q", Shard("events", number)) for number in range(8)]
        for one in sources:
            await queues.feed(one, 0, 0, 1, grouped([Reference(1)]), 10)
        away, *_ = cluster.members
        lost = [one for one in sources if cluster.owner(key_slot(queue_keys.due(one).encode())) is away]
        assert {queues.server_of(one) for one in lost} == {f"127.0.0.1:{away.port}"}
        await asyncio.to_thread(away.kill)
        for number, one in enumerate(sources):
            taking = queues.take(one, LendingRules(), [LoanWish(1, "w1")], TakeCall("n1", str(number)))
            if one in lost:
                with pytest.raises(StoreUnavailableError):
                    await taking
            else:
                assert queues.server_of(one) != f"127.0.0.1:{away.port}"
                assert None not in (await taking).loans
        await queues.close()


async def test_held_commands_of_the_primaries_that_are_there_are_read_while_one_is_away() -> None:
    with sharded() as cluster:
        for member in cluster.members:
            await asyncio.to_thread(member.ask, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        async with opened(cluster) as store:
            held = [registration(f"device-{number}", held=HOUR) for number in range(12)]
            for one in held:
                await store.register(one)
            away, *_ = cluster.members
            lost = await asyncio.to_thread(partitions_of, cluster, away)
            there = {one.command_id for one in held if partition_of(one.device_id) not in lost}
            assert 0 < len(there) < len(held)
            await asyncio.to_thread(away.kill)
            found = await store.held()
            assert {one.command_id for one in found} == there
            assert found.unread == lost


async def test_held_commands_are_claimed_in_the_starts_of_the_primaries_that_are_there() -> None:
    """One that comes back is another start, and no start of the others."""
    with sharded() as cluster:
        for member in cluster.members:
            await asyncio.to_thread(member.ask, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        async with opened(cluster) as store:
            held = [registration(f"device-{number}", held=timedelta(hours=1)) for number in range(12)]
            for one in held:
                await store.register(one)
            before = await store.starts.starts()
            assert len(before) == len(cluster.members)
            away, *_ = cluster.members
            await asyncio.to_thread(away.kill)
            there = await store.starts.starts()
            assert len(there) == len(before) - 1
            await asyncio.to_thread(away.start)
            for one in held:
                at_home = cluster.owner(slot_of_partition(partition_of(one.device_id))) is away
                result = await claim_when_it_answers(store, one.command_id, before)
                assert isinstance(result, Restarted if at_home else Claimed)
            now = await store.starts.starts()
            assert there < now
            assert len(now) == len(before)


async def claim_when_it_answers(store: RedisStateStore, command_id: str, starts: AbstractSet[str]) -> object:
    """A member that comes back serves nothing before it has heard of the others."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(StoreUnavailableError):
                return await store.claim(command_id, "node-a", command_id, starts)


async def test_the_measures_tell_which_primary_is_away() -> None:
    measures = StoreMeasures()
    with sharded() as cluster:
        calls = open_calls(cluster.url, [], counters=Counter(), measures=measures)
        assert measures.primaries() == {}
        calls.start()
        await calls.call(("PING",), PATIENCE)
        places = [f"127.0.0.1:{one.port}" for one in cluster.members]
        await eventually(lambda: measures.primaries() == dict.fromkeys(places, True))
        await asyncio.to_thread(cluster.members[1].kill)

        async def noticed() -> bool:
            """As the next call to it does, and each node sweeps all partitions."""
            with suppress(StoreUnavailableError):
                await calls.everywhere(("PING",), 0.1)
            return measures.primaries() == {places[0]: True, places[1]: False, places[2]: True}

        await eventually(noticed)
        await calls.close()


async def test_events_are_waited_for_at_the_primaries_that_are_there() -> None:
    async with AsyncExitStack() as stack:
        cluster = stack.enter_context(sharded())
        for one in cluster.members:
            await asyncio.to_thread(one.ask, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        (database,) = databases = (Database("main", 16),)
        log = ShardedEvents(cluster).make(databases, budget=timedelta(seconds=5))
        await log.start()
        stack.push_async_callback(log.close)
        shards = database.all_shards()
        owners = [await asyncio.to_thread(cluster.owner, key_slot(event_keys.state(one).encode())) for one in shards]
        away = owners[0]
        there = next(number for number, owner in enumerate(owners) if owner is not away)
        none = [BEGINNING] * len(shards)
        waiting = asyncio.create_task(log.wait("main", none))
        await asyncio.to_thread(away.kill)
        position = await log.append(shards[there], [Entry("a/b", b"1")])
        heads = await asyncio.wait_for(waiting, PATIENCE)
        assert heads == [position if number == there else BEGINNING for number in range(len(shards))]
        before = [BEGINNING - 1] * len(shards)
        unknown = [number for number, head in enumerate(await log.wait("main", before)) if head < BEGINNING]
        assert unknown == [number for number, owner in enumerate(owners) if owner is away]


def partitions_of(cluster: Sharded, member: MemberProcess) -> set[int]:
    """The partitions of commands that a member has."""
    return {one for one in range(PARTITIONS) if cluster.owner(slot_of_partition(one)) is member}


def name_that_publishes_at(cluster: Sharded, member: MemberProcess) -> str:
    """The name of a node whose lease is elsewhere; so nobody listens at this member, as it is asked last."""
    return next(
        name
        for name in map("n{}".format, count())
        if cluster.owner(key_slot(keys.node_channel(name).encode())) is member
        and cluster.owner(key_slot(keys.lease(name).encode())) is not member
    )
