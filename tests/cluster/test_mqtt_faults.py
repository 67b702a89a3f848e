"""PahoMqttClient against a real Mosquitto that stops, crashes, freezes, or has two clients with one id."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.errors import BrokerUnavailableError, PublishUnconfirmedError
from app.core.messages import Publication, Receipt
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions, MqttVersion
from app.mqtt.paho import PahoMqttClient
from tests.services import MosquittoProcess
from tests.waiting import PATIENCE

VERSIONS = ["5", "3.1.1"]


@pytest.fixture
def broker() -> Iterator[MosquittoProcess]:
    with MosquittoProcess() as process:
        yield process


@asynccontextmanager
async def connected(
    options: MqttOptions, handler: Callable[[InboundDelivery], None] = InboundDelivery.acknowledge, *filters: str
) -> AsyncIterator[tuple[PahoMqttClient, Counter[str]]]:
    counters: Counter[str] = Counter()
    client = PahoMqttClient(options, counters)
    await client.start([Subscription(topic_filter) for topic_filter in filters], handler)
    try:
        await asyncio.wait_for(client.wait_connected(), PATIENCE)
        yield client, counters
    finally:
        await client.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - counters have no event
            await asyncio.sleep(0.01)


def collector(into: list[bytes]) -> Callable[[InboundDelivery], None]:
    def collect(delivery: InboundDelivery) -> None:
        into.append(delivery.message.payload)
        delivery.acknowledge()

    return collect


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("crash", [False, True])
async def test_F60_receiving_again_after_a_restart(
    broker: MosquittoProcess, version: MqttVersion, *, crash: bool
) -> None:
    got: list[bytes] = []
    options = MqttOptions.from_url(broker.url, client_id="node", version=version)
    async with connected(options, collector(got), "$share/g/response") as (client, counters):
        await asyncio.to_thread(broker.kill if crash else broker.stop)
        await until(lambda: counters["connection_failed"] > 1)  # nobody is there
        await asyncio.to_thread(broker.start)
        await asyncio.wait_for(client.wait_connected(), PATIENCE)
        await client.publish(Publication("response", b"after"))
        await until(lambda: got == [b"after"])
        assert counters["connected"] == 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_F5_nothing_that_was_refused_is_sent_later(broker: MosquittoProcess, version: MqttVersion) -> None:
    got: list[bytes] = []
    options = MqttOptions.from_url(broker.url, client_id="node", version=version)
    async with (
        connected(options) as (client, _),
        connected(replace(options, client_id="device"), collector(got), "command") as (device, _),
    ):
        broker.pause()
        # The connection is up, but the broker does not answer any more.
        unconfirmed = client.publish(Publication("command", b"open the door"))
        await asyncio.sleep(0.1)
        broker.kill()
        with pytest.raises(PublishUnconfirmedError):
            await asyncio.wait_for(unconfirmed, PATIENCE)
        with pytest.raises(BrokerUnavailableError):
            await client.publish(Publication("command", b"open the door now"))
        await asyncio.to_thread(broker.start)
        await asyncio.wait_for(client.wait_connected(), PATIENCE)
        await asyncio.wait_for(device.wait_connected(), PATIENCE)
        await client.publish(Publication("command", b"last"))
        await until(lambda: b"last" in got)
        assert got == [b"last"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_F15_a_session_that_was_adopted_during_connect_gets_no_subscription(
    broker: MosquittoProcess, version: MqttVersion
) -> None:
    asked: list[str] = []
    adopted = asyncio.Event()

    async def still_ours(client_id: str) -> None:
        asked.append(client_id)
        if len(asked) > 1:  # frozen since the first answer, for longer than the lease
            adopted.set()
            await asyncio.get_running_loop().create_future()

    options = MqttOptions.from_url(broker.url, client_id="node", version=version)
    node = PahoMqttClient(options, Counter(), still_ours=still_ours)
    await node.start([Subscription("$share/g/response")], InboundDelivery.acknowledge)
    await asyncio.wait_for(adopted.wait(), PATIENCE)
    async with connected(MqttOptions.from_url(broker.url, client_id="device", version="5")) as (device, _):
        assert await device.publish(Publication("response", b"to nobody")) is Receipt.UNMATCHED
        await node.restart_as("node-2", [Subscription("$share/g/response")])
        assert await device.publish(Publication("response", b"to nobody either")) is Receipt.UNMATCHED
        await until(lambda: asked == ["node", "node", "node-2"])
    await node.stop()


@pytest.mark.parametrize("version", VERSIONS)
async def test_F53_two_clients_with_one_id_flap_at_most_three_times(
    broker: MosquittoProcess, version: MqttVersion
) -> None:
    options = MqttOptions.from_url(broker.url, client_id="twin", version=version)
    async with connected(options) as (first, first_counters), connected(options) as (second, second_counters):
        await until(lambda: first_counters["session_taken_over"] + second_counters["session_taken_over"] > 0)
        winner = second if first_counters["session_taken_over"] else first
        await asyncio.wait_for(winner.wait_connected(), PATIENCE)
        await asyncio.sleep(2)
        assert winner.connected
        assert first_counters["connected"] <= 4
        assert second_counters["connected"] <= 4


async def test_F54_the_receive_maximum_holds_the_broker_back(broker: MosquittoProcess) -> None:
    waiting: list[InboundDelivery] = []
    options = MqttOptions.from_url(broker.url, client_id="node")
    slow = replace(options, receive_maximum=10)
    async with (
        connected(slow, waiting.append, "response") as (node, counters),
        connected(replace(options, client_id="device")) as (device, _),
    ):
        for number in range(500):
            await device.publish(Publication("response", b"%d" % number))
        await until(lambda: len(waiting) >= 10)
        await asyncio.sleep(0.3)
        assert len(waiting) == 10
        assert node.connected
        assert counters["reading_paused"] == 0
        got: list[bytes] = []
        while len(got) < 500:
            await until(lambda: len(waiting) > 0)
            delivery = waiting.pop(0)
            got.append(delivery.message.payload)
            delivery.acknowledge()
        assert got == [b"%d" % number for number in range(500)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_F58_a_burst_goes_through_the_window_and_survives_a_crash(
    broker: MosquittoProcess, version: MqttVersion
) -> None:
    got: list[bytes] = []
    options = MqttOptions.from_url(broker.url, client_id="node", version=version)
    async with (
        connected(options) as (client, _),
        connected(replace(options, client_id="device"), collector(got), "command") as (device, _),
    ):
        outcomes: Counter[str] = Counter()
        pending: set[asyncio.Future[Receipt]] = set()

        def note(future: asyncio.Future[Receipt]) -> None:
            pending.discard(future)
            outcomes["unconfirmed" if future.exception() else "confirmed"] += 1

        number = 0
        while number < 5000:
            try:
                future = client.publish(Publication("command", b"%d" % number))
            except BrokerUnavailableError:
                await asyncio.sleep(0.001)
                continue
            pending.add(future)
            future.add_done_callback(note)
            number += 1
            assert len(pending) <= options.send_window
            if number == 2500:
                broker.kill()
                await asyncio.to_thread(broker.start)
                await asyncio.wait_for(asyncio.gather(client.wait_connected(), device.wait_connected()), PATIENCE)
        await until(lambda: not pending)
        await client.publish(Publication("command", b"last"))
        await until(lambda: b"last" in got)
        assert outcomes["confirmed"] + outcomes["unconfirmed"] == 5000
        assert outcomes["unconfirmed"] <= options.send_window
        repeated = [payload for payload, times in Counter(got).items() if times > 1]
        assert repeated == []


async def test_F57_a_device_flood_of_qos_0_does_not_pile_up(broker: MosquittoProcess) -> None:
    waiting: list[InboundDelivery] = []
    options = MqttOptions.from_url(broker.url, client_id="node")
    async with (
        connected(replace(options, receive_maximum=50), waiting.append, "response") as (node, counters),
        connected(replace(options, client_id="device")) as (device, _),
    ):
        for _ in range(5000):
            await device.publish(Publication("response", b"x" * 100, qos=0))
        await until(lambda: counters["reading_paused"] == 1)
        await asyncio.sleep(0.3)
        assert len(waiting) == 50 + 64 + 1
        assert node.connected


async def test_a_frozen_broker_is_noticed(broker: MosquittoProcess) -> None:
    options = replace(
        MqttOptions.from_url(broker.url, client_id="node"),
        keepalive=timedelta(seconds=2),
        connect_timeout=timedelta(seconds=2),
    )
    async with connected(options) as (client, _):
        with broker.paused():
            future = client.publish(Publication("a", b""))
            with pytest.raises(PublishUnconfirmedError):
                await asyncio.wait_for(future, PATIENCE)
        await asyncio.wait_for(client.wait_connected(), PATIENCE)


async def test_the_socket_does_not_wait_for_more_to_send(broker: MosquittoProcess) -> None:
    async with connected(MqttOptions.from_url(broker.url, client_id="node")) as (client, _):
        assert client._link is not None
        transport = client._link._stream._transport
        assert transport is not None
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("version", VERSIONS)
async def test_wrong_credentials_are_not_connected(version: MqttVersion) -> None:
    with MosquittoProcess("allow_anonymous false") as broker:
        counters: Counter[str] = Counter()
        client = PahoMqttClient(MqttOptions.from_url(broker.url, client_id="node", version=version), counters)
        await client.start([], InboundDelivery.acknowledge)
        await until(lambda: counters["connection_failed"] >= 2)
        assert not client.connected
        await client.stop()
