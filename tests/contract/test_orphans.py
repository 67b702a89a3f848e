"""Sessions that a member of a cluster left behind, on Redis: claimed and adopted by one other."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from app.cluster.node_text import text_of
from app.cluster.redis import ADOPTED_MS, RedisCluster
from tests.contract.test_cluster import LEASE_KEY, Heard, info, joined, redis, redis_member
from tests.services import RedisProcess
from tests.waiting import PATIENCE, eventually

__all__ = ["joined", "redis"]


async def _crash(member: RedisCluster, redis: Redis, node_id: str) -> None:
    """Stop all signs of life without a farewell."""
    await member._end_tasks()
    await member._redis.close()
    await redis.delete(f"mqtt:lease:{{{node_id}}}", f"mqtt:knows:{{{node_id}}}")


async def test_F50_a_dead_nodes_session_is_an_orphan_until_it_is_adopted(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    dead = redis_member(redis_server.node_url, Heard())
    await dead.join(info("n2"))
    assert list(await joined[0].orphans()) == []
    await _crash(dead, redis, "n2")
    assert list(await joined[0].orphans()) == [info("n2")]
    assert await joined[0].claim(info("n2"), timedelta(seconds=30))
    await joined[0].adopted(info("n2"))
    assert list(await joined[0].orphans()) == []
    assert await redis.zscore("mqtt:nodes", "n2") is None
    assert await redis.keys("*n2*") == [b"mqtt:adoption:{n2}:homing-n2-i1"]
    assert 0 < await redis.pttl("mqtt:adoption:{n2}:homing-n2-i1") <= ADOPTED_MS


async def test_F50_one_session_is_adopted_by_one_node(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    third, dead = (redis_member(redis_server.node_url, Heard()) for _ in range(2))
    await third.join(info("n3"))
    await dead.join(info("n2"))
    assert not await joined[0].claim(info("n2"), timedelta(seconds=30))  # it lives
    await _crash(dead, redis, "n2")
    assert await joined[0].claim(info("n2"), timedelta(seconds=30))
    assert await joined[0].claim(info("n2"), timedelta(seconds=30))
    assert not await third.claim(info("n2"), timedelta(seconds=30))
    await redis.delete("mqtt:adoption:{n2}:homing-n2-i1")  # the adopter died over it
    assert await third.claim(info("n2"), timedelta(seconds=30))
    await third.leave()


async def test_a_member_never_claims_its_own_session(joined: tuple[RedisCluster, Heard], redis: Redis) -> None:
    await redis.delete(LEASE_KEY)
    assert not await joined[0].claim(info("n1"), timedelta(seconds=30))


async def test_F15_a_node_whose_session_is_claimed_never_gets_its_lease_back(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    paused = redis_member(redis_server.node_url, Heard())
    await paused.join(info("n2"))

    async def claimed() -> bool:
        await redis.delete("mqtt:lease:{n2}")  # which it may take again before the next line
        return await joined[0].claim(info("n2"), timedelta(seconds=30))

    await eventually(claimed)
    await asyncio.wait_for(paused.fenced(), PATIENCE)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(paused.still_member(info("n2").client_id), 0.3)
    await paused.join(info("n2", "i2"), replaces=info("n2"))
    # The connection of the session before must not come back under the lease of the next: nobody would adopt it again.
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(paused.still_member(info("n2").client_id), 0.3)
    await asyncio.wait_for(paused.still_member(info("n2", "i2").client_id), PATIENCE)
    assert set(await joined[0].orphans()) == {info("n2")}
    await paused.leave()


async def test_F51_a_session_that_was_kept_on_leaving_is_an_orphan(redis_server: RedisProcess, redis: Redis) -> None:
    first = redis_member(redis_server.node_url, Heard())
    await first.join(info("n1"))
    await first.leave(session_kept=True)
    second = redis_member(redis_server.node_url, Heard())
    await second.join(info("n1", "i2"))
    assert list(await second.orphans()) == [info("n1")]
    assert await second.claim(info("n1"), timedelta(seconds=30))
    await second.adopted(info("n1"))
    await second.leave()


@pytest.mark.parametrize("memory", ["lost", "kept"])
async def test_the_session_of_an_incarnation_that_goes_on_as_another_is_an_orphan_though_the_store_forgot_it(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess, memory: str
) -> None:
    if memory == "lost":
        await redis.flushall()
    await joined[0].join(info("n1", "i2"), replaces=info("n1"))
    survivor = redis_member(redis_server.node_url, Heard())
    await survivor.join(info("n2"))
    assert list(await survivor.orphans()) == [info("n1")]
    assert await survivor.claim(info("n1"), timedelta(seconds=30))
    await survivor.adopted(info("n1"))
    assert list(await survivor.orphans()) == []
    await survivor.leave()


async def test_a_store_that_forgets_again_is_told_again_which_sessions_were_left(
    joined: tuple[RedisCluster, Heard], redis: Redis
) -> None:
    member = joined[0]
    for number in (1, 2, 3):
        await redis.flushall()
        await member.charter()
        await member.join(info("n1", f"i{number + 1}"), replaces=info("n1", f"i{number}"))
    assert set(await member.orphans()) == {info("n1", f"i{number}") for number in (1, 2, 3)}
    for orphan in await member.orphans():
        await member.adopted(orphan)
    await member.join(info("n1", "i5"), replaces=info("n1", "i4"))  # it has forgotten nothing
    assert set(await member.orphans()) == {info("n1", "i4")}


async def test_a_session_that_lost_its_connection_may_be_claimed_under_a_standing_lease(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    cut_off = redis_member(redis_server.node_url, Heard())
    await cut_off.join(info("n2"))
    assert await joined[0].claim(info("n2"), timedelta(seconds=30), lost=True)
    await asyncio.wait_for(cut_off.fenced(), PATIENCE)
    assert await redis.exists("mqtt:lease:{n2}") == 0
    await cut_off.join(info("n2", "i2"), replaces=info("n2"))  # at once, and its old session stays claimed
    assert list(await joined[0].orphans()) == [info("n2")]
    third = redis_member(redis_server.node_url, Heard())
    await third.join(info("n3"))
    assert not await third.claim(info("n2"), timedelta(seconds=30), lost=True)
    for member in (third, cut_off):
        await member.leave()


async def test_a_claimed_session_is_remembered_until_it_is_adopted(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    dead = redis_member(redis_server.node_url, Heard())
    await dead.join(info("n2"))
    await _crash(dead, redis, "n2")
    await redis.pexpire("mqtt:sessions:{n2}", 5_000)
    assert await joined[0].claim(info("n2"), timedelta(seconds=30))
    assert await redis.pttl("mqtt:sessions:{n2}") > 30_000


async def test_a_session_that_the_store_has_forgotten_is_noted_once_and_adopted(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    member, third = joined[0], redis_member(redis_server.node_url, Heard())
    await third.join(info("n3"))
    assert await member.note_forgotten(info("n2"))
    assert not await third.note_forgotten(info("n2")), "it is known now"
    assert list(await third.orphans()) == [info("n2")]
    assert await member.claim(info("n2"), timedelta(seconds=30), lost=True)
    await redis.delete("mqtt:sessions:{n2}")
    assert not await third.note_forgotten(info("n2")), "somebody adopts it"
    await member.adopted(info("n2"))
    assert not await third.note_forgotten(info("n2")), "it was adopted just now"
    await redis.delete("mqtt:adoption:{n2}:homing-n2-i1")
    assert await third.note_forgotten(info("n2"))
    await third.leave()


async def test_a_session_that_is_noted_again_after_it_was_adopted_can_be_claimed_at_once(
    joined: tuple[RedisCluster, Heard], redis: Redis
) -> None:
    member = joined[0]
    await member.note_forgotten(info("n2"))
    await member.adopted(info("n2"))
    await redis.hset("mqtt:sessions:{n2}", "homing-n2-i1", "!" + text_of(info("n2")))
    assert await member.claim(info("n2"), timedelta(seconds=30))
