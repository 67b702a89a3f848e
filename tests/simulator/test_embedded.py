"""The demo's broker."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from app.core.messages import Publication
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from homing_simulator.embedded import EmbeddedBroker
from tests.waiting import PATIENCE


def client(broker: EmbeddedBroker, client_id: str) -> PahoMqttClient:
    return PahoMqttClient(MqttOptions.from_url(broker.url, client_id=client_id, version="3.1.1"), Counter())


async def test_commands_and_responses_pass_in_order_and_once() -> None:
    count = 500
    received: list[bytes] = []
    complete = asyncio.Event()

    def collect(delivery: InboundDelivery) -> None:
        received.append(delivery.message.payload)
        delivery.acknowledge()
        if len(received) == count:
            complete.set()

    async with EmbeddedBroker() as broker:
        node, device = client(broker, "node-with-a-name-of-more-than-23-characters"), client(broker, "device")

        def answer(delivery: InboundDelivery) -> None:
            delivery.acknowledge()
            _puback = device.publish(Publication("response/1", delivery.message.payload))

        await node.start([Subscription("response/+")], collect)
        await device.start([Subscription("command/1")], answer)
        await asyncio.gather(node.wait_connected(), device.wait_connected())
        for number in range(count):
            _puback = node.publish(Publication("command/1", b"%d" % number))
        await asyncio.wait_for(complete.wait(), PATIENCE)
        await asyncio.gather(node.stop(), device.stop())
    assert received == [b"%d" % number for number in range(count)]


async def test_it_stops_with_clients_connected() -> None:
    async with EmbeddedBroker() as broker:
        node = client(broker, "node")
        await node.start([Subscription("x")], lambda delivery: delivery.acknowledge())
        await node.wait_connected()
    await node.stop()
    with pytest.raises(RuntimeError):
        assert broker.url


async def test_two_can_run_beside_each_other() -> None:
    async with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.url != other.url
