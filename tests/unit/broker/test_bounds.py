"""Bounds that only show where bytes come in."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import cast

import pytest

from app.broker.listener import BrokerListener
from app.broker.stream import MessageStream
from app.core.broker import handouts
from app.core.broker.bounds import BrokerBounds
from app.core.broker.broker import Broker
from app.core.broker.codes import ProtocolVersion, ReasonCode
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.packets import (
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
)
from app.core.broker.wire import Framing
from tests.broker import running_broker
from tests.unit.core.broker.peers import V3, V5, BrokerBench
from tests.waiting import PATIENCE

CLIENTS = 300


def stream_of(broker: Broker) -> MessageStream:
    stream = MessageStream(broker, None)
    stream.begin()
    return stream


async def said(stream: MessageStream, version: ProtocolVersion = V5) -> list[Packet]:
    return [decode(first, body, version) for first, body in Framing().feed(await stream.outgoing())]


@pytest.mark.parametrize("more", [0, 1])
async def test_a_connect_over_its_bound_is_refused(more: int) -> None:
    bench = BrokerBench(connect_bytes=1_000)
    bare = len(encode(Connect(V5, "c", user_name=""), V5)) + 1  # its length takes two bytes then
    stream = stream_of(bench.broker)
    connect = encode(Connect(V5, "c", user_name="x" * (1_000 - bare + more)), V5)
    assert len(connect) == 1_000 + more
    stream.feed(connect)
    (answer,) = await said(stream)
    assert isinstance(answer, Connack)
    assert answer.reason is (ReasonCode.PACKET_TOO_LARGE if more else ReasonCode.SUCCESS)


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize(
    ("topic", "fits"),
    [("x" * 1_024, True), ("x" * 1_025, False), ("/".join("x" * 32), True), ("/".join("x" * 33), False)],
    ids=["1024 bytes", "1025 bytes", "32 levels", "33 levels"],
)
def test_a_topic_over_a_bound_ends_the_connection(topic: str, version: ProtocolVersion, *, fits: bool) -> None:
    bench = BrokerBench()
    client = bench.connected("c", version)
    answers = client.publish(topic)
    assert client.closed is not fits
    if not fits:
        assert [one.reason for one in answers if isinstance(one, Disconnect)] == (
            [ReasonCode.TOPIC_NAME_INVALID] if version is V5 else []
        )
    assert bench.counters["broker.refused.topic_name_invalid"] == (not fits)


async def test_whoever_never_reads_its_acknowledgements_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.broker.stream.MOST_UNSENT_BYTES", 1_000)
    bench = BrokerBench()
    stream = stream_of(bench.broker)
    stream.feed(encode(Connect(V5, "c"), V5))
    await said(stream)
    publish = encode(Publish("t", b"", 1, packet_id=1), V5)
    for _ in range(100):
        stream.feed(publish + encode(Pingreq(), V5))
    assert bench.counters["broker.refused.not_read"] == 0
    for _ in range(100):
        stream.feed(publish + encode(Pingreq(), V5))
    assert bench.counters["broker.refused.not_read"] == 1
    assert await stream.outgoing() == b"", "what was not read is gone"
    stream.lost()
    assert not bench.broker.connections


class StuckSocket:
    """A transport of a socket that takes nothing, as far as the listener asks for it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.aborted = False

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("127.0.0.1", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.writes))

    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def abort(self) -> None:
        self.writes.clear()
        self.aborted = True


