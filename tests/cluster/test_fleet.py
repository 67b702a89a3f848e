"""The simulated fleet on a real Mosquitto: hand-made DJI commands, and a broker that restarts."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from app.core.messages import Publication
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions, MqttVersion
from app.mqtt.paho import PahoMqttClient
from homing_simulator.fleet import FleetStats
from homing_simulator.options import FleetOptions
from homing_simulator.run import run_simulation
from tests.services import MosquittoProcess
from tests.waiting import PATIENCE, eventually


class Caller:
    """Sends commands to DJI docks, and hears all they say."""

    def __init__(self, url: str, client_id: str) -> None:
        self._client = PahoMqttClient(MqttOptions.from_url(url, client_id=client_id), Counter())
        self.heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    async def start(self) -> None:
        filters = ["thing/product/+/services_reply", "thing/product/+/events"]
        await self._client.start([Subscription(one) for one in filters], self._hear)
        await asyncio.wait_for(self._client.wait_connected(), PATIENCE)

    async def stop(self) -> None:
        await self._client.stop()

    async def command(self, device: str, tid: str, method: str, **data: Any) -> None:
        body = {"tid": tid, "bid": tid, "timestamp": 1654070968655, "method": method, "data": data}
        await self._client.publish(Publication(f"thing/product/{device}/services", json.dumps(body).encode()))

    async def next(self) -> tuple[str, Any]:
        return await asyncio.wait_for(self.heard.get(), PATIENCE)

    def _hear(self, delivery: InboundDelivery) -> None:
        delivery.acknowledge()
        self.heard.put_nowait((delivery.message.topic, json.loads(delivery.message.payload)))


@asynccontextmanager
async def fleet_and_caller(
    url: str, options: FleetOptions, version: MqttVersion = "5"
) -> AsyncIterator[tuple[Caller, FleetStats]]:
    stats, ready = FleetStats(), asyncio.Event()
    fleet = asyncio.create_task(run_simulation(options, url, version=version, stats=stats, ready=ready))
    caller = Caller(url, f"caller-{version}")
    try:
        await asyncio.wait_for(ready.wait(), PATIENCE)
        await caller.start()
        yield caller, stats
    finally:
        await caller.stop()
        fleet.cancel()
        with suppress(asyncio.CancelledError):
            await fleet


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("per_session", [1, 10])
async def test_docks_answer_a_hand_made_command(
    mosquitto: MosquittoProcess, version: MqttVersion, per_session: int
) -> None:
    options = FleetOptions(profile="dji", devices=3, first_device="DOCK1", devices_per_session=per_session)
    async with fleet_and_caller(mosquitto.url, options, version) as (caller, stats):
        for device in ("DOCK1", "DOCK2", "DOCK3"):
            await caller.command(device, f"tid-{device}", "cover_open")
            topic, body = await caller.next()
            assert topic == f"thing/product/{device}/services_reply"
            assert (body["tid"], body["data"]["result"]) == (f"tid-{device}", 0)
        await caller.command("DOCK4", "nobody", "cover_open")
        await caller.command("DOCK1", "last", "cover_open")
        assert (await caller.next())[1]["tid"] == "last"
    assert list(stats.executed) == ["tid-DOCK1", "tid-DOCK2", "tid-DOCK3", "last"]


async def test_a_takeoff_reports_on_events_until_it_is_done(mosquitto: MosquittoProcess) -> None:
    options = FleetOptions(profile="dji", devices=1, first_device="DOCK1")
    async with fleet_and_caller(mosquitto.url, options) as (caller, _):
        await caller.command("DOCK1", "t", "takeoff_to_point", flight_id="flight")
        topic, body = await caller.next()
        assert (topic, body["data"]) == ("thing/product/DOCK1/services_reply", {"result": 0})
        statuses: list[str] = []
        while not statuses or statuses[-1] != "task_finish":
            topic, body = await caller.next()
            assert (topic, body["method"]) == ("thing/product/DOCK1/events", "takeoff_to_point_progress")
            assert body["data"]["flight_id"] == "flight"
            statuses.append(body["data"]["status"])
    assert statuses == ["task_ready", "wayline_progress", "wayline_ok", "task_finish"]


async def test_the_fleet_comes_back_after_its_broker() -> None:
    with MosquittoProcess() as broker:
        options = FleetOptions(profile="dji", devices=2, first_device="DOCK1")
        async with fleet_and_caller(broker.url, options) as (caller, stats):
            await asyncio.to_thread(broker.restart)

            async def answered() -> bool:
                with suppress(Exception):
                    await caller.command("DOCK2", "again", "cover_open")
                return not caller.heard.empty()

            await eventually(answered)
            assert (await caller.next())[1]["tid"] == "again"
            assert stats.received >= 1
