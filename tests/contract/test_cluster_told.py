"""Leases that say too little or too much, and what members of a cluster tell each other."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from app.cluster.directory import NodeInfo
from app.cluster.local import LocalCluster
from app.cluster.redis import STALE_MS, RedisCluster
from app.runtime.system import new_charter
from tests.contract.test_cluster import LEASE_KEY, Heard, info, joined, redis, redis_member
from tests.services import RedisProcess
from tests.waiting import PATIENCE, eventually

__all__ = ["joined", "redis"]  # fixtures


UNREADABLE = [
    b"rubbish",
    b"[]",
    b"{}",
    b'{"node_id":"n2","incarnation":"i","client_id":"c","started_at":null,"filters":[]}',
]


@pytest.mark.parametrize("lease", UNREADABLE)
async def test_a_lease_that_cannot_be_read_is_skipped_and_counted(
    joined: tuple[RedisCluster, Heard], redis: Redis, lease: bytes
) -> None:
    member = joined[0]
    await redis.zadd("mqtt:nodes", {"n2": 4e12})
    await redis.set("mqtt:lease:{n2}", lease)
    await redis.hset("mqtt:sessions:{n2}", "c", "!" + lease.decode())
    assert list(await member.nodes()) == [info("n1")]
    assert member.leased == frozenset(("n1", "n2"))
    assert list(await member.orphans()) == []
    assert member._counters["drop.unreadable_lease"] == 2


async def test_a_lease_of_the_next_version_is_read_as_far_as_it_is_known(
    joined: tuple[RedisCluster, Heard], redis: Redis
) -> None:
    facts = {"node_id": "n2", "incarnation": "i", "client_id": "c", "started_at": 1.0, "filters": ["f"]}
    await redis.zadd("mqtt:nodes", {"n2": 4e12})
    await redis.set("mqtt:lease:{n2}", json.dumps(facts | {"version": 3, "zone": {"name": "east"}}))
    assert list(await joined[0].nodes()) == [info("n1"), NodeInfo("n2", "i", "c", 1.0, ("f",))]


async def test_members_live_on_at_maxmemory() -> None:
    with RedisProcess() as server:
        heard = Heard()
        member, late = (redis_member(server.node_url, one) for one in (heard, Heard()))
        await member.join(info("n1"))
        async with Redis.from_url(server.url) as admin:
            await member.charter()
            await admin.config_set("maxmemory", 1)
            await admin.delete(LEASE_KEY)
            await admin.zrem("mqtt:nodes", "n1")
            await eventually(lambda: admin.exists(LEASE_KEY))
            await eventually(lambda: admin.zscore("mqtt:nodes", "n1"))
            assert member.listening
            await late.join(info("n2"))  # a node that starts now is a member, too
            assert await late.charter() == await member.charter()
            assert [node.node_id for node in await member.nodes()] == ["n1", "n2"]
            assert member._counters["lease.renewal_failed"] == 0
        for one in (member, late):
            await one.leave()


async def test_a_member_that_was_not_heard_of_lately_strains_the_cluster(
    redis: Redis, redis_server: RedisProcess
) -> None:
    lease = timedelta(seconds=60)
    member = redis_member(redis_server.node_url, Heard(), lease)
    await member.join(info("n1"))
    facts = {"node_id": "n2", "incarnation": "i", "client_id": "c", "started_at": 1.0, "filters": []}
    await redis.zadd("mqtt:nodes", {"n2": 4e12})
    await redis.set("mqtt:lease:{n2}", json.dumps(facts), px=lease)
    await member.nodes()
    assert not member.strained
    await redis.pexpire("mqtt:lease:{n2}", lease - timedelta(milliseconds=STALE_MS + 100))
    await member.nodes()
    assert member.strained
    await member.leave()


async def test_a_canary_is_carried_to_its_node(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    other = redis_member(redis_server.node_url, Heard())
    await other.join(info("n2"))
    await other.carry("n1", "s3cret")
    assert await asyncio.wait_for(joined[1].carried.get(), PATIENCE) == "s3cret"
    await other.leave()


async def test_all_nodes_have_the_directory_of_the_first_one(redis_server: RedisProcess) -> None:
    redis = Redis.from_url(redis_server.url, decode_responses=True)
    await redis.delete("mqtt:cluster")
    one, other = redis_member(redis_server.node_url, Heard()), redis_member(redis_server.node_url, Heard())
    try:
        charter = await one.charter()
        assert [await member.directory(own) for member, own in ((one, "a"), (other, "b"), (one, "a"))] == [
            "a",
            "a",
            "a",
        ]
        assert await other.charter() == charter
        await redis.delete("mqtt:cluster")
        assert await other.directory("b") == "b"
        assert await redis.pttl("mqtt:cluster") > 0
        assert (await one.charter()).group  # it is founded anew, and then the directory is asked for again
        assert await one.directory("a") == "a"
    finally:
        await one.leave()
        await other.leave()
        await redis.aclose()


async def test_a_cluster_of_one_has_its_own_directory() -> None:
    assert await LocalCluster(new_charter()).directory("a") == "a"


async def test_the_copy_of_the_latest_version_is_kept(redis_server: RedisProcess, redis: Redis) -> None:
    member, minute = redis_member(redis_server.node_url, Heard()), 60_000_000
    try:
        assert (await member.copies.kept(), await member.copies.read()) == (None, None)
        await member.copies.keep(7, 100 * minute, b"seven\xff\x00", timedelta(hours=1))
        assert (await member.copies.kept(), await member.copies.read()) == ((7, 100 * minute), b"seven\xff\x00")
        assert 3_590_000 < await redis.pttl("mqtt:access") <= 3_600_000
        await member.copies.keep(6, 110 * minute, b"six", timedelta(hours=1))
        assert await member.copies.read() == b"seven\xff\x00"
        await member.copies.keep(8, 111 * minute, b"eight", timedelta(hours=1))
        await member.copies.keep(3, 127 * minute, b"three", timedelta(hours=1))  # the database was put back
        assert (await member.copies.kept(), await member.copies.read()) == ((3, 127 * minute), b"three")
    finally:
        await member.leave()


async def test_a_cluster_of_one_keeps_no_copy() -> None:
    alone = LocalCluster(new_charter())
    await alone.copies.keep(1, 1, b"copy", timedelta(hours=1))
    assert (await alone.copies.kept(), await alone.copies.read()) == (None, None)


async def test_members_hear_what_the_others_told_last(redis_server: RedisProcess, redis: Redis) -> None:
    members = [redis_member(redis_server.node_url, Heard()) for _ in range(3)]
    try:
        for number, one in enumerate(members):
            await one.join(info(f"n{number}"))
        for one in members:
            await one.nodes()  # so that each knows the others
        assert await members[0].exchange("a") == []
        assert await members[1].exchange("b") == ["a"]
        assert await members[2].exchange("c") == ["a", "b"]
        assert await members[0].exchange("d") == ["b", "c"]
        assert 0 < await redis.pttl("mqtt:limits:{n0}") <= 3_000
    finally:
        for one in members:
            await one.leave()
