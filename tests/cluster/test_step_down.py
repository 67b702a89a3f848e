"""A node that loses Redis alone leaves its share of the responses to others at once, and comes back to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from homing_rig.chaos.proxy import FaultProxy
from tests.cluster.harness import Cluster, Device, Json, NodeProcess, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

LONG_LEASE = "60s"
"""Nobody takes over what a node has because its lease is over."""

ASKED = re.compile(rb'homing_step_down_total\{[^}]*step="asked"[^}]*\} [1-9]')


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with (
        MosquittoProcess() as broker,
        RedisProcess() as redis,
        cluster_of(2, redis, broker, HOMING_CLUSTER_LEASE=LONG_LEASE) as nodes,
    ):
        yield nodes


async def test_F33_a_node_cut_off_from_redis_leaves_what_it_was_given_to_the_others(cluster: Cluster) -> None:
    held: list[Json] = []

    def keep(_device: Device, command: Json) -> None:
        held.append(command)

    redis = cluster.redis
    async with (
        FaultProxy("127.0.0.1", redis.port) as proxy,
        devices(cluster.broker, keep) as device,
        caller(cluster) as client,
    ):
        store = redis.node_url.replace(f":{redis.port}", f":{proxy.port}")
        node = NodeProcess(
            "cut", redis, cluster.broker, module="app.cli", HOMING_STORE_URL=store, HOMING_CLUSTER_LEASE=LONG_LEASE
        )
        try:
            await asyncio.to_thread(node.start)  # not by `with`, which would stop the proxy meanwhile
            sent = [
                (await client.command(i % 2, f"SN{i}", {"nonce": i}, timeout="5m", Prefer="respond-async"))[1]["id"]
                for i in range(90)
            ]
            await eventually(lambda: len(held) == 90)
            proxy.blackhole()
            for command in held:
                device.answer(command)  # a third of them goes to the node that can do nothing with it
            finals = [await client.final(i % 2, one) for i, one in enumerate(sent)]
            assert [one["result"]["nonce"] for one in finals] == list(range(90))
            assert "node_stepped_down" in node.log_text
            proxy.reset()
            proxy.heal()
            await eventually(lambda: asyncio.to_thread(node._answers))
            assert "node_fenced" in node.log_text
        finally:
            node.__exit__(None, None, None)
    await eventually(lambda: sum(cluster.counters("adoption.sessions")) == 1)


async def test_F33_where_redis_is_away_for_all_nobody_steps_down(cluster: Cluster) -> None:
    def answer(device: Device, command: Json) -> None:
        device.answer(command)

    async with devices(cluster.broker, answer), caller(cluster) as client:
        with cluster.redis.paused():
            await eventually(lambda: asyncio.to_thread(all_say_that_redis_is_away, cluster))
            # Each has asked by now, and nobody has answered.
            await eventually(lambda: asyncio.to_thread(all_have_asked, cluster))
        await eventually(lambda: asyncio.to_thread(all_answer, cluster))
        assert (await client.command(0, "SN1", {"nonce": 1}))[1]["state"] == "succeeded"
    assert cluster.counters("stepdown.left") == [0, 0]


def all_answer(cluster: Cluster) -> bool:
    return all(node._answers() for node in cluster.nodes)


def all_say_that_redis_is_away(cluster: Cluster) -> bool:
    return not any(node._answers() for node in cluster.nodes)


def all_have_asked(cluster: Cluster) -> bool:
    return all(ASKED.search(urlopen(f"{node.url}/metrics").read()) for node in cluster.nodes)  # noqa: S310 - our own http URL
