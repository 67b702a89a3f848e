"""Events of devices on a real Mosquitto, kept by a node that is killed while they come."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from app.core.messages import Publication
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from tests.cluster.harness import NodeProcess
from tests.services import NODE_PASSWORD, NODE_USER, MosquittoProcess, ServiceProcess
from tests.waiting import PATIENCE, eventually

DEVICE = "SN0001"
TOPICS = tuple(f"thing/product/{DEVICE}/{name}" for name in ("events", "osd", "state"))
KILLS = 3
EVENTS = 3000
RECEIVE_MAXIMUM = 1024


class LoneNode(NodeProcess):
    """`homing serve` without a cluster, with events in a folder."""

    def __init__(self, broker: MosquittoProcess, folder: Path) -> None:
        ServiceProcess.__init__(self, sys.executable)
        self.node_id = "lone"
        self._module = "app.cli"
        self._env = {
            "HOMING_STORE_URL": "memory://",
            "HOMING_EVENTS_URL": f"rocks://{folder}/events",
            "HOMING_EVENTS_RECEIVE_MAXIMUM": str(RECEIVE_MAXIMUM),
            "HOMING_MQTT_URL": broker.url,
            "HOMING_MQTT_USERNAME": NODE_USER,
            "HOMING_MQTT_PASSWORD": NODE_PASSWORD,
            "HOMING_CLUSTER_DRAIN_DELAY": "0s",
        }


async def everything(node: NodeProcess) -> dict[str, list[int]]:
    """The numbers that were said on each topic, as the log has them."""
    found: dict[str, list[int]] = defaultdict(list)
    async with aiohttp.ClientSession() as http:
        for database in ("events", "telemetry"):
            parameters, more = {"database": database, "limit": "1000"}, True
            while more:
                async with http.get(f"{node.url}/v1/events", params=parameters) as answer:
                    page: dict[str, Any] = await answer.json()
                    assert answer.status == 200, page
                for event in page["events"]:
                    found[event["topic"]].append(event["data"]["n"])
                parameters["cursor"], more = page["cursor"], page["more"]
    return found


async def test_an_intake_that_is_killed_loses_nothing_and_keeps_the_order(
    mosquitto: MosquittoProcess, tmp_path: Path
) -> None:
    node = LoneNode(mosquitto, tmp_path)
    options = MqttOptions.from_url(mosquitto.url, client_id="device")
    device = PahoMqttClient(replace(options, username=DEVICE, password=NODE_PASSWORD), Counter())
    window = asyncio.Semaphore(100)
    acknowledged: dict[str, list[int]] = defaultdict(list)

    async def say(topic: str, number: int) -> None:
        async with window:
            await device.publish(Publication(topic, json.dumps({"n": number, "method": "x"}).encode()))
            acknowledged[topic].append(number)

    with node:
        await device.start([], lambda _delivery: None)
        await asyncio.wait_for(device.wait_connected(), PATIENCE)
        for kill in range(KILLS + 1):
            numbers = range(kill * EVENTS, (kill + 1) * EVENTS)
            saying = asyncio.gather(*(say(TOPICS[number % 3], number) for number in numbers))
            if kill < KILLS:
                enough = (kill * EVENTS + EVENTS // 3) // 3
                await eventually(lambda enough=enough: len(acknowledged[TOPICS[0]]) > enough)  # type: ignore[misc]
                await asyncio.to_thread(node.kill)
                await saying
                await asyncio.to_thread(node.start)
            else:
                await saying
        await device.stop()
        expected = {topic: set(numbers) for topic, numbers in acknowledged.items()}

        async def all_there() -> bool:
            found = await everything(node)
            return all(set(found[topic]) >= numbers for topic, numbers in expected.items())

        await eventually(all_there)
        found = await everything(node)
        for topic in TOPICS:
            first_of_each = list(dict.fromkeys(found[topic]))
            assert first_of_each == sorted(expected[topic]), "in the order of the device, each there"
        repeated = sum(len(numbers) - len(set(numbers)) for numbers in found.values())
        assert repeated <= RECEIVE_MAXIMUM * KILLS
        shown = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "app.cli", "events", "read", TOPICS[0], "--limit", "2", "--node", node.url],
            capture_output=True,
            text=True,
            check=True,
        )
        assert [line.split()[1] for line in shown.stdout.splitlines()] == [TOPICS[0]] * 2
        published = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "app.cli", "events", "publish", "fleet/note", '{"a":1}', "--node", node.url],
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(published.stdout) > 1_700_000_000_000_000
