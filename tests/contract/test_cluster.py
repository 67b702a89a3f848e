"""What every cluster promises: leases and, with Redis, wake-ups. Each test takes two members of one cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from app.cluster.base import Cluster, NodeInfo
from app.cluster.local import LocalCluster
from app.cluster.redis import RedisCluster
from app.core.errors import NodeIdTakenError, StoreUnavailableError
from app.core.routing import Outcome
from app.system import SystemClock
from tests.services import RedisProcess
from tests.waiting import eventually

LEASE = timedelta(milliseconds=1500)
LEASE_KEY = "mqtt:lease:{n1}"


def info(node_id: str, incarnation: str = "i1") -> NodeInfo:
    return NodeInfo(node_id, incarnation, f"homing-{node_id}-{incarnation}", 1_700_000_000.5)


@dataclass
class Heard:
    """What a member was told."""

    wakes: asyncio.Queue[tuple[str, Outcome | None]] = field(default_factory=asyncio.Queue)
    resubscribed: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    failures: asyncio.Queue[BaseException] = field(default_factory=asyncio.Queue)


def redis_member(url: str, heard: Heard) -> RedisCluster:
    return RedisCluster(
        url,
        lease=LEASE,
        session_life=timedelta(minutes=1),
        clock=SystemClock(),
        counters=Counter(),
        on_wake=lambda command_id, outcome: heard.wakes.put_nowait((command_id, outcome)),
        on_resubscribed=lambda: heard.resubscribed.put_nowait(None),
        on_failure=heard.failures.put_nowait,
    )


Factory = Callable[[], Cluster]


@pytest.fixture(params=["local", "redis"])
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Factory]:
    """Makes members of one cluster; all of them leave at the end."""
    members: list[Cluster] = []
    local = LocalCluster()

    def one() -> Cluster:
        if request.param == "local":
            members.append(local)
        else:
            members.append(redis_member(request.getfixturevalue("redis_server").node_url, Heard()))
        return members[-1]

    yield one
    for member in members:
        await member.leave()


async def test_a_member_that_joined_is_listed_and_listens(make: Factory) -> None:
    member = make()
    assert not member.listening
    await member.join(info("n1"))
    assert list(await member.nodes()) == [info("n1")]
    assert member.listening


async def test_F53_a_held_node_id_is_refused(make: Factory) -> None:
    await make().join(info("n1"))
    with pytest.raises(NodeIdTakenError, match="'n1'"):
        await make().join(info("n1", "i2"))


async def test_the_next_incarnation_of_a_node_takes_over_at_once(make: Factory) -> None:
    member = make()
    await member.join(info("n1"))
    await member.join(info("n1", "i2"), replaces=info("n1"))
    assert list(await member.nodes()) == [info("n1", "i2")]
    await asyncio.wait_for(member.still_member(info("n1", "i2").client_id), 1)


async def test_the_same_incarnation_may_join_again(make: Factory) -> None:
    member = make()
    await member.join(info("n1"))
    await make().join(info("n1"))
    assert list(await member.nodes()) == [info("n1")]


async def test_who_left_is_not_listed_and_its_id_is_free(make: Factory) -> None:
    member = make()
    await member.join(info("n1"))
    await member.leave()
    again = make()
    await again.join(info("n1", "i2"))
    assert list(await again.nodes()) == [info("n1", "i2")]


@pytest.fixture
async def redis(redis_server: RedisProcess) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_server.url)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
async def joined(redis_server: RedisProcess, redis: Redis) -> AsyncIterator[tuple[RedisCluster, Heard]]:
    heard = Heard()
    member = redis_member(redis_server.node_url, heard)
    await member.join(info("n1"))
    await heard.resubscribed.get()
    yield member, heard
    await member.leave()


async def test_a_wake_up_arrives_with_its_outcome(joined: tuple[RedisCluster, Heard], redis: Redis) -> None:
    await redis.publish("mqtt:node:n1", b"042-A\0failed\x0017\0n2\0\0{}")
    await redis.publish("mqtt:node:n1", b"042-B")
    command_id, outcome = await joined[1].wakes.get()
    assert (command_id, outcome and outcome.error) == ("042-A", b"{}")
    assert await joined[1].wakes.get() == ("042-B", None)


async def test_rubbish_on_the_channel_is_counted_and_survived(joined: tuple[RedisCluster, Heard], redis: Redis) -> None:
    await redis.publish("mqtt:node:n1", b"\xff\0nonsense")
    await redis.publish("mqtt:node:n1", b"042-B")
    assert await joined[1].wakes.get() == ("042-B", None)
    assert joined[0]._counters["drop.bad_wake_up"] == 1


async def test_F20_a_killed_subscription_comes_back_and_says_so(
    joined: tuple[RedisCluster, Heard], redis: Redis
) -> None:
    await redis.client_kill_filter(_type="pubsub")
    await asyncio.wait_for(joined[1].resubscribed.get(), 5)
    await redis.publish("mqtt:node:n1", b"042-B")
    assert await asyncio.wait_for(joined[1].wakes.get(), 5) == ("042-B", None)


async def test_a_lease_outlives_its_first_time(joined: tuple[RedisCluster, Heard], redis: Redis) -> None:
    async def left() -> int:
        return int(await redis.pttl(LEASE_KEY))

    async def little_left() -> bool:
        return await left() < 900

    async def renewed() -> bool:
        return await left() > 900

    for _ in range(2):
        await eventually(little_left)
        await eventually(renewed)
    assert [node.node_id for node in await joined[0].nodes()] == ["n1"]


async def test_F53_a_crashed_nodes_id_is_free_when_its_lease_is_over(redis_server: RedisProcess, redis: Redis) -> None:
    await redis.set(LEASE_KEY, "a crashed incarnation", px=300)
    member = redis_member(redis_server.node_url, Heard())
    await member.join(info("n1"))
    assert [node.node_id for node in await member.nodes()] == ["n1"]
    await member.leave()


async def test_an_expired_lease_is_taken_again(joined: tuple[RedisCluster, Heard], redis: Redis) -> None:
    await redis.delete(LEASE_KEY)
    await eventually(lambda: redis.exists(LEASE_KEY))
    await asyncio.wait_for(joined[0].still_member(info("n1").client_id), 1)
    assert await _lost(joined[0]) is False


async def test_F15_a_lease_that_another_incarnation_holds_is_lost(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    await redis.delete(LEASE_KEY)
    other = redis_member(redis_server.node_url, Heard())
    await other.join(info("n1", "i2"))
    await asyncio.wait_for(joined[0].fenced(), 5)
    # Leaving must not take the other one's lease away.
    await joined[0].leave()
    assert list(await other.nodes()) == [info("n1", "i2")]
    await other.leave()


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
    assert await redis.keys("*n2*") == []


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


async def test_F15_a_node_whose_session_is_claimed_never_gets_its_lease_back(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    paused = redis_member(redis_server.node_url, Heard())
    await paused.join(info("n2"))
    await redis.delete("mqtt:lease:{n2}")
    assert await joined[0].claim(info("n2"), timedelta(seconds=30))
    await asyncio.wait_for(paused.fenced(), 5)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(paused.still_member(info("n2").client_id), 0.3)
    await paused.join(info("n2", "i2"), replaces=info("n2"))
    # The connection of the session before must not come back under the lease of the next: nobody would adopt it again.
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(paused.still_member(info("n2").client_id), 0.3)
    await asyncio.wait_for(paused.still_member(info("n2", "i2").client_id), 1)
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


async def test_a_draining_node_is_not_listed(joined: tuple[RedisCluster, Heard]) -> None:
    await joined[0].drain()
    assert list(await joined[0].nodes()) == []
    assert list(await joined[0].orphans()) == []


async def _lost(member: RedisCluster) -> bool:
    try:
        await asyncio.wait_for(member.fenced(), 0.1)
    except TimeoutError:
        return False
    return True


async def _crash(member: RedisCluster, redis: Redis, node_id: str) -> None:
    """Stop all signs of life without a farewell."""
    await member._end_tasks()
    await member._redis.aclose()
    await redis.delete(f"mqtt:lease:{{{node_id}}}")


@pytest.mark.timeout(90)
async def test_F21_a_frozen_connection_is_noticed_and_replaced() -> None:
    with RedisProcess() as server:
        heard = Heard()
        member = redis_member(server.node_url, heard)
        await member.join(info("n1"))
        await heard.resubscribed.get()
        with server.paused():
            await eventually(lambda: not member.listening, 10)
            await eventually(lambda: not member._listener.subscribed.is_set(), 10)
            with pytest.raises(StoreUnavailableError):
                await member.nodes()
        await asyncio.wait_for(heard.resubscribed.get(), 10)
        await eventually(lambda: member.listening, 10)
        await member.leave()


@pytest.mark.timeout(30)
async def test_who_is_cancelled_while_leaving_keeps_no_connection() -> None:
    with RedisProcess() as server:
        member = redis_member(server.node_url, Heard())
        await member.join(info("n1"))
        async with Redis.from_url(server.url) as admin:
            leaving = asyncio.create_task(member.leave())
            await asyncio.sleep(0)  # until it waits for its own tasks; its connection to Redis is idle
            leaving.cancel()
            await asyncio.wait([leaving])
            await eventually(lambda: _alone(admin))


async def _alone(admin: Redis) -> bool:
    return len(await admin.client_list()) == 1


async def test_nothing_remains_when_everybody_left(redis: Redis, joined: tuple[RedisCluster, Heard]) -> None:
    await joined[0].leave()
    assert await redis.keys("mqtt:*n1*") == []
    assert await redis.zscore("mqtt:nodes", "n1") is None
