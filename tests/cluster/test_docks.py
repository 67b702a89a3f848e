"""A dock that asks the cloud questions, and two nodes that answer each once, on a Mosquitto with the rights we ship."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.core.messages import Publication
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from tests.cluster.harness import caller, cluster_of
from tests.services import NODE_PASSWORD, MosquittoProcess, RedisProcess
from tests.waiting import eventually

DOCK = "SN0001"
"""Has a password in deploy/mosquitto/passwords.example, and rights for its own topics only."""
ROUNDS = 10
QUESTIONS = {
    "config": ({"config_scope": "product"}, {"app_id": 7, "app_key": "k", "app_license": "l"}),
    "airport_organization_get": ({}, {"result": 0, "output": {"organization_name": "Homing"}}),
    "flight_areas_get": (None, {"result": 0, "output": {"files": []}}),
    "storage_config_get": ({"module": 0}, {"result": 1}),
    "of_the_next_release": ({}, {"result": 1}),
}


class Dock:
    """A dock that starts: it says what docks say then, and keeps what it is told."""

    def __init__(self, client: PahoMqttClient) -> None:
        self._client = client
        self.told: dict[str, list[Any]] = {}

    async def say(self, topic: str, tid: str, method: str, data: object, **extra: object) -> None:
        body = {"tid": tid, "bid": "b", "timestamp": 1, "gateway": DOCK, "method": method, "data": data, **extra}
        await self._client.publish(Publication(topic, json.dumps(body).encode()))

    def hear(self, delivery: InboundDelivery) -> None:
        body = json.loads(delivery.message.payload)
        delivery.acknowledge()
        if not delivery.message.topic.endswith("/services"):
            self.told.setdefault(body["tid"], []).append((delivery.message.topic, body["data"]))
        else:
            reply = {"tid": body["tid"], "bid": body["bid"], "data": {"result": 0}}
            _ = self._client.publish(Publication(f"thing/product/{DOCK}/services_reply", json.dumps(reply).encode()))


@asynccontextmanager
async def dock_on(broker: MosquittoProcess) -> AsyncIterator[Dock]:
    options = MqttOptions.from_url(broker.url, client_id="dock")
    client = PahoMqttClient(replace(options, username=DOCK, password=NODE_PASSWORD), Counter())
    dock = Dock(client)
    await client.start([Subscription(f"{root}/product/{DOCK}/#") for root in ("thing", "sys")], dock.hear)
    await client.wait_connected()
    try:
        yield dock
    finally:
        await client.stop()


async def test_a_dock_lives_with_homing_alone(tmp_path: Path) -> None:
    values = tmp_path / "values.toml"
    values.write_text('[dji]\napp_id = 7\napp_key = "k"\napp_license = "l"\n')
    with (
        MosquittoProcess() as broker,
        RedisProcess() as server,
        cluster_of(2, server, broker, HOMING_PROFILES_VALUES=str(values)) as cluster,
    ):
        async with dock_on(broker) as dock, caller(cluster) as client:
            expected: dict[str, list[Any]] = {}
            requests, replies = (f"thing/product/{DOCK}/requests{end}" for end in ("", "_reply"))
            for number in range(ROUNDS):
                for method, (question, answer) in QUESTIONS.items():
                    tid = f"{method}-{number}"
                    await dock.say(requests, tid, method, question)
                    expected[tid] = [(replies, answer)]
                await dock.say(f"sys/product/{DOCK}/status", f"s-{number}", "update_topo", {"sub_devices": []})
                expected[f"s-{number}"] = [(f"sys/product/{DOCK}/status_reply", {"result": 0})]
                await dock.say(f"thing/product/{DOCK}/events", f"e-{number}", "hms", {"list": []}, need_reply=1)
                expected[f"e-{number}"] = [(f"thing/product/{DOCK}/events_reply", {"result": 0})]
                await dock.say(f"thing/product/{DOCK}/events", f"n-{number}", "hms", {"list": []}, need_reply=0)
            await eventually(lambda: len(dock.told) >= len(expected))
            mission = {"flight_id": "F1", "file": {"url": "https://files/1.kmz", "fingerprint": "md5"}}
            body = {"method": "flighttask_prepare", "params": mission, "profile": "dji", "timeout": "30s"}
            url = f"{cluster.nodes[0].url}/v1/devices/{DOCK}/commands"
            async with client.session.post(url, json=body) as response:
                sent = await response.json()
            assert sent["state"] == "succeeded"
            await dock.say(requests, "mission", "flighttask_resource_get", {"flight_id": "F1"})
            expected["mission"] = [(replies, {"result": 0, "output": {"file": mission["file"]}})]
            await eventually(lambda: "mission" in dock.told)
            assert dock.told == expected  # each once, and nothing else
        counted = cluster.counters("reply.sent")
        assert sum(counted) == len(expected)
        assert all(counted)  # the broker gave questions to both
