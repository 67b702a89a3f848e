"""Half a packet and silence, and a CONNECT that waits: bytes come through a stream, and the clock is turned by hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count

import pytest

from app.broker.stream import MessageStream
from app.core.broker.bounds import BrokerBounds
from app.core.broker.broker import Broker
from app.core.broker.codes import ProtocolVersion, ReasonCode
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.packets import Connack, Connect, Disconnect, Packet, Pingreq, Pingresp, Publish
from app.core.broker.wire import Framing
from tests.unit.core.broker.peers import V3, V5, HandClock
from tests.waiting import PATIENCE

PUBLISH = encode(Publish("t", b"x" * 1000), V5)


class RestingStream(MessageStream):
    """A stream that a test may leave unread."""

    unread = False


class ByteClient:
    """A client of a broker that hears its bytes."""

    def __init__(self, version: ProtocolVersion = V5, keep_alive: int = 0) -> None:
        self.clock = HandClock()
        self.counters: Counter[str] = Counter()
        numbers = count(1)
        self.broker = Broker(
            clock=self.clock,
            new_client_id=lambda: f"auto-{next(numbers)}",
            counters=self.counters,
            bounds=BrokerBounds(),
        )
        self.version = version
        self.stream = RestingStream(self.broker, None)
        self.stream.begin()
        self.stream.feed(encode(Connect(version, "a", keep_alive=keep_alive), version))

    async def said(self) -> list[Packet]:
        return [decode(first, body, self.version) for first, body in Framing().feed(await self.stream.outgoing())]

    def pass_seconds(self, seconds: float) -> None:
        self.clock.now += seconds
        self.broker.tick()

    @property
    def closed(self) -> bool:
        return not self.broker.connections


@pytest.mark.parametrize("version", [V3, V5], ids=["3.1.1", "5"])
async def test_half_a_packet_and_silence_ends_the_connection(version: ProtocolVersion) -> None:
    client = ByteClient(version)
    client.stream.feed(encode(Pingreq(), version) + PUBLISH[:500])
    client.pass_seconds(10)
    assert not client.closed
    client.pass_seconds(0.5)
    assert client.closed
    connack, pong, *more = await client.said()
    assert isinstance(connack, Connack)
    assert isinstance(pong, Pingresp)
    assert [one.reason for one in more if isinstance(one, Disconnect)] == (
        [ReasonCode.UNSPECIFIED_ERROR] if version is V5 else []
    )
    assert client.counters["broker.refused.unfinished_packet"] == 1


def test_a_packet_may_come_slowly_while_it_comes() -> None:
    client = ByteClient()
    for place in range(0, len(PUBLISH), 100):
        client.stream.feed(PUBLISH[place : place + 100])
        client.pass_seconds(9)
    assert client.counters["broker.received"] == 1
    client.pass_seconds(200)
    assert not client.closed, "between packets, the keep alive counts"


def test_whoever_is_not_read_may_have_said_the_rest() -> None:
    client = ByteClient()
    client.stream.feed(PUBLISH[:500])
    client.stream.unread = True
    client.pass_seconds(60)
    assert not client.closed


def test_whoever_is_not_read_is_not_silent_until_it_is_read_again() -> None:
    client = ByteClient(keep_alive=10)
    client.stream.unread = True
    client.pass_seconds(60)
    assert not client.closed
    client.stream.unread = False
    client.pass_seconds(15)
    assert not client.closed
    client.pass_seconds(0.5)
    assert client.counters["broker.refused.keep_alive_timeout"] == 1


def test_whoever_does_not_read_is_silent_nevertheless() -> None:
    client = ByteClient(keep_alive=10)
    client.stream.write(b"\x30" * 300_000)
    assert client.stream.saturated
    client.pass_seconds(15.5)
    assert client.counters["broker.refused.keep_alive_timeout"] == 1


async def test_whoever_waits_for_connack_may_say_nothing_meanwhile() -> None:
    client = ByteClient()
    streams = [client.stream]
    for _ in range(2):
        stream = RestingStream(client.broker, None)
        stream.begin()
        stream.feed(encode(Connect(V5, "a", keep_alive=1), V5))
        streams.append(stream)
    assert client.counters["broker.backed_off"] == 1
    client.clock.now += 4
    await asyncio.wait_for(streams[2].outgoing(), PATIENCE)
    client.pass_seconds(1.5)
    assert client.counters["broker.refused.keep_alive_timeout"] == 0
    client.pass_seconds(0.5)
    assert client.counters["broker.refused.keep_alive_timeout"] == 1


async def test_what_follows_a_connect_that_waits_is_read_when_it_is_accepted() -> None:
    client = ByteClient()
    hello = encode(Connect(V5, "a"), V5)
    streams = [client.stream]
    for _ in range(3):
        stream = RestingStream(client.broker, None)
        stream.begin()
        stream.feed(hello + PUBLISH)
        stream.feed(PUBLISH)
        streams.append(stream)
        await stream.outgoing()
    assert client.counters["broker.backed_off"] == 2
    assert client.counters["broker.received"] == 6
    assert len(client.broker.connections) == 1


async def test_whoever_says_much_while_its_connect_waits_is_not_read_until_then() -> None:
    client = ByteClient()
    first, second = MessageStream(client.broker, None), MessageStream(client.broker, None)
    for stream in (first, second):
        stream.begin()
        stream.feed(encode(Connect(V5, "a"), V5))
    large = encode(Publish("t", b"x" * client.broker.bounds.connect_bytes), V5)
    second.feed(large)
    reading = asyncio.ensure_future(second.readable())
    await asyncio.sleep(0)
    assert not reading.done()
    await asyncio.wait_for(reading, PATIENCE)
    assert client.counters["broker.received"] == 1, "it is larger than a CONNECT may be"


async def test_whoever_gives_up_while_its_connect_waits_is_forgotten() -> None:
    client = ByteClient()
    first, second = MessageStream(client.broker, None), MessageStream(client.broker, None)
    for stream in (first, second):
        stream.begin()
        stream.feed(encode(Connect(V5, "a"), V5))
    second.feed(PUBLISH)
    second.lost()
    assert client.counters["broker.backed_off"] == 1
    assert client.counters["broker.taken_over"] == 1
    assert len(client.broker.connections) == 1
