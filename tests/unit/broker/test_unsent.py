"""Messages that many clients get, each on a socket of its own: all that waits for sockets has a bound."""

from __future__ import annotations

import asyncio

import pytest

from app.broker.stream import MessageStream
from app.core.broker.bounds import BrokerBounds
from app.core.broker.codes import ProtocolVersion
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.packets import Connect, FilterOptions, Packet, Publish, Subscribe
from app.core.broker.unsent import AGAIN_SECONDS, SMALL_MESSAGE, STALLED_SECONDS, UnsentBytes
from app.core.broker.wire import Framing
from tests.broker import running_broker
from tests.unit.core.broker.peers import V5, BrokerBench, HandClock, payloads
from tests.waiting import PATIENCE

CLIENTS = 20
BOUND = 64_000
LARGE = b"x" * 14_400


class Hall:
    """Clients that have subscribed to everything, over streams that they read when a test says so."""

    def __init__(self, qos: int) -> None:
        self.bench = BrokerBench(packet_bytes=BOUND // 4, waiting_bytes=3 * BOUND)
        self.unsent = self.bench.broker.unsent
        self.noticed = 0
        self.unsent.notice = self._notice
        self.publisher = self.bench.connected("publisher")
        self.qos = qos
        self.streams: list[MessageStream] = []

    async def fill(self) -> None:
        for number in range(CLIENTS):
            self.streams.append(await self.listener(f"c{number}", "t"))
        self.unsent.look()

    async def listener(self, client_id: str, topic: str) -> MessageStream:
        stream = MessageStream(self.bench.broker, None)
        stream.begin()
        subscribe = Subscribe(1, (FilterOptions(topic, self.qos),))
        stream.feed(encode(Connect(V5, client_id), V5) + encode(subscribe, V5))
        await self.read(stream)
        return stream

    def _notice(self) -> None:
        self.noticed += 1

    async def read(self, stream: MessageStream) -> list[Packet]:
        """Return what waits for this client, if anything does."""
        if not stream.unsent:
            return []
        said = await stream.outgoing()
        task = asyncio.create_task(stream.outgoing())  # it has been sent when the next is asked for
        await asyncio.sleep(0)
        task.cancel()
        return [decode(first, body, V5) for first, body in Framing().feed(said)]

    @property
    def taken(self) -> int:
        return sum(one.unsent for one in self.streams)


@pytest.fixture(params=[0, 1, 2])
async def hall(request: pytest.FixtureRequest) -> Hall:
    made = Hall(request.param)
    await made.fill()
    return made


async def test_a_message_for_all_waits_where_it_is_there_once(hall: Hall) -> None:
    hall.publisher.publish("t", LARGE, hall.qos)
    hall.publisher.publish("t", b"second", hall.qos)
    assert BOUND < hall.taken < BOUND + 2 * len(LARGE)
    assert hall.noticed == 1
    heard: dict[MessageStream, list[bytes]] = {one: [] for one in hall.streams}
    again = hall.unsent.look()
    assert again == AGAIN_SECONDS, "nobody has read"
    while again is not None:
        assert hall.taken < BOUND + 2 * len(LARGE)
        for one in hall.streams:
            heard[one] += payloads(await hall.read(one))
        again = hall.unsent.look()
    for one in hall.streams:
        heard[one] += payloads(await hall.read(one))
    assert [*heard.values()] == [[LARGE, b"second"]] * CLIENTS
    assert hall.noticed == 1
    assert hall.unsent.look() is None


async def test_whoever_reads_nothing_keeps_others_waiting_for_some_seconds(hall: Hall) -> None:
    hall.publisher.publish("t", LARGE, hall.qos)
    stalled = [one for one in hall.streams if one.unsent]
    for _ in range(3):
        assert hall.unsent.look() == AGAIN_SECONDS
        hall.bench.pass_seconds(STALLED_SECONDS / 2)
    assert hall.bench.counters["broker.refused.not_read"] == 0
    hall.unsent.look()
    assert hall.bench.counters["broker.refused.not_read"] == len(stalled)
    assert [await one.outgoing() for one in stalled] == [b""] * len(stalled), "they have to go"
    hall.unsent.look()
    assert [one for one in hall.streams if one.unsent and one not in stalled]


async def test_small_messages_wait_for_nobody_who_reads_nothing(hall: Hall) -> None:
    """A node is a client of its own broker, and its commands are small."""
    device = await hall.listener("device", "command")
    hall.publisher.publish("t", LARGE, hall.qos)
    for _ in range(10):
        hall.publisher.publish("command", b"x" * 1_000, hall.qos)
    assert SMALL_MESSAGE < device.unsent < SMALL_MESSAGE + 1_100, "it reads nothing either"
    assert payloads(await hall.read(device)) == [b"x" * 1_000] * 5
    hall.publisher.publish("command", b"last", hall.qos)
    assert payloads(await hall.read(device)) == [b"x" * 1_000] * 5
    for one in hall.streams:
        await hall.read(one)
    hall.unsent.look()
    assert payloads(await hall.read(device)) == [b"last"]


class SlowSocket:
    """A socket that takes something now and then."""

    def __init__(self) -> None:
        self.unsent = BOUND
        self.is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True


def test_whoever_reads_slowly_may_stay() -> None:
    clock, socket, stalled = HandClock(), SlowSocket(), SlowSocket()
    unsent = UnsentBytes(BOUND, clock.monotonic)
    unsent.links.update((socket, stalled))

    class LargeSession:
        def pump(self) -> None:
            if unsent.full:
                unsent.wait(self)

    unsent.wait(LargeSession())
    for _ in range(10):
        assert unsent.look() == AGAIN_SECONDS
        clock.now += STALLED_SECONDS / 2
        socket.unsent -= 1
    assert not socket.is_given_up
    assert stalled.is_given_up
    stalled.unsent = 0
    assert unsent.look() is None, "nobody waits any more"
    stalled.is_given_up, stalled.unsent = False, BOUND
    clock.now += 10 * STALLED_SECONDS
    unsent.wait(LargeSession())
    unsent.look()
    assert not stalled.is_given_up, "nobody has looked at it meanwhile"


@pytest.mark.parametrize("version", [ProtocolVersion.V3_1_1, ProtocolVersion.V5])
async def test_all_clients_behind_sockets_get_it(version: ProtocolVersion) -> None:
    bounds = BrokerBounds(packet_bytes=4_000, waiting_bytes=64_000)
    async with running_broker(bounds) as running, asyncio.timeout(PATIENCE):

        async def listen(number: int, ready: asyncio.Barrier) -> list[bytes]:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            subscribe = Subscribe(1, (FilterOptions("#", number % 2),))
            writer.write(encode(Connect(version, f"c{number}"), version) + encode(subscribe, version))
            framing, heard = Framing(), 0
            payloads_: list[bytes] = []
            while len(payloads_) < 3:
                for first, body in framing.feed(await reader.read(65_536)):
                    heard += 1
                    if isinstance(packet := decode(first, body, version), Publish):
                        payloads_.append(packet.payload[:1])
                    if heard == 2:
                        await ready.wait()
            writer.transport.abort()
            return payloads_

        ready = asyncio.Barrier(CLIENTS + 1)
        listening = [asyncio.create_task(listen(number, ready)) for number in range(CLIENTS)]
        await ready.wait()
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        said = [Publish("t", one * 3_900, 1, packet_id=number) for number, one in enumerate((b"a", b"b", b"c"), 1)]
        packets: list[Packet] = [Connect(version, "publisher"), *said]
        writer.write(b"".join(encode(one, version) for one in packets))
        assert await asyncio.gather(*listening) == [[b"a", b"b", b"c"]] * CLIENTS
        writer.transport.abort()
