"""A lamp behind zigbee2mqtt whose name has blanks and a slash, and two nodes that call it by that name."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.core.messages import Publication
from app.mqtt.base import Delivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from homing_client import AsyncHoming
from tests.cluster.harness import caller, cluster_of
from tests.cluster.test_families import OpenBroker
from tests.services import RedisProcess

NAME = "living room/lamp 1"
ID = "living%20room%2Flamp%201"
SET = f"zigbee2mqtt/{NAME}/set"


class Lamp:
    """Tells its state after each command, as zigbee2mqtt does, and so does one that is called like the id."""

    def __init__(self, client: PahoMqttClient) -> None:
        self._client = client
        self.heard: list[dict[str, object]] = []

    def hear(self, delivery: Delivery) -> None:
        wanted = json.loads(delivery.message.payload)
        delivery.acknowledge()
        self.heard.append(wanted)
        for name, extra in ((ID, "stranger"), (f"{NAME}/left", "stranger"), (NAME, "lamp")):
            state = json.dumps({**wanted, "said_by": extra}).encode()
            _ = self._client.publish(Publication(f"zigbee2mqtt/{name}", state))


@asynccontextmanager
async def lamp_on(broker: OpenBroker) -> AsyncIterator[Lamp]:
    client = PahoMqttClient(MqttOptions.from_url(broker.url, client_id="lamp"), Counter())
    lamp = Lamp(client)
    await client.start([Subscription(SET)], lamp.hear)
    await client.wait_connected()
    try:
        yield lamp
    finally:
        await client.stop()


async def test_a_lamp_in_a_room_is_one_device_for_all_who_call_it() -> None:
    with (
        OpenBroker() as broker,
        RedisProcess() as server,
        cluster_of(2, server, broker, HOMING_PROFILES_SHIPPED="zigbee2mqtt", HOMING_PROFILE="zigbee2mqtt") as cluster,
    ):
        async with lamp_on(broker) as lamp, caller(cluster) as client:
            ids = []
            for number in range(10):
                status, sent = await client.command(
                    number, ID, {"state": "ON", "brightness": number}, method="set", timeout="30s"
                )
                assert (status, sent["state"], sent["device_id"]) == (200, "succeeded", ID), sent
                assert sent["result"] == {"state": "ON", "brightness": number, "said_by": "lamp"}
                ids.append(sent["id"])
            assert len(lamp.heard) == 10
            url = cluster.nodes[1].url
            async with AsyncHoming(url) as homing:
                for name in (NAME, ID):
                    said = await homing.send(name, "set", {"state": "OFF"}, timeout="30s")
                    assert (said.state, said.device_id) == ("succeeded", ID)
                    ids.append(said.id)
                    for of_device in (homing.commands(device=name), homing.commands_of(name)):
                        assert [one.id async for one in of_device] == ids[::-1]
            command = [sys.executable, "-m", "app.cli", "send", NAME, "set", "state=ON", "--url", url]
            told = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
            told_text, wrong = await told.communicate()
            assert (told.returncode, ID in told_text.decode()) == (0, True), wrong
