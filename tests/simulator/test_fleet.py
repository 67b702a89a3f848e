"""The fleet on a loopback broker: sessions, counts, and answers that outlive a lost connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from app.core.messages import ReceivedMessage
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient
from homing_simulator.fleet import SEND_PAUSE, SEND_TRIES, Fleet
from homing_simulator.options import FleetOptions, Range
from tests.waiting import PATIENCE, eventually

SOON_SECONDS = 0.5
"""Long enough for what a test does before an answer is due, short enough to wait for."""
SOON = Range(timedelta(seconds=SOON_SECONDS), timedelta(seconds=SOON_SECONDS))


class StoppedClock:
    def monotonic(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 1_700_000_000.0


class Bench:
    """A fleet, and what it published."""

    def __init__(self, fleet: Fleet, broker: LoopbackBroker) -> None:
        self.fleet = fleet
        self.broker = broker
        self.heard: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

    def hear(self, delivery: InboundDelivery) -> None:
        delivery.acknowledge()
        self.heard.put_nowait(delivery.message)

    def command(self, device: str, identity: str, method: str = "photo") -> None:
        body = {"id": identity, "method": method, "params": {}}
        self.broker.publish(ReceivedMessage(f"homing/{device}/command", json.dumps(body).encode()))

    async def answer(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            body: dict[str, Any] = json.loads((await self.heard.get()).payload)
            return body

    async def received(self, count: int) -> None:
        """Without a pause, so that no answer leaves in between."""
        async with asyncio.timeout(PATIENCE):
            while self.fleet.stats.received < count:  # noqa: ASYNC110
                await asyncio.sleep(0)


@asynccontextmanager
async def running(
    send_tries: int = SEND_TRIES, send_pause: timedelta = SEND_PAUSE, **options: Any
) -> AsyncIterator[Bench]:
    broker = LoopbackBroker()
    fleet = Fleet(
        FleetOptions(**options),
        lambda client_id: LoopbackMqttClient(broker, client_id, broker.counters),
        clock=StoppedClock(),
        send_tries=send_tries,
        send_pause=send_pause,
    )
    bench = Bench(fleet, broker)
    listener = LoopbackMqttClient(broker, "listener", broker.counters)
    await listener.start([Subscription("homing/+/response")], bench.hear)
    await fleet.start()
    try:
        yield bench
    finally:
        await fleet.stop()
        await listener.stop()


async def test_every_device_answers_its_own_commands() -> None:
    async with running(devices=3) as bench:
        for device in bench.fleet.devices:
            bench.command(device, f"to-{device}")
        ids = {(await bench.answer())["id"] for _ in range(3)}
    assert ids == {"to-SN0001", "to-SN0002", "to-SN0003"}
    stats = bench.fleet.stats
    assert (stats.received, stats.answered, stats.published) == (3, 3, 3)
    assert sorted(stats.executed) == sorted(ids)


@pytest.mark.parametrize(("per_session", "sessions"), [(1, 5), (2, 3), (100, 1)])
async def test_devices_share_sessions_as_asked(per_session: int, sessions: int) -> None:
    async with running(devices=5, devices_per_session=per_session) as bench:
        assert bench.fleet.stats.sessions == bench.fleet.connected == sessions
        bench.command("SN0005", "x")
        assert (await bench.answer())["id"] == "x"


async def test_faults_are_counted_by_kind() -> None:
    async with running(devices=1, silent_methods=frozenset({"hush"}), refuse=1.0) as bench:
        bench.command("SN0001", "a")
        assert (await bench.answer())["status"] == "error"
        bench.command("SN0001", "b", "hush")
        bench.broker.publish(ReceivedMessage("homing/SN0001/command", b"rubbish"))
        await bench.received(3)
    stats = bench.fleet.stats
    assert (stats.refused, stats.silent, stats.not_a_command, stats.answered) == (1, 1, 1, 0)
    assert list(stats.executed) == ["a", "b"]


async def test_answers_that_wait_are_bounded_and_the_others_counted() -> None:
    forever = Range(timedelta(hours=1), timedelta(hours=1))
    async with running(devices=1, delay=forever, max_waiting=2) as bench:
        for number in range(5):
            bench.command("SN0001", str(number))
        await bench.received(5)
        assert (bench.fleet.stats.waiting, bench.fleet.stats.overloaded) == (2, 3)
    assert bench.fleet.stats.waiting == 0


async def test_a_stopped_fleet_sends_nothing_more() -> None:
    async with running(devices=1, delay=SOON) as bench:
        bench.command("SN0001", "a")
        await bench.received(1)
    await asyncio.sleep(SOON_SECONDS + 0.1)
    assert bench.fleet.stats.published == 0


async def test_an_answer_waits_until_the_broker_is_back() -> None:
    async with running(devices=1, delay=SOON, send_pause=timedelta(milliseconds=5)) as bench:
        bench.command("SN0001", "a")
        await bench.received(1)
        bench.broker.disconnect("simulated-SN0001")
        await asyncio.sleep(SOON_SECONDS + 0.1)
        assert bench.fleet.stats.published == 0
        bench.broker.restore("simulated-SN0001")
        assert (await bench.answer())["id"] == "a"


async def test_an_answer_is_given_up_when_the_broker_stays_away() -> None:
    async with running(devices=1, delay=SOON, send_tries=5, send_pause=timedelta(milliseconds=1)) as bench:
        bench.command("SN0001", "a")
        await bench.received(1)
        bench.broker.disconnect("simulated-SN0001")
        await eventually(lambda: bench.fleet.stats.unsent == 1)
        assert bench.fleet.stats.waiting == 0


async def test_what_a_catalogue_does_not_have_is_refused() -> None:
    async with running(profile="dji") as bench:
        body = {"tid": "t", "bid": "t", "method": "cover_opne", "data": {}}
        bench.broker.publish(ReceivedMessage("thing/product/SN0001/services", json.dumps(body).encode()))
        await eventually(lambda: bench.fleet.stats.refused == 1)
