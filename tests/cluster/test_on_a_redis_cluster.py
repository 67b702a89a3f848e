"""Nodes on a Redis Cluster serve callers over HTTP, and go on when one of its primaries is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from tests.cluster.harness import Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess, require_programs
from tests.sharded import Sharded, sharded
from tests.waiting import eventually


class AsOneRedis:
    """A Redis Cluster in the place of one server."""

    def __init__(self, cluster: Sharded) -> None:
        self._cluster = cluster
        self.node_url = cluster.url

    def forget_refusals(self) -> None:
        for one in self._cluster.members:
            one.forget_refusals()

    def refusals(self) -> str:
        return "".join(one.refusals() for one in self._cluster.members if one.state())

    def forget_everything(self) -> None:
        self._cluster.empty()


@pytest.fixture
def redis() -> Iterator[Sharded]:
    require_programs()
    with sharded(replicas=True) as cluster:
        yield cluster


def at_once(device: Device, command: Json) -> None:
    device.answer(command)


async def test_two_nodes_answer_every_command_once_through_a_planned_fail_over(redis: Sharded) -> None:
    with (
        MosquittoProcess() as broker,
        cluster_of(2, cast("RedisProcess", AsOneRedis(redis)), broker, HOMING_EVENTS_URL=redis.url) as nodes,
    ):
        await served(nodes, redis)


async def served(nodes: Cluster, redis: Sharded) -> None:
    async with devices(nodes.broker, at_once) as device, caller(nodes) as client:
        calm = await client.many(300, 16)
        assert calm.states == {"succeeded": 300}
        assert calm.wrong == []
        await asyncio.to_thread(redis.members[3].ask, "CLUSTER", "FAILOVER")
        await eventually(redis.members[3].is_primary)
        await eventually(redis.whole)
        while (again := await client.many(50, 16)).states != {"succeeded": 50}:
            assert again.wrong == []
        after = await client.many(300, 16)
        assert after.states == {"succeeded": 300}
        assert after.wrong == []
        assert set(device.executed.values()) == {1}
        assert calm.forwarded > 0
