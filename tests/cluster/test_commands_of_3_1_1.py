"""A node that speaks MQTT 3.1.1, in which no command expires at the broker, and a device that is away."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from app.core.messages import Publication
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions, MqttVersion
from app.mqtt.paho import PahoMqttClient
from tests.cluster.test_events import LoneNode
from tests.services import MosquittoProcess
from tests.waiting import PATIENCE, eventually

DEVICE = "lamp-1"
PRESENCE = f"homing/{DEVICE}/presence"


class Device:
    """It has a durable session, and says when it comes and goes."""

    def __init__(self, broker: MosquittoProcess) -> None:
        self.received: list[dict[str, Any]] = []
        self._options = MqttOptions.from_url(broker.url, client_id=DEVICE, version="3.1.1")

    @asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        client = PahoMqttClient(self._options, Counter())
        await client.start([Subscription(f"homing/{DEVICE}/command")], self._handle)
        await asyncio.wait_for(client.wait_connected(), PATIENCE)
        await client.publish(Publication(PRESENCE, b'{"online": true}'))
        yield
        await client.publish(Publication(PRESENCE, b'{"online": false}'))
        await client.stop(keep_session=True)

    def _handle(self, delivery: InboundDelivery) -> None:
        if delivery.message.payload:
            self.received.append(json.loads(delivery.message.payload))
        delivery.acknowledge()


async def present(http: aiohttp.ClientSession, *, online: bool) -> None:
    async def is_known() -> bool:
        async with http.get(f"/v1/devices/{DEVICE}/state") as answer:
            return bool((await answer.json())["presence"]["online"] is online)

    await eventually(is_known)


async def send(http: aiohttp.ClientSession, number: int, **more: object) -> dict[str, Any]:
    body = {"profile": "homing", "method": "dim", "params": {"n": number}, "timeout": "1s", **more}
    async with http.post(f"/v1/devices/{DEVICE}/commands", json=body) as answer:
        told: dict[str, Any] = await answer.json()
        return told


@pytest.mark.parametrize("version", ["3.1.1", "5"])
async def test_a_command_to_a_device_that_has_said_that_it_goes_is_not_left_at_the_broker(
    mosquitto: MosquittoProcess, tmp_path: Path, version: MqttVersion
) -> None:
    """Send to a device that is away: with 3.1.1 it would get it whenever it is back; `send` means just that."""
    node, device = LoneNode(mosquitto, tmp_path), Device(mosquitto)
    node.configure(HOMING_MQTT_VERSION=version)
    with node:
        async with aiohttp.ClientSession(base_url=node.url) as http:

            async def heard() -> bool:
                async with device.there(), http.get(f"/v1/devices/{DEVICE}/state") as answer:
                    return (await answer.json())["presence"]["online"] is not None

            await eventually(heard)
            async with device.there():
                await present(http, online=True)
            await present(http, online=False)
            told = await send(http, 1)
            expected = "device-offline" if version == "3.1.1" else "timed-out"
            assert told["type"] == f"urn:homing:problem:{expected}", told
            told = await send(http, 2, if_offline="send")
            assert told["type"] == "urn:homing:problem:timed-out", told
            late = [2] if version == "3.1.1" else []

            async def gone_from_broker() -> None:
                await asyncio.sleep(1.1)  # the deadlines are over, and MQTT counts in whole seconds

            await gone_from_broker()
            async with device.there():
                await present(http, online=True)
                await eventually(lambda: len(device.received) >= len(late))
            assert [one["params"]["n"] for one in device.received] == late
