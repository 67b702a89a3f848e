"""Held commands on real processes: one node sends each when its device is back, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.cluster.harness import Caller, Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.stores import redis_store
from tests.waiting import eventually


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(2, redis, broker) as nodes:
        yield nodes


async def hold(client: Caller, node: int, device: str, *, method: str = "cover_open", timeout: str = "20s") -> str:
    url = f"{client.cluster.nodes[node].url}/v1/devices/{device}/commands"
    body = {"method": method, "params": {"nonce": device}, "timeout": timeout, "hold": "1h"}
    async with client.session.post(url, json=body) as response:
        command: Json = await response.json()
        assert (response.status, command["state"]) == (202, "held")
        return str(command["id"])


async def tried(client: Caller, node: int, command_id: str) -> bool:
    _, command = await client.get(node, command_id)
    return bool(command["state"] == "held" and command["hold"]["claims"])


def say_hello(device: Device, name: str) -> None:
    """Answer nothing that was asked: a sign of life."""
    device.answer({"tid": "hello", "bid": "hello", "timestamp": 0, "method": "hello", "data": {}, "device_id": name})


async def test_each_is_sent_once_and_not_when_it_was_cancelled(cluster: Cluster) -> None:
    names = [f"SN{i}" for i in range(12)]
    async with caller(cluster) as client:
        ids = [await hold(client, i % 2, name) for i, name in enumerate(names)]
        for one in ids:
            await eventually(partial(tried, client, 1, one))
        cluster.nodes[0].kill()
        cluster.end_lease("n1")
        async with client.session.delete(f"{cluster.nodes[1].url}/v1/commands/{ids[0]}") as response:
            assert response.status == 200
        async with devices(cluster.broker, Device.answer) as device:
            for name in names:
                say_hello(device, name)
            finals = [await client.final(1, one) for one in ids]
    assert [one["state"] for one in finals] == ["cancelled", *["succeeded"] * 11]
    assert [one["result"]["nonce"] for one in finals[1:]] == names[1:]
    assert [device.executed[one] for one in ids] == [0, *[1] * 11]


async def test_a_claimant_that_dies_leaves_what_nobody_sends_again(cluster: Cluster) -> None:
    """Nobody knows whether it had left: it ends at its deadline."""
    async with caller(cluster) as client:
        claimed = await hold(client, 0, "SN1", method="return_home", timeout="3s")  # not repeatable
        await eventually(lambda: tried(client, 1, claimed))
        store = redis_store(cluster.redis.url)
        await store.start()
        try:
            assert await store.claim(claimed, "n1", "a token of the node that dies now") is not None
        finally:
            await store.close()
        cluster.nodes[0].kill()
        cluster.end_lease("n1")
        async with devices(cluster.broker, Device.answer) as device:
            say_hello(device, "SN1")
            assert (await client.final(1, claimed))["state"] == "timed_out"
    assert device.executed[claimed] == 0


async def test_c104_what_the_store_has_forgotten_is_not_sent_again(cluster: Cluster) -> None:
    """Redis comes back without the claim; the node that has made it says so before anybody claims again."""

    def never(_device: Device, _command: Json) -> None:
        """Answer nothing: the command stays open."""

    async with caller(cluster) as client:
        first = await hold(client, 0, "SN1")
        await eventually(partial(tried, client, 1, first))
        end = cluster.redis.log_end()
        async with devices(cluster.broker, never) as device:
            say_hello(device, "SN1")
            await eventually(lambda: device.executed[first] == 1)
            cluster.redis.forget_since(end)
            later = await hold(client, 1, "SN2")

            def later_is_sent() -> bool:
                for name in ("SN1", "SN2"):
                    say_hello(device, name)
                return device.executed[later] > 0

            await eventually(later_is_sent)
            _, command = await client.get(1, first)
    assert device.executed[first] == 1
    assert command["state"] in ("pending", "sent", "acknowledged")
    assert sum(cluster.counters("held.reasserted.again")) == 1
