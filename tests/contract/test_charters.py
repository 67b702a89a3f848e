"""The charter that all members of a cluster share, on Redis: it says whether the store is still the same."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redis.asyncio import Redis

from app.cluster.redis import RedisCluster
from tests.contract.test_cluster import Heard, info, joined, redis, redis_member
from tests.services import RedisProcess
from tests.waiting import PATIENCE, eventually

__all__ = ["joined", "redis"]


async def test_members_share_a_charter_that_a_store_without_memory_makes_anew(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    other = redis_member(redis_server.node_url, Heard())
    first = await joined[0].charter()
    assert await other.charter() == first
    assert len(first.group) == 32
    await redis.flushall()
    assert await other.charter() != first
    await other.leave()


async def test_a_member_is_fenced_when_the_charter_has_changed(
    joined: tuple[RedisCluster, Heard], redis: Redis
) -> None:
    await joined[0].charter()
    await redis.delete("mqtt:cluster")  # and not its lease
    await asyncio.wait_for(joined[0].fenced(), PATIENCE)
    assert joined[0]._counters["charter.changed"] == 1


async def test_the_charter_ends_with_the_last_node(joined: tuple[RedisCluster, Heard], redis: Redis) -> None:
    await joined[0].charter()
    assert 60_000 < await redis.pttl("mqtt:cluster") <= 65_000


async def test_members_that_lost_the_list_of_nodes_agree_on_another_charter(
    joined: tuple[RedisCluster, Heard], redis: Redis
) -> None:
    """Nobody knows any more of dead nodes in it: their sessions must not share in what comes from now on."""
    member, _ = joined
    charter = await member.charter()
    await eventually(lambda: redis.hexists("mqtt:cluster", "listed"))
    await redis.delete("mqtt:nodes")
    await asyncio.wait_for(member.fenced(), PATIENCE)
    again = await member.charter()
    assert again != charter
    assert again.age < timedelta(seconds=PATIENCE)


async def test_a_node_that_joins_does_not_hide_that_the_list_of_nodes_was_lost(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    member, _ = joined
    await member.charter()
    await eventually(lambda: redis.hexists("mqtt:cluster", "listed"))
    late = redis_member(redis_server.node_url, Heard())
    await late.charter()
    await redis.delete("mqtt:nodes")
    await late.join(info("n2"))
    await asyncio.wait_for(member.fenced(), PATIENCE)
    await asyncio.wait_for(late.fenced(), PATIENCE)
    assert await late.charter() == await member.charter()
    await late.leave()


async def test_a_cluster_whose_last_node_left_keeps_its_charter(redis: Redis, redis_server: RedisProcess) -> None:
    charters = []
    for _ in range(2):
        member = redis_member(redis_server.node_url, Heard())
        charters.append(await member.charter())
        await member.join(info("n1"))
        await eventually(lambda: redis.hexists("mqtt:cluster", "listed"))
        await member.leave()
    assert charters[0] == charters[1]


async def test_a_charter_that_was_copied_is_replaced_once(redis: Redis, redis_server: RedisProcess) -> None:
    one, two = (redis_member(redis_server.node_url, Heard()) for _ in range(2))
    copied = await one.charter()
    assert await two.charter() == copied
    await redis.zadd("mqtt:nodes", {"a node of the other cluster": 4e12})
    own = await one.found_anew(copied)
    assert own != copied
    assert await redis.exists("mqtt:nodes") == 0
    assert await two.found_anew(copied) == own
    for member in (one, two):
        await member.leave()
