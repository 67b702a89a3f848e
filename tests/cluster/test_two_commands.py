"""Two commands that one message may answer, through two nodes, Redis and Mosquitto as they are: Tasmota's RESULT."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import product

import pytest

from app.core.messages import Publication
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from tests.cluster.harness import Cluster, caller, cluster_of
from tests.cluster.test_families import OpenBroker
from tests.services import RedisProcess

STATE = {"POWER": "ON", "Dimmer": 41}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    env = {"HOMING_PROFILES_SHIPPED": "tasmota", "HOMING_PROFILE": "tasmota"}
    with OpenBroker() as broker, RedisProcess() as redis, cluster_of(2, redis, broker, **env) as nodes:
        yield nodes


@asynccontextmanager
async def lamps(cluster: Cluster) -> AsyncIterator[None]:
    """They tell all of their state with each answer, as firmware does that has a dimmer."""
    client = PahoMqttClient(MqttOptions.from_url(cluster.broker.url, client_id="lamps"), Counter())

    def handle(delivery: InboundDelivery) -> None:
        device = delivery.message.topic.split("/")[1]
        _puback = client.publish(Publication(f"stat/{device}/RESULT", json.dumps(STATE).encode(), qos=0))
        delivery.acknowledge()

    await client.start([Subscription("cmnd/+/+")], handle)
    await client.wait_connected()
    yield
    await client.stop()


async def test_each_is_answered_in_every_order_on_every_node(cluster: Cluster) -> None:
    async with caller(cluster) as client, lamps(cluster):
        for number, methods in enumerate(product(STATE, repeat=3)):
            for turn, method in enumerate(methods):
                url = f"{cluster.nodes[turn % 2].url}/v1/devices/lamp-{number}/commands"
                body = {"method": method, "params": {"value": STATE[method]}, "timeout": "60s"}
                async with client.session.post(url, json=body) as response:
                    command = await response.json(content_type=None)
                assert (response.status, command["state"]) == (200, "succeeded"), (methods, turn, command)
                assert command["result"] == STATE
    assert cluster.counters("drop.duplicate") == [0, 0]