def test_answers_that_nobody_reads_take_the_memory_of_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an object of its own, the two bytes of a PINGRESP would take some fifty."""
    monkeypatch.setattr("app.broker.listener.MOST_UNSENT_BYTES", 1_000)
    bench, stuck = BrokerBench(), StuckSocket()
    client = BrokerListener(bench.broker, [], memory=lambda: 0)._client()
    client.connection_made(cast("asyncio.Transport", stuck))
    client.data_received(encode(Connect(V5, "c"), V5))
    client.pause_writing()
    before = [*stuck.writes]
    for _ in range(100):
        client.data_received(encode(Pingreq(), V5))
    assert stuck.writes == before
    client.resume_writing()
    assert stuck.writes == [*before, encode(Pingresp(), V5) * 100]
    client.pause_writing()
    for _ in range(500):
        client.data_received(encode(Pingreq(), V5))
    assert bench.counters["broker.refused.not_read"] == 1, "what waits beside the socket counts"
    assert stuck.writes == []


def test_answers_over_websocket_take_the_memory_of_their_bytes() -> None:
    stream = stream_of(BrokerBench().broker)
    stream.feed(encode(Connect(V5, "c"), V5))
    tracemalloc.start()
    try:
        for _ in range(10_000):
            stream.write(bytes(bytearray(b"\xd0\x00")))
        assert tracemalloc.get_traced_memory()[0] < 5 * stream.unsent
    finally:
        tracemalloc.stop()


async def subscribed(bench: BrokerBench, *more: Packet) -> MessageStream:
    """A stream whose client asks for the retained messages of ten topics, one of which is given at once."""
    publisher = bench.connected("publisher")
    for number in range(10):
        publisher.publish(f"t/{number}", b"%d" % number, retain=True)
    stream = stream_of(bench.broker)
    stream.feed(encode(Connect(V5, "c", keep_alive=1), V5))
    await said(stream)
    subscribe = Subscribe(1, (FilterOptions("#", 0),))
    stream.feed(b"".join(encode(one, V5) for one in (subscribe, *more)))
    return stream


async def test_what_comes_behind_a_subscribe_is_read_when_its_messages_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handouts, "AT_ONCE", 1)
    monkeypatch.setattr(handouts, "AT_LEAST", 1)
    monkeypatch.setattr(handouts, "A_SECOND", 1_000_000)
    stream = await subscribed(BrokerBench(connect_bytes=1_000), Pingreq())
    stream.feed(encode(Publish("t/x", b"x" * 2_000, 0), V5) + encode(Disconnect(), V5))  # which stops its reading
    heard: list[Packet] = []
    async with asyncio.timeout(PATIENCE):
        while data := await stream.outgoing():
            heard += [decode(first, body, V5) for first, body in Framing().feed(data)]
    assert [type(one) for one in heard] == [Suback, *[Publish] * 10, Pingresp, Publish]
    async with asyncio.timeout(PATIENCE):
        await stream.readable()


async def test_whoever_waits_for_retained_messages_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handouts, "AT_ONCE", 1)
    monkeypatch.setattr(handouts, "AT_LEAST", 1)
    monkeypatch.setattr(handouts, "A_SECOND", 0.001)
    bench = BrokerBench()
    stream = await subscribed(bench, Pingreq())
    bench.pass_seconds(60)
    assert bench.counters["broker.refused.keep_alive_timeout"] == 0
    stream.lost()


async def test_halves_of_packets_are_bounded_together() -> None:
    """Each client is within its bound; whoever has begun first has had most time for the rest."""
    bench = BrokerBench(packet_bytes=1_000, waiting_bytes=0)  # which leaves room for 4,000 bytes
    half = encode(Publish("t", b"x" * 980), V5)[:800]
    streams = []
    for number in range(5):
        streams.append(stream_of(bench.broker))
        streams[-1].feed(encode(Connect(V5, f"c{number}"), V5))
        await said(streams[-1])
        streams[-1].feed(half)
    assert bench.broker.unfinished.taken == 4_000
    streams[1].feed(b"x" * 187)
    streams[1].feed(half)
    assert bench.broker.unfinished.taken == 4_000, "it has sent the rest, and the half of another one"
    streams[2].feed(b"x")
    (end,) = await said(streams[0])
    assert isinstance(end, Disconnect)
    assert end.reason is ReasonCode.QUOTA_EXCEEDED
    assert bench.broker.unfinished.taken == 3_201
    streams[2].feed(b"x" * 100)
    streams.append(stream_of(bench.broker))
    streams[-1].feed(encode(Connect(V5, "c5"), V5))
    await said(streams[-1])
    streams[-1].feed(half)
    (end,) = await said(streams[2])
    assert isinstance(end, Disconnect), "the second one has sent a whole packet since"
    for one in streams:
        one.lost()
    assert bench.broker.unfinished.taken == 0


async def test_what_comes_too_early_is_bounded_with_the_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of a client that has not got the messages that it asked for wait here."""
    monkeypatch.setattr(handouts, "AT_ONCE", 1)
    monkeypatch.setattr(handouts, "AT_LEAST", 1)
    monkeypatch.setattr(handouts, "A_SECOND", 0.001)
    bench = BrokerBench(packet_bytes=1_000, connect_bytes=1_000, waiting_bytes=0)  # which leaves room for 4,000 bytes
    streams = []
    for number in range(3):
        streams.append(stream_of(bench.broker))
        streams[-1].feed(encode(Connect(V5, f"c{number}"), V5))
        streams[-1].feed(encode(Subscribe(1, (FilterOptions("#", 0),)), V5))
        await said(streams[-1])
        streams[-1].feed(bytes(1_500))
    assert bench.broker.unfinished.taken == 3_000
    assert isinstance((await said(streams[0]))[-1], Disconnect), "its bytes have waited longest"
    for one in streams:
        one.lost()
    assert bench.broker.unfinished.taken == 0


async def test_all_clients_at_once_are_answered() -> None:
    async with running_broker(BrokerBounds(connections=CLIENTS)) as running:

        async def connect(number: int) -> tuple[bytes, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(encode(Connect(V3, f"device-{number}"), V3))
            return await reader.readexactly(4), writer

        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*(connect(number) for number in range(CLIENTS)))
        assert {answer for answer, _ in answers} == {b"\x20\x02\x00\x00"}
        assert len(running.broker.sessions) == CLIENTS
        for _, writer in answers:
            writer.transport.abort()
