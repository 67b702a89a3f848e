"""Commands to devices that are not there, with nodes, Redis and Mosquitto as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from tests.cluster.harness import Caller, Cluster, Json, caller, cluster_of
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(2, redis, broker) as nodes:
        yield nodes


@asynccontextmanager
async def subscribed(cluster: Cluster, topic_filter: str) -> AsyncIterator[PahoMqttClient]:
    client = PahoMqttClient(MqttOptions.from_url(cluster.broker.url, client_id="somebody"), Counter())
    await client.start([Subscription(topic_filter)], InboundDelivery.acknowledge)
    await client.wait_connected()
    yield client
    await client.stop(keep_session=True)


async def send(client: Caller, node: int, **members: Any) -> tuple[int, Json]:
    url = f"{client.cluster.nodes[node].url}/v1/devices/SN0001/commands"
    body = {"method": "cover_open", "profile": "dji", "timeout": "60s", **members}
    async with client.session.post(url, json=body) as response:
        return response.status, await response.json(content_type=None)


async def defaults(client: Caller, node: int) -> dict[str, str]:
    async with client.session.get(f"{client.cluster.nodes[node].url}/v1/nodes") as response:
        found: dict[str, str] = (await response.json())["self"]["if_offline"]
        return found


async def known(client: Caller, node: int) -> dict[str, str]:
    """Return what a node has found out, which it has when it knows of the profile that nobody listens to."""
    found: dict[str, str] = {}

    async def told() -> bool:
        found.update(await defaults(client, node))
        return found["homing"] == "fail"

    await eventually(told)
    return found


async def test_a_command_to_nobody_is_refused_at_once_and_every_node_says_why(cluster: Cluster) -> None:
    async with caller(cluster) as client:
        for node in (0, 1):
            assert await known(client, node) == {"dji": "fail", "homing": "fail"}
            for members in ({}, {"one_way": True}, {"one_way": True, "if_offline": "send"}):
                status, body = await send(client, node, **members)
                assert (status, body["type"]) == (409, "urn:homing:problem:device-not-listening")
                _, read = await client.get(1 - node, body["command_id"])
                assert (read["state"], read["error"]["code"]) == ("unsent", "no_subscriber")
                assert read["if_offline"] == members.get("if_offline", "fail")
    assert cluster.counters("publish_unmatched") == [3, 3]
    assert cluster.counters("drop.unreadable_record") == [0, 0]


async def test_a_device_with_a_session_is_a_subscriber_while_it_is_away(cluster: Cluster) -> None:
    async with subscribed(cluster, "thing/product/SN0001/services"):
        pass
    async with caller(cluster) as client:
        status, body = await send(client, 0, if_offline="fail", timeout="300ms")
        assert (status, body["type"]) == (504, "urn:homing:problem:timed-out")


async def test_who_listens_to_everything_makes_absence_unknown(cluster: Cluster) -> None:
    async with subscribed(cluster, "thing/#"), caller(cluster) as client:
        cluster.nodes[0].kill()
        cluster.nodes[0].start()
        assert await known(client, 0) == {"dji": "send", "homing": "fail"}
        status, _ = await send(client, 0, timeout="300ms")
        assert status == 504
    async with caller(cluster) as client:
        status, _ = await send(client, 0, if_offline="fail", timeout="300ms")
        assert status == 504  # its session is still there
