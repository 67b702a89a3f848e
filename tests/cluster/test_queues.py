"""Queues on two nodes with a real Redis: nodes die with what they lent, and Redis goes back to an older copy."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cluster.harness import Cluster, NodeProcess, cluster_of
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import PATIENCE, eventually

Taken = list[dict[str, Any]]


@pytest.fixture
def own_redis() -> Iterator[RedisProcess]:
    with RedisProcess() as redis:
        yield redis


def env(redis: RedisProcess) -> dict[str, str]:
    return {"HOMING_EVENTS_URL": redis.node_url, "HOMING_MQTT_SHARE_GROUP": "queues"}


class Caller:
    """Uses the queue `alarms` at one node, and repeats what was not answered."""

    def __init__(self, node: NodeProcess) -> None:
        self._url = node.url

    async def ask(self, method: str, path: str, body: Any) -> Any:  # noqa: ANN401 - any JSON
        found: list[httpx.Response] = []

        async def answered() -> bool:
            try:
                async with httpx.AsyncClient(base_url=self._url, timeout=PATIENCE) as http:
                    found[:] = [await http.request(method, path, json=body)]
            except httpx.TransportError:
                return False
            return found[0].status_code < 500

        await eventually(answered)
        assert found[0].is_success, found[0].text
        return found[0].json() if found[0].content else None

    async def declare(self, **options: Any) -> None:
        routes = [{"database": "events", "topic": "site/+/alarm"}]
        await self.ask("PUT", "/v1/queues/alarms", {"routes": routes, **options})

    async def publish(self, *values: int) -> None:
        await self.ask("POST", "/v1/events", [{"topic": f"site/{one}/alarm", "data": one} for one in values])

    async def take(self, most: int = 100, wait: str = "5s") -> Taken:
        body = {"max": most, "wait": wait}
        taken: Taken = (await self.ask("POST", "/v1/queues/alarms/take", body))["events"]
        return taken

    async def take_all(self, *values: int) -> Taken:
        """Until each of these was lent; others may be lent, too."""
        found: Taken = []
        async with asyncio.timeout(PATIENCE):
            while not set(values) <= set(values_of(found)):
                found += await self.take()
        return found

    async def work(self, *values: int) -> Taken:
        """Take and settle until each of these was settled."""
        found: Taken = []
        async with asyncio.timeout(PATIENCE):
            while not set(values) <= set(values_of(found)):
                taken = await self.take()
                over = await self.settle(taken)
                found += [one for one in taken if one["loan"] not in over]
        return found

    async def settle(self, taken: Taken) -> list[str]:
        """The loans that were over."""
        told = await self.ask("POST", "/v1/queues/alarms/settle", {"done": [one["loan"] for one in taken]})
        over: list[str] = told["over"]
        return over

    async def counts(self) -> dict[str, int]:
        told: dict[str, int] = (await self.ask("GET", "/v1/queues/alarms", None))["counts"]
        return told


def values_of(taken: Taken) -> list[int]:
    return [one["event"]["data"] for one in taken]


async def started(cluster: Cluster, **options: Any) -> list[Caller]:
    callers = [Caller(one) for one in cluster.nodes]
    await callers[0].declare(**options)
    return callers


async def test_what_a_node_lent_before_it_died_is_settled_or_lent_again_elsewhere(
    redis_server: RedisProcess, mosquitto: MosquittoProcess
) -> None:
    with cluster_of(2, redis_server, mosquitto, **env(redis_server)) as cluster:
        dead, alive = await started(cluster, loan="20s")
        await dead.publish(*range(20))
        lent = await dead.take_all(*range(20))
        assert await alive.settle(lent[:5]) == [], "a loan is settled at any node"
        await asyncio.to_thread(cluster.nodes[0].kill)
        await alive.publish(*range(20, 40))
        left = values_of(lent[5:])
        taken = await alive.work(*left, *range(20, 40))
        assert sorted(values_of(taken)) == sorted([*left, *range(20, 40)]), "none is settled twice"
        assert set(left) <= {one["event"]["data"] for one in taken if one["delivery"] > 1}
        late = [one["loan"] for one in lent]
        assert sorted(await alive.settle(lent)) == sorted(late), "who acknowledges too late settles nothing"
        told = await alive.counts()
        assert (told["ready"], told["lent"], told["later"], told["done"]) == (0, 0, 0, 40)


async def test_a_redis_that_goes_back_to_an_older_copy_lends_again_and_forgets_none(
    own_redis: RedisProcess, mosquitto: MosquittoProcess
) -> None:
    """As when a replica takes over that lacks the last seconds."""
    with cluster_of(2, own_redis, mosquitto, **env(own_redis)) as cluster:
        one, two = await started(cluster, loan="10m")
        await one.publish(*range(10))
        lent = await one.take_all(*range(10))
        assert await two.settle(lent[:4]) == []
        files, copy = own_redis.folder / "appendonlydir", own_redis.folder / "older"
        await asyncio.to_thread(own_redis.stop)
        shutil.copytree(files, copy)
        await asyncio.to_thread(own_redis.start)
        assert await one.settle(lent[4:7]) == []
        await two.publish(*range(10, 15))
        gone = await two.take_all(*range(10, 15))
        await asyncio.to_thread(own_redis.kill)
        shutil.rmtree(files)
        copy.rename(files)
        await asyncio.to_thread(own_redis.start)
        assert await one.settle(gone) == [each["loan"] for each in gone], "they are gone with the log"
        await one.publish(*range(20, 25))
        taken = await two.take_all(*range(20, 25))
        assert sorted(values_of(taken)) == list(range(20, 25))
        assert await one.settle([*lent[4:], *taken]) == [], "the loans of the older copy hold"
        told = await two.counts()
        assert (told["ready"], told["lent"], told["later"], told["done"]) == (0, 0, 0, 15)
