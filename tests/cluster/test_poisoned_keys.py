"""Poisoned keys of the cluster, as a torn write, a hand or a later version may leave them: no node ends, no answer is
lost.

A program at Redis is an administrator (docs/threat-model.md), so this is about accidents and not about attacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest
from redis.asyncio import Redis

from app.core import keys
from app.core.identifiers import partition_of
from tests.cluster.harness import Cluster
from tests.cluster.outside import (
    LASTING,
    RECOVERY,
    Scene,
    WatchedBroker,
    all_ready,
    asked,
    scene,
    shared_subscriptions,
)
from tests.services import RedisProcess
from tests.waiting import eventually

NO_TEXT = b"\xff\xfe"
"""No UTF-8."""


@pytest.fixture
def redis_server() -> Iterator[RedisProcess]:
    """A Redis for this test alone, as it is poisoned."""
    with RedisProcess() as server:
        yield server


@pytest.fixture
def broker() -> Iterator[WatchedBroker]:
    with WatchedBroker() as server:
        yield server


async def _lived_on(redis: Redis, cluster: Cluster) -> None:
    """Every node has renewed its lease twice, so that one whole round of its heartbeat lies in between."""
    for _ in range(2):
        for node in cluster.nodes:
            key = f"mqtt:lease:{{{node.node_id}}}"
            ends = await redis.pexpiretime(key)
            await eventually(partial(_another_end, redis, key, ends))
    assert [asked(node, "/healthz")[0] for node in cluster.nodes] == [200] * len(cluster.nodes)


async def _another_end(redis: Redis, key: str, before: int) -> bool:
    return bool(await redis.pexpiretime(key) != before)


async def test_bytes_that_are_no_text_in_what_nodes_tell_each_other_end_no_node(
    redis_server: RedisProcess, broker: WatchedBroker
) -> None:
    async with scene(redis_server, broker, 2) as running, Redis.from_url(redis_server.url) as redis:
        until = await redis.pexpiretime("mqtt:nodes")
        await redis.zadd("mqtt:nodes", {NO_TEXT: until})
        await redis.zadd("mqtt:nodes", {"n9": until})
        await redis.set("mqtt:lease:{n9}", NO_TEXT, ex=60)
        await redis.hset("mqtt:sessions:{n9}", mapping={NO_TEXT: NO_TEXT})
        await redis.hset("mqtt:sessions:{n1}", mapping={NO_TEXT: NO_TEXT})
        await redis.set("mqtt:draining:{n1}", NO_TEXT, ex=60)
        await redis.set("mqtt:limits:{n9}", NO_TEXT, ex=60)
        await redis.hset("mqtt:access", mapping={"version": NO_TEXT, "at": NO_TEXT, "copy": NO_TEXT})
        await _lived_on(redis, running.cluster)
        await running.works()


@pytest.mark.parametrize("field", ["group", "key"])
async def test_a_damaged_charter_is_made_anew(redis_server: RedisProcess, broker: WatchedBroker, field: str) -> None:
    async with (
        scene(redis_server, broker, 2) as running,
        shared_subscriptions(broker) as counts,
        Redis.from_url(redis_server.url) as redis,
    ):
        await redis.hset("mqtt:cluster", field, NO_TEXT)
        await _lived_on(redis, running.cluster)
        await running.recovers(counts)
        assert await redis.hget("mqtt:cluster", field) != NO_TEXT


async def test_no_answer_is_lost_to_dead_nodes_that_the_store_has_forgotten(
    redis_server: RedisProcess, broker: WatchedBroker
) -> None:
    """Somebody deletes the list of nodes, to heal it: whose sessions are still at the broker, nobody knows then."""
    async with (
        scene(redis_server, broker, 2) as running,
        Redis.from_url(redis_server.url) as redis,
    ):
        # The charter knows of the list from a second after the list was made: before that its loss is none.
        await eventually(lambda: redis.hexists("mqtt:cluster", "listed"))
        for number, node in enumerate(running.cluster.nodes):
            node.kill()
            node.configure(HOMING_NODE_ID=f"new-{number}")
        await redis.delete("mqtt:nodes")
        await _start(running)
        await running.works()
        await eventually(lambda: all_ready(running.cluster))


async def test_a_dead_node_that_the_store_forgets_under_a_living_one_takes_no_answers(
    redis_server: RedisProcess, broker: WatchedBroker
) -> None:
    async with (
        scene(redis_server, broker, 3) as running,
        Redis.from_url(redis_server.url) as redis,
    ):
        await eventually(lambda: redis.hexists(keys.CLUSTER, "listed"))
        await _lived_on(redis, running.cluster)  # so all know that there is a list to lose
        group = broker.group()
        running.cluster.nodes.pop().kill()
        await redis.delete("mqtt:sessions:{n3}", "mqtt:nodes")
        await eventually(lambda: broker.group() != group)
        await eventually(lambda: all_ready(running.cluster))
        await _loses_nothing_and_settles(running)


async def _loses_nothing_and_settles(running: Scene) -> None:
    """Nodes change to a new group one after the other, and refuse meanwhile; nothing may be lost by that."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(RECOVERY):
        since = loop.time()
        while loop.time() < since + LASTING:
            told = await running.round()
            refused = [end for end in told if end.startswith("503")]
            assert set(told) <= {"succeeded", *refused}, told
            if refused:
                since = loop.time()


async def _start(running: Scene) -> None:
    await asyncio.gather(*(asyncio.to_thread(node.start) for node in running.cluster.nodes))


async def test_a_key_of_another_type_is_a_refusal_and_no_mistake_of_the_node(
    redis_server: RedisProcess, broker: WatchedBroker
) -> None:
    listed = keys.listing(partition_of("SN0000"))
    async with (
        scene(redis_server, broker, 1, HOMING_WEBHOOKS_SECRET_KEY="0" * 64) as running,
        Redis.from_url(redis_server.url) as redis,
    ):
        await redis.delete(listed, keys.WEBHOOKS)
        await redis.mset({listed: "of another type", keys.WEBHOOKS: "of another type"})
        status, said = await running.client.command(0, "SN0000", {}, timeout="10s")
        assert (status, said["type"]) == (503, "urn:homing:problem:store-refused"), said
        assert (await asyncio.to_thread(asked, running.cluster.nodes[0], "/v1/webhooks"))[0] == 503
        await redis.delete(listed, keys.WEBHOOKS)
        assert (await asyncio.to_thread(asked, running.cluster.nodes[0], "/v1/webhooks"))[0] == 200
        await running.works()
