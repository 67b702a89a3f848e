"""PahoMqttClient against a broker that misbehaves on request."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import uvloop
from paho.mqtt import client as paho

from app.core.errors import BrokerUnavailableError
from app.core.messages import Publication
from app.mqtt import packets
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from app.mqtt.paho_drain import PahoSessionDrain
from app.mqtt.paho_link import SLACK, PahoLink
from tests.unit.mqtt.fake_broker import FakeBroker
from tests.waiting import PATIENCE

KEEPALIVE = timedelta(seconds=2)
"""Short, as tests wait for it, and longer than a busy machine keeps this process from running."""
PUBACK, SUBSCRIBE, PINGREQ, DISCONNECT = 0x40, 0x80, 0xC0, 0xE0


def options_for(broker: FakeBroker) -> MqttOptions:
    return MqttOptions.from_url(broker.url, client_id="node-a")


@asynccontextmanager
async def connected(
    options: MqttOptions, handler: Callable[[InboundDelivery], None] = InboundDelivery.acknowledge
) -> AsyncIterator[tuple[PahoMqttClient, Counter[str]]]:
    counters: Counter[str] = Counter()
    client = PahoMqttClient(options, counters, random.Random(1))
    await client.start([Subscription("response/#")], handler)
    try:
        await asyncio.wait_for(client.wait_connected(), PATIENCE)
        yield client, counters
    finally:
        await client.stop()


def to_subscriber(number: int, *, qos: int = 1, topic: bytes = b"response/a", payload: bytes = b"x") -> bytes:
    return packets.publish(topic, payload, qos, number, b"\x00")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - counters have no event
            await asyncio.sleep(0.005)


async def test_F94_an_undecodable_topic_is_counted_and_acknowledged() -> None:
    got: list[bytes] = []

    def handler(delivery: InboundDelivery) -> None:
        got.append(delivery.message.payload)
        delivery.acknowledge()

    async with FakeBroker() as broker, connected(options_for(broker), handler) as (client, counters):
        broker.send(to_subscriber(1, topic=b"response/\xff") + to_subscriber(2, payload=b"good"))
        acknowledged = await broker.wait_for_packets(PUBACK, 2)
        assert [body[:2] for body in acknowledged] == [b"\x00\x01", b"\x00\x02"]
        assert got == [b"good"]
        assert counters["undecodable_topic"] == 1
        assert client.connected


async def test_a_message_over_our_limit_is_counted_and_acknowledged() -> None:
    async with FakeBroker() as broker:
        options = replace(options_for(broker), max_packet_size=1000)
        async with connected(options) as (client, counters):
            broker.send(to_subscriber(1, payload=b"x" * 2000))
            await broker.wait_for_packets(PUBACK, 1)
            assert counters["packet_too_large"] == 1
            assert client.connected


@pytest.mark.parametrize(
    "data", [b"\x30\xff\xff\xff\xff\xff", b"\x30\x01\x00", b"\x34\x05\x00\x01a\x00\x01", b"\xf0\x00"]
)
async def test_a_malformed_packet_ends_the_connection_and_the_next_one_works(data: bytes) -> None:
    async with FakeBroker() as broker, connected(options_for(broker)) as (client, counters):
        broker.send(data)
        await until(lambda: counters["connected"] == 2)
        assert client.connected
        assert len(broker.packets(SUBSCRIBE)) == 2


async def test_a_refused_subscription_is_not_connected() -> None:
    counters: Counter[str] = Counter()
    async with FakeBroker(suback_code=0x87) as broker:
        client = PahoMqttClient(options_for(broker), counters)
        await client.start([Subscription("response/#")], InboundDelivery.acknowledge)
        await until(lambda: counters["subscribe_refused"] >= 2)
        assert not client.connected
        broker.suback_code = 0
        await asyncio.wait_for(client.wait_connected(), PATIENCE)
        await client.stop()


async def test_a_refused_connection_is_tried_again() -> None:
    counters: Counter[str] = Counter()
    async with FakeBroker(connack=b"\x20\x03\x00\x87\x00") as broker:
        client = PahoMqttClient(options_for(broker), counters)
        await client.start([], InboundDelivery.acknowledge)
        await until(lambda: counters["connection_failed"] >= 2)
        await client.stop()


async def test_F53_a_session_taken_over_is_not_taken_back_at_once() -> None:
    async with FakeBroker() as broker, connected(options_for(broker)) as (client, counters):
        broker.send(b"\xe0\x01\x8e")
        await until(lambda: counters["session_taken_over"] == 1)
        await asyncio.sleep(0.5)  # the first backoff would be 0.2 s at most
        assert broker.connections == 1
        assert not client.connected


async def test_F53_connections_that_are_closed_at_once_are_not_tried_for_ever() -> None:
    async with FakeBroker() as broker, connected(options_for(broker)) as (_, counters):
        for number in (1, 2, 3):
            await until(lambda expected=number: counters["connected"] == expected)  # type: ignore[misc]
            broker.hang_up()
        await until(lambda: counters["session_taken_over"] == 1)
        await asyncio.sleep(0.5)
        assert broker.connections == 3


async def test_F53_connections_that_are_closed_before_suback_count_as_well() -> None:
    async with FakeBroker() as broker:
        broker.hangs_up_on = SUBSCRIBE
        counters: Counter[str] = Counter()
        client = PahoMqttClient(options_for(broker), counters)
        await client.start([Subscription("a")], InboundDelivery.acknowledge)
        await asyncio.wait_for(client.taken_over(), PATIENCE)
        assert (broker.connections, counters["connection_failed"]) == (3, 3)
        await client.stop()


async def test_F53_a_connection_that_ends_between_connack_and_subscribe_is_given_up_at_once() -> None:
    async with FakeBroker() as broker:
        patient = replace(options_for(broker), connect_timeout=timedelta(days=1))
        link = PahoLink(patient, None, InboundDelivery.acknowledge, Counter())

        async def taken_over_meanwhile() -> None:
            broker.hang_up()
            await asyncio.wait([link.ended])

        with pytest.raises(ConnectionError, match="the broker closed the connection"):
            await asyncio.wait_for(link.open([Subscription("a")], still_ours=taken_over_meanwhile), PATIENCE)


async def test_a_broker_that_says_why_it_ends_connections_is_believed() -> None:
    shutting_down = b"\xe0\x01\x8b"
    async with FakeBroker() as broker, connected(options_for(broker)) as (_, counters):
        for number in range(1, 5):
            await until(lambda expected=number: counters["connected"] == expected)  # type: ignore[misc]
            broker.send(shutting_down)
        await until(lambda: counters["connected"] == 5)
        assert counters["session_taken_over"] == 0


@pytest.mark.parametrize("qos", [0, 1])
async def test_F57_reading_stops_when_too_much_is_unacknowledged_and_goes_on_after(qos: int) -> None:
    waiting: list[InboundDelivery] = []
    async with FakeBroker() as broker:
        options = replace(options_for(broker), receive_maximum=10, keepalive=KEEPALIVE)
        async with connected(options, waiting.append) as (client, counters):
            flood = [to_subscriber(number, qos=qos, payload=b"x" * 1000) for number in range(1, 2001)]
            broker.send(b"".join(flood))
            await until(lambda: counters["reading_paused"] == 1)
            # A broker that we do not listen to is not dead (F56).
            await asyncio.sleep(1.25 * KEEPALIVE.total_seconds())
            assert len(waiting) == 10 + SLACK + 1
            # The rest of the 2 MB waits at the broker, not in this process.
            assert client._link is not None
            assert len(client._link._stream._inbox) <= 512 * 1024
            done = 0
            while done < 2000:
                await until(lambda: len(waiting) > 0)
                for delivery in waiting:
                    delivery.acknowledge()
                done += len(waiting)
                waiting.clear()
            assert done == 2000
            assert client.connected
            assert counters["connected"] == 1
            await broker.wait_for_packets(PUBACK, 2000 * qos)


async def test_a_silent_broker_is_left_after_the_keepalive() -> None:
    async with FakeBroker() as broker:
        options = replace(options_for(broker), keepalive=KEEPALIVE)
        async with connected(options) as (_, counters):
            await broker.wait_for_packets(PINGREQ, 3)
            assert counters["connection_lost"] == 0
            broker.answer_pings = False
            await until(lambda: counters["connection_lost"] == 1)
            broker.answer_pings = True
            await until(lambda: counters["connected"] == 2)


async def test_F56_a_backlog_before_suback_that_nobody_takes_yet_does_not_end_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    links: list[PahoLink] = []
    open_ = PahoLink.open

    async def note(link: PahoLink, subscriptions: Sequence[Subscription], **more: Any) -> None:
        links.append(link)
        await open_(link, subscriptions, **more)

    monkeypatch.setattr(PahoLink, "open", note)
    waiting: list[InboundDelivery] = []
    counters: Counter[str] = Counter()
    async with FakeBroker() as broker:
        broker.before_suback = b"".join(to_subscriber(number) for number in range(1, 501))
        options = replace(
            options_for(broker),
            receive_maximum=10,
            keepalive=KEEPALIVE,
            connect_timeout=timedelta(seconds=PATIENCE),
        )
        client = PahoMqttClient(options, counters)
        await client.start([Subscription("response/#")], waiting.append)
        await until(lambda: counters["reading_paused"] == 1)
        opening = links[0]._opening
        assert opening is not None
        given_up_at = opening.when() or 0.0
        await until(lambda: (opening.when() or 0.0) > given_up_at)  # the store is away, and that is no reason
        assert counters["connection_failed"] == 0
        while not client.connected:
            for delivery in waiting:
                delivery.acknowledge()
            waiting.clear()
            await asyncio.sleep(0.005)
        assert broker.connections == 1
        await client.stop()


async def test_a_broker_that_never_answers_does_not_freeze_the_loop() -> None:
    async with FakeBroker(connack=b"") as broker:
        options = replace(options_for(broker), connect_timeout=timedelta(seconds=0.3))
        counters: Counter[str] = Counter()
        client = PahoMqttClient(options, counters)
        await client.start([], InboundDelivery.acknowledge)
        loop_turned = 0
        while counters["connection_failed"] < 2:
            await asyncio.sleep(0.01)
            loop_turned += 1
        await client.stop()
        assert loop_turned > 10, "it turns while the client waits for an answer"


async def test_after_unsubscribe_a_new_connection_unsubscribes_again() -> None:
    async with FakeBroker() as broker, connected(options_for(broker)) as (client, counters):
        await client.unsubscribe()
        broker.hang_up()
        await until(lambda: counters["connected"] == 2)
        assert len(broker.packets(0xA0)) == 2
        assert len(broker.packets(SUBSCRIBE)) == 1
        assert client.connected


@pytest.mark.parametrize(("keep_session", "body"), [(False, b"\x00\x05\x11\x00\x00\x00\x00"), (True, b"")])
async def test_stop_says_what_becomes_of_the_session(*, keep_session: bool, body: bytes) -> None:
    async with FakeBroker() as broker, connected(options_for(broker)) as (client, _):
        await client.stop(keep_session=keep_session)
        assert (await broker.wait_for_packets(DISCONNECT, 1))[0].rstrip(b"\0") == body.rstrip(b"\0")


async def test_connect_asks_for_a_lasting_session_and_a_receive_maximum() -> None:
    async with FakeBroker() as broker, connected(options_for(broker)):
        connect = broker.packets(0x10)[0]
    assert connect[:7] == b"\x00\x04MQTT\x05"
    assert connect[7] & 0x02 == 0  # no clean start
    assert b"\x11\x00\x00\x00\x3c" in connect  # session expiry 60 s
    assert b"\x21\x01\x00" in connect  # Receive Maximum 256


def test_paho_still_makes_its_socket_where_we_replace_it() -> None:
    assert callable(paho.Client._create_socket)


def test_F60_the_backoff_is_random_from_zero_and_never_over_five_seconds() -> None:
    async def backoffs() -> list[list[float]]:
        client = PahoMqttClient(MqttOptions(client_id="a", host="b"), Counter(), random.Random(1))
        return [[client._backoff(attempt, taken_over=False) for _ in range(200)] for attempt in (0, 1, 5, 50)]

    first, second, _, last = asyncio.run(backoffs())
    assert max(first) <= 0.2
    assert max(second) <= 0.4
    assert max(last) <= 5.0
    assert min(last) < 0.2
    assert max(last) > 4.5


def test_it_works_under_uvloop() -> None:
    async def round_trip() -> None:
        got = asyncio.Event()

        def handler(delivery: InboundDelivery) -> None:
            delivery.acknowledge()
            got.set()

        async with FakeBroker() as broker, connected(options_for(broker), handler) as (client, _):
            await client.publish(Publication("a", b"1"))
            broker.send(to_subscriber(1))
            await asyncio.wait_for(got.wait(), PATIENCE)
            await broker.wait_for_packets(PUBACK, 1)

    run: Callable[[Awaitable[None]], None] = asyncio.Runner(loop_factory=uvloop.new_event_loop).run  # type: ignore[assignment]
    run(round_trip())


async def test_a_session_is_not_ended_before_the_broker_has_given_a_sign_of_life() -> None:
    """A second of silence may be one of the network, and what it held back would be lost with the session."""
    async with FakeBroker() as broker:
        broker.answer_pings = False
        options = replace(options_for(broker), connect_timeout=timedelta(seconds=0.3))
        drain = PahoSessionDrain(options, Counter())
        with pytest.raises(BrokerUnavailableError, match="no PINGRESP"):
            await drain.drain(["a/b"], lambda delivery: delivery.acknowledge(), timedelta(milliseconds=1))
        assert broker.packets(DISCONNECT) == []


async def test_what_comes_before_the_sign_of_life_is_handed_out_and_acknowledged() -> None:
    async with FakeBroker() as broker:
        broker.before_pingresp = to_subscriber(7, topic=b"a/b", payload=b"late")
        drain = PahoSessionDrain(options_for(broker), Counter())
        found: list[bytes] = []

        def keep(delivery: InboundDelivery) -> None:
            found.append(delivery.message.payload)
            delivery.acknowledge()

        assert await drain.drain(["a/b"], keep, timedelta(milliseconds=1)) == 1
        assert found == [b"late"]
        kinds = [first_byte & 0xF0 for first_byte, _ in broker.received]
        assert kinds[-3:] == [PUBACK, PINGREQ, DISCONNECT]


async def test_a_client_without_connection_does_not_say_that_nothing_is_left() -> None:
    async with FakeBroker() as broker, connected(options_for(broker)) as (client, counters):
        broker.hang_up()
        await until(lambda: counters["connection_lost"] == 1)
        with pytest.raises(BrokerUnavailableError):
            await client.quiet(timedelta(milliseconds=1))
