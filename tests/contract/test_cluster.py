"""The promises of every cluster: leases and, with Redis, wake-ups. Each test takes two members of one cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import cast

import pytest
from redis.asyncio import Connection, Redis

from app.cluster.cluster import Cluster
from app.cluster.directory import NodeInfo
from app.cluster.local import LocalCluster
from app.cluster.redis import RedisCluster
from app.cluster.wakeups import ChannelHandlers
from app.core.commands.routing import Outcome
from app.core.errors import NodeIdTakenError, StoreUnavailableError
from app.runtime.system import SystemClock, new_charter
from homing_rig.chaos.proxy import FaultProxy
from homing_rig.simulation.cluster import SimCluster
from homing_rig.simulation.loop import SimLoop
from homing_rig.simulation.network import Link
from homing_rig.simulation.store import StoreHost, StorePlaces
from tests.services import RedisProcess
from tests.waiting import PATIENCE, eventually

LEASE = timedelta(seconds=5)
"""As long as in life: a member that this machine keeps waiting must not lose it."""
LEASE_KEY = "mqtt:lease:{n1}"


def info(node_id: str, incarnation: str = "i1") -> NodeInfo:
    return NodeInfo(node_id, incarnation, f"homing-{node_id}-{incarnation}", 1_700_000_000.5)


@dataclass
class Heard:
    """The news that a member was told."""

    wakes: asyncio.Queue[tuple[str, Outcome | None]] = field(default_factory=asyncio.Queue)
    resubscribed: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    carried: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    failures: asyncio.Queue[BaseException] = field(default_factory=asyncio.Queue)


def redis_member(url: str, heard: Heard, lease: timedelta = LEASE) -> RedisCluster:
    return RedisCluster(
        url,
        lease=lease,
        session_life=timedelta(minutes=1),
        clock=SystemClock(),
        counters=Counter(),
        new_charter=new_charter,
        handlers=ChannelHandlers(
            wake=lambda command_id, outcome: heard.wakes.put_nowait((command_id, outcome)),
            resubscribed=lambda: heard.resubscribed.put_nowait(None),
            carried=heard.carried.put_nowait,
        ),
        on_failure=heard.failures.put_nowait,
    )


def simulated_member(loop: SimLoop, host: StoreHost) -> SimCluster:
    chance = Random(1)
    return SimCluster(
        StorePlaces(host, Link(loop, "way", "near", chance), chance),
        host.keys,
        lease=LEASE,
        session_life=timedelta(minutes=1),
        clock=SystemClock(),
        counters=Counter(),
        new_charter=new_charter,
        handlers=ChannelHandlers(
            wake=lambda _command_id, _outcome: None, resubscribed=lambda: None, carried=lambda _secret: None
        ),
        on_failure=lambda _error: None,
    )


Factory = Callable[[], Cluster]


@pytest.fixture(params=["local", "redis", "simulated"])
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Factory]:
    """Makes members of one cluster; all of them leave at the end."""
    members: list[Cluster] = []
    local = LocalCluster(new_charter())
    loop = cast("SimLoop", asyncio.get_running_loop())
    host = StoreHost(loop, SystemClock())

    def one() -> Cluster:
        if request.param == "local":
            members.append(local)
        elif request.param == "simulated":
            members.append(simulated_member(loop, host))
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
    await asyncio.wait_for(member.still_member(info("n1", "i2").client_id), PATIENCE)


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
    await asyncio.wait_for(joined[1].resubscribed.get(), PATIENCE)
    await redis.publish("mqtt:node:n1", b"042-B")
    assert await asyncio.wait_for(joined[1].wakes.get(), PATIENCE) == ("042-B", None)


async def test_a_write_to_a_transport_that_has_just_closed_is_an_outage_and_no_failure(
    redis_server: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As uvloop says it when Redis dies in that moment; nodes have ended of it."""
    heard, breaks = Heard(), [True]
    send = Connection.send_packed_command

    async def broken(self: Connection, *arguments: object, **options: object) -> None:
        if breaks:
            breaks.pop()
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
        await send(self, *arguments, **options)  # type: ignore[arg-type]

    member = redis_member(redis_server.node_url, heard)
    await member.join(info("n1"))
    monkeypatch.setattr(Connection, "send_packed_command", broken)
    with pytest.raises(StoreUnavailableError):
        await member.nodes()
    await member.nodes()
    breaks.append(True)
    await member._listener.reconnect()
    await asyncio.wait_for(heard.resubscribed.get(), PATIENCE)
    await asyncio.wait_for(heard.resubscribed.get(), PATIENCE)
    assert not breaks
    assert heard.failures.empty()
    await member.leave()


