"""A rolling update of a cluster with queues: a node of an earlier version beside one of this, on one Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.cluster.harness import Cluster, NodeProcess
from tests.cluster.test_queues import Caller, env, started, values_of
from tests.contract.test_event_versions import COMMIT as OF_0_2_0
from tests.previous import previous_version
from tests.services import MosquittoProcess, RedisProcess

BEFORE_DATES = "a79533c797d8f0652dbe38977449e1e60225a3e3"
"""The last commit whose scripts knew no dated messages, and whose appends gave no hint."""


@contextmanager
def beside(commit: str) -> Iterator[Cluster]:
    """Number 0 is this version, number 1 the earlier one."""
    with ExitStack() as stack:
        folder = stack.enter_context(previous_version(commit))
        broker, redis = stack.enter_context(MosquittoProcess()), stack.enter_context(RedisProcess())
        new = stack.enter_context(NodeProcess("new", redis, broker, module="app.cli", **env(redis)))
        old = NodeProcess("old", redis, broker, module="app.cli", **env(redis), PYTHONPATH=str(folder))
        yield Cluster(redis, broker, [new, stack.enter_context(old)])


async def test_both_feed_lend_and_settle_one_queue_and_nothing_comes_twice() -> None:
    with beside(BEFORE_DATES) as cluster:
        new, old = await started(cluster, loan="5m")
        values = range(80)
        await asyncio.gather(new.publish(*values[::2]), old.publish(*values[1::2]))
        taken = []
        async with asyncio.timeout(60):
            while len(taken) < len(values):
                for taker, settler in ((new, old), (old, new)):
                    part = await taker.take(10, "1s")
                    assert await settler.settle(part) == []
                    taken += part
        assert sorted(values_of(taken)) == list(values)
        found = await new.counts()
        assert (found["ready"], found["lent"], found["done"]) == (0, 0, len(values))
        assert not cluster.redis.refusals()


@pytest.mark.parametrize("publisher", ["new", "old"])
async def test_beside_a_node_of_0_2_0_this_one_feeds_all_shards(publisher: str) -> None:
    with beside(OF_0_2_0) as cluster:
        new = Caller(cluster.nodes[0])
        await new.declare(loan="5m")
        said = new if publisher == "new" else Caller(cluster.nodes[1])
        await said.publish(*range(40))
        assert set(values_of(await new.work(*range(40)))) == set(range(40))
