"""Commands that end while they wait, in the node, for the window of a Mosquitto that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.cluster.harness import Caller, Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

SENT = 60
WAITING = SENT - 1
"""At least so many of them are not written: one is, unless a canary was written before it."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two nodes at a broker that takes one publish at a time."""
    with (
        MosquittoProcess("max_inflight_messages 1") as broker,
        RedisProcess() as redis,
        cluster_of(2, redis, broker) as nodes,
    ):
        yield nodes


def answer(device: Device, command: Json) -> None:
    device.answer(command)


async def sent(client: Caller, timeout: str) -> list[str]:
    """Commands that the broker does not take; the first of them is written."""
    replies = await asyncio.gather(
        *(client.command(0, f"SN{i}", {}, timeout=timeout, Prefer="respond-async") for i in range(SENT))
    )
    assert {status for status, _ in replies} == {202}
    return [body["id"] for _, body in replies]


async def test_what_is_cancelled_on_any_node_while_it_waits_for_the_broker_is_not_executed(cluster: Cluster) -> None:
    async with devices(cluster.broker, answer) as device, caller(cluster) as client:
        with cluster.broker.paused():
            ids = await sent(client, "60s")
            for i, one in enumerate(ids):
                async with client.session.delete(f"{cluster.nodes[i % 2].url}/v1/commands/{one}") as response:
                    assert response.status == 200
            await eventually(lambda: cluster.counters("publish_withdrawn")[0] >= WAITING)
        status, last = await client.command(0, "SN-LAST", {})
        assert (status, last["state"]) == (200, "succeeded")
        assert len(set(device.executed) & set(ids)) <= 1


async def test_what_times_out_while_it_waits_for_the_broker_is_not_executed(cluster: Cluster) -> None:
    async with devices(cluster.broker, answer) as device, caller(cluster) as client:
        with cluster.broker.paused():
            ids = await sent(client, "2s")
            finals = [await client.final(1, one) for one in ids]
            assert {final["state"] for final in finals} == {"timed_out"}
            await eventually(lambda: cluster.counters("publish_withdrawn")[0] >= WAITING)
        status, last = await client.command(0, "SN-LAST", {})
        assert (status, last["state"]) == (200, "succeeded")
        assert len(set(device.executed) & set(ids)) <= 1


async def test_what_waits_for_the_broker_when_its_node_stops_is_unsent_and_may_be_sent_by_another(
    cluster: Cluster,
) -> None:
    async with devices(cluster.broker, answer) as device, caller(cluster) as client:
        with cluster.broker.paused():
            ids = await sent(client, "60s")
            await asyncio.to_thread(cluster.nodes[0].stop)
            states = [(await client.get(1, one))[1]["state"] for one in ids]
            assert set(states) <= {"pending", "unsent"}
            assert states.count("unsent") >= WAITING
        status, last = await client.command(1, "SN-LAST", {})
        assert (status, last["state"]) == (200, "succeeded")
        assert len(set(device.executed) & set(ids)) <= 1