async def test_a_lease_outlives_its_first_time(joined: tuple[RedisCluster, Heard], redis: Redis) -> None:
    async def left() -> int:
        return int(await redis.pttl(LEASE_KEY))

    async def renewed() -> bool:
        return await left() > 4_000

    for _ in range(2):
        await redis.pexpire(LEASE_KEY, 4_000)
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
    await asyncio.wait_for(joined[0].still_member(info("n1").client_id), PATIENCE)
    assert await _lost(joined[0]) is False


async def test_F15_a_lease_that_another_incarnation_holds_is_lost(
    joined: tuple[RedisCluster, Heard], redis: Redis, redis_server: RedisProcess
) -> None:
    other = redis_member(redis_server.node_url, Heard())
    await other.join(info("n1", "i2"), replaces=info("n1"))
    await asyncio.wait_for(joined[0].fenced(), PATIENCE)
    # Leaving must not take the other one's lease away.
    await joined[0].leave()
    assert list(await other.nodes()) == [info("n1", "i2")]
    await other.leave()


async def test_a_draining_node_is_not_listed(joined: tuple[RedisCluster, Heard]) -> None:
    await joined[0].drain()
    assert list(await joined[0].nodes()) == []
    assert list(await joined[0].orphans()) == []


async def test_a_node_of_0_2_0_lives_and_is_not_among_those_who_know_of_queues(
    joined: tuple[RedisCluster, Heard], redis_server: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It feeds no queue: what falls to it would be fed by nobody."""

    async def say_nothing(_node: NodeInfo) -> None:
        return

    member, other, third = joined[0], *(redis_member(redis_server.node_url, Heard()) for _ in range(2))
    monkeypatch.setattr(other, "_tell_features", say_nothing)
    await other.join(info("n2"))
    await third.join(info("n3"))
    try:
        assert [one.node_id for one in await member.nodes()] == ["n1", "n2", "n3"]
        assert await member.knowing("queues") == ["n1", "n3"]
        assert not await member.all_know("queues")
        await third.drain()
        assert await member.knowing("queues") == ["n1"]
    finally:
        await other.leave()
        await third.leave()


async def _lost(member: RedisCluster) -> bool:
    try:
        await asyncio.wait_for(member.fenced(), 0.1)
    except TimeoutError:
        return False
    return True


async def test_F21_a_frozen_connection_is_noticed_and_replaced() -> None:
    with RedisProcess() as server:
        heard = Heard()
        member = redis_member(server.node_url, heard)
        await member.join(info("n1"))
        await heard.resubscribed.get()
        with server.paused():
            await eventually(lambda: not member.listening)
            await eventually(lambda: not member._listener.subscribed.is_set())
            with pytest.raises(StoreUnavailableError):
                await member.nodes()
        await asyncio.wait_for(heard.resubscribed.get(), PATIENCE)
        await eventually(lambda: member.listening)
        await member.leave()


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


async def test_after_a_fail_over_behind_one_address_the_new_primary_is_found() -> None:
    with RedisProcess() as old, RedisProcess() as new:
        async with (
            FaultProxy("127.0.0.1", old.port) as address,
            Redis.from_url(old.url) as old_admin,
            Redis.from_url(new.url) as new_admin,
        ):
            heard = Heard()
            member = redis_member(old.node_url.replace(f":{old.port}/", f":{address.port}/"), heard)
            await member.join(info("n1"))
            await heard.resubscribed.get()
            await new_admin.replicaof("127.0.0.1", str(old.port))
            await eventually(lambda: new_admin.exists(LEASE_KEY))
            await new_admin.replicaof("NO", "ONE")
            address.target = ("127.0.0.1", new.port)  # for new connections; those that stand lead to the old one
            await old_admin.replicaof("127.0.0.1", str(new.port))
            await asyncio.wait_for(heard.resubscribed.get(), PATIENCE)
            await eventually(lambda: member.listening)
            assert member._counters["lease.lost"] == 0
            await member.leave()
