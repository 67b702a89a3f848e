"""Nodes on a Redis Cluster serve callers over HTTP, and go on when one of its primaries is replaced."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import cast

import pytest

from homing_rig.redis_members import takes_over
from tests.cluster.harness import Cluster, Device, Json, caller, cluster_of, devices
from tests.services import NODE_USER, MosquittoProcess, RedisProcess, require_programs
from tests.sharded import MemberProcess, Sharded, sharded
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


def names_at(member: MemberProcess) -> Counter[str]:
    """The names of the connections that nodes have there; one for a single question is left out."""
    listed = str(member.ask("CLIENT", "LIST")).splitlines()
    clients = [dict(part.split("=", 1) for part in line.split()) for line in listed]
    return Counter(one["name"] for one in clients if one["user"] == NODE_USER and one["name"] != "homing")


def all_connected(redis: Sharded, nodes: int) -> bool:
    """True if nodes have the connections that docs/operations/redis-cluster-and-sentinel.md says, and no others."""
    found = [names_at(one) for one in redis.primaries]
    once = ("homing-roles", "homing-wake-ups", "homing-hints")
    many = [Counter({name: count for name, count in one.items() if name not in once}) for one in found]
    names = ("commands", "lists", "cluster", "events", "queues")
    each = Counter({f"homing-{name}": nodes for name in names})
    return many == [each] * len(found) and all(sum(one[name] for one in found) == nodes for name in once)


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
        await eventually(lambda: all_connected(redis, nodes=2))
        assert await asyncio.to_thread(takes_over, redis.members[3])
        await eventually(redis.whole)
        while (again := await client.many(50, 16)).states != {"succeeded": 50}:
            assert again.wrong == []
        after = await client.many(300, 16)
        assert after.states == {"succeeded": 300}
        assert after.wrong == []
        assert set(device.executed.values()) == {1}
        assert calm.forwarded > 0
