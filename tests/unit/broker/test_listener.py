"""The broker behind real sockets: with the clients that people have, and with peers that nobody wants."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from random import Random
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from app.broker.listener import TICK_SECONDS, limited_peer
from app.broker.stream import MessageStream
from app.core.broker.bounds import BrokerBounds
from app.core.broker.codes import PacketType, ProtocolVersion, ReasonCode
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.packets import Connack, Connect, Disconnect, FilterOptions, Pingreq, Publish, Subscribe
from app.core.broker.wire import Framing
from app.core.peers import peer_of
from app.runtime.system import resident_bytes
from tests.broker import RunningBroker, running_broker
from tests.services import find_binary
from tests.unit.broker.conftest import Run
from tests.unit.core.broker.peers import HandClock, properties
from tests.waiting import PATIENCE, eventually

V3, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
CONNECT = encode(Connect(V5, "raw"), V5)


@pytest.fixture
async def running() -> AsyncIterator[RunningBroker]:
    async with running_broker() as one:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
        yield one
        asyncio.get_running_loop().set_exception_handler(None)
        assert faults == [], "an exception has got out of the broker"


async def run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(PATIENCE):
        said, _ = await process.communicate()
    return said.decode()


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
async def test_the_commands_of_mosquitto(running: RunningBroker, version: str, qos: str) -> None:
    find_binary("mosquitto_sub", "mosquitto-clients")
    common = ("-h", "127.0.0.1", "-p", str(running.port), "-V", version, "-q", qos)
    listener = asyncio.create_task(run("mosquitto_sub", *common, "-t", "a/#", "-v", "-C", "3"))
    await eventually(lambda: len(running.broker.subscriptions))
    for number in range(3):
        assert await run("mosquitto_pub", *common, "-t", f"a/{number}", "-m", f"höre {number}") == ""
    assert await listener == "".join(f"a/{number} höre {number}\n" for number in range(3))


class Talker:
    """paho in a thread of its own, as applications use it."""

    def __init__(self, running: RunningBroker, version: int, client_id: str) -> None:
        self.messages: list[paho.MQTTMessage] = []
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion(version))
        self.client.on_message = lambda _client, _data, message: self.messages.append(message)
        self._running = running

    async def start(self, **more: Any) -> None:
        self.client.connect_async("127.0.0.1", self._running.port, **more)
        self.client.loop_start()
        await eventually(self.client.is_connected)

    async def stop(self) -> None:
        self.client.disconnect()
        await asyncio.to_thread(self.client.loop_stop)


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
async def test_paho_with_all_that_it_can_say(running: RunningBroker, version: int) -> None:
    """Its own encoder and decoder are the judges of ours."""
    listener, talker = Talker(running, version, "listener"), Talker(running, version, "talker")
    talker.client.will_set("will", b"gone", 2, retain=True)
    await listener.start()
    await talker.start(keepalive=7)
    listener.client.subscribe([("t/#", 2), ("will", 1)])
    await eventually(lambda: len(running.broker.subscriptions) == 2)
    said = None
    if version == paho.MQTTv5:
        said = PahoProperties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # it has no types
        said.ContentType, said.ResponseTopic, said.CorrelationData = "text/höre", "r/1", b"\0\xff"
        said.UserProperty = [("a", "1"), ("a", "2")]
        said.PayloadFormatIndicator, said.MessageExpiryInterval = 1, 100
    sizes = (0, 1, 127, 128, 16_383, 16_384, 131_072)
    for number, size in enumerate(sizes):
        talker.client.publish(f"t/{number}", b"x" * size, qos=number % 3, properties=said)
    await eventually(lambda: len(listener.messages) == len(sizes))
    found = {one.topic: one for one in listener.messages}
    for number, size in enumerate(sizes):
        one = found[f"t/{number}"]
        assert (one.payload, one.qos) == (b"x" * size, number % 3)
        if said is not None and one.properties is not None:
            told = as_json(one.properties)
            assert 98 <= told.pop("MessageExpiryInterval") <= 100
            expected = as_json(said)
            del expected["MessageExpiryInterval"]
            assert told == expected
    talker.client._sock_close()
    await eventually(lambda: any(one.topic == "will" and one.payload == b"gone" for one in listener.messages))
    await listener.stop()
    await talker.stop()


def as_json(properties: PahoProperties) -> dict[str, Any]:
    return dict(properties.json())  # type: ignore[no-untyped-call]  # it has no types


class Raw:
    """A socket on which a test says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """All until the broker closes the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


@asynccontextmanager
async def raw(running: RunningBroker) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    try:
        yield Raw(reader, writer)
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    "rubbish",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
        b"\0" * 10,
        b"\xff" * 100,
        b"\x10\xff\xff\xff\xff\x7f",
        encode(Pingreq(), V5),
        encode(Publish("t", b"x"), V5),
    ],
    ids=["HTTP", "TLS", "zeros", "ones", "length", "PINGREQ", "PUBLISH"],
)
async def test_what_is_not_mqtt_is_closed_without_an_answer(rubbish: bytes) -> None:
    async with running_broker(BrokerBounds(connect_seconds=0.5)) as running, raw(running) as peer:
        await peer.say(rubbish)
        assert await peer.rest() in (b"", b"\x20\x03\x00\x95\x00"), "at most that the packet is too large"
        assert not running.broker.connections


@pytest.mark.parametrize("level", [0x83, 0x84, 3])
async def test_a_bridge_that_tries_its_own_version_first_is_refused_properly(
    running: RunningBroker, level: int
) -> None:
    async with raw(running) as peer:
        await peer.say(b"\x10\x0d\x00\x04MQTT" + bytes((level,)) + b"\x02\x00\x3c\x00\x01x")
        assert await peer.rest() == b"\x20\x02\x00\x01"


async def test_packets_may_come_in_any_pieces_and_all_at_once(running: RunningBroker) -> None:
    async with raw(running) as peer:
        large = encode(Publish("t", b"x" * 100_000, 1, packet_id=7), V5)
        stream = CONNECT + encode(Subscribe(1, (FilterOptions("t", 1),)), V5) + large + encode(Disconnect(), V5)
        chance = Random(3)
        sent = 0
        while sent < len(stream):
            size = chance.choice([1, 7, 1000, 50_000])
            await peer.say(stream[sent : sent + size])
            sent += size
        said = [type(decode(first, body, V5)).__name__ for first, body in Framing().feed(await peer.rest())]
        assert said == ["Connack", "Suback", "Publish", "PublishAck"]


async def test_a_packet_that_is_too_large_ends_the_connection(running: RunningBroker) -> None:
    async with raw(running) as peer:
        await peer.say(CONNECT + b"\x30\xff\xff\x7f")
        *_, (first, body) = Framing().feed(await peer.rest())
        said = decode(first, body, V5)
        assert isinstance(said, Disconnect)
        assert said.reason is ReasonCode.PACKET_TOO_LARGE


async def test_changed_packets_disturb_nobody(running: RunningBroker) -> None:
    """The fixture sees to it that no exception gets out; a client beside them goes on."""
    witness = Talker(running, paho.MQTTv5, "witness")
    await witness.start()
    witness.client.subscribe("witness", 1)
    await eventually(lambda: len(running.broker.subscriptions) == 1)
    chance = Random(5)
    packets = [
        encode(Subscribe(1, (FilterOptions("a/#", 2),)), V5),
        encode(Publish("a/b", b"payload", 2, packet_id=3), V5),
        encode(Publish("a/b", b"payload", 1, packet_id=4, retain=True), V5),
        encode(Pingreq(), V5),
    ]
    for _ in range(150):
        stream = bytearray(CONNECT + b"".join(chance.choices(packets, k=4)))
        for _ in range(chance.randint(1, 4)):
            stream[chance.randrange(len(stream))] = chance.randrange(256)
        async with raw(running) as peer:
            with suppress(ConnectionError):
                await peer.say(bytes(stream))
                peer.writer.write_eof()
            await peer.rest()
    witness.client.publish("witness", b"well", 1)
    await eventually(lambda: any(one.payload == b"well" for one in witness.messages))
    await witness.stop()
    await eventually(lambda: not running.broker.connections)


async def test_a_reader_that_never_reads_bounds_itself() -> None:
    async with (
        running_broker(BrokerBounds(waiting=10)) as running,
        raw(running) as deaf,
        raw(running) as publisher,
    ):
        await deaf.say(CONNECT + encode(Subscribe(1, (FilterOptions("t", 1),)), V5))
        await deaf.reader.readexactly(1)
        await eventually(lambda: len(running.broker.subscriptions) == 1)
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a transport of a socket
        await publisher.say(encode(Connect(V5, "publisher"), V5))
        for number in range(400):
            await publisher.say(encode(Publish("t", b"x" * 100_000, number % 2, packet_id=number % 2), V5))
        await eventually(lambda: running.counters["broker.received"] == 400)
        assert len(running.broker.sessions["raw"].waiting) <= 10
        assert running.counters["broker.dropped.slow_reader"] > 0
        assert running.counters["broker.dropped.queue_full"] > 0


def uptime(running: RunningBroker) -> list[bytes]:
    return [one.payload for one in running.broker.retained.matching("$SYS/broker/uptime", running.broker.now())]


def test_what_comes_while_the_process_stands_still_ends_a_silence(run: Run) -> None:
    async def story() -> None:
        clock = HandClock()
        async with running_broker(clock=clock) as running, raw(running) as peer:
            await peer.say(encode(Connect(V5, "raw", keep_alive=10), V5))
            await eventually(lambda: running.broker.sessions)
            before = uptime(running)
            loop, (bell, button) = asyncio.get_running_loop(), socket.socketpair()

            def stand_still() -> None:
                loop.remove_reader(bell)
                peer.writer.write(encode(Pingreq(), V5))  # a client in another process, which does not stand still
                clock.now += 60
                time.sleep(TICK_SECONDS)

            with bell, button:
                loop.add_reader(bell, stand_still)
                button.send(b"!")
                await eventually(lambda: uptime(running) != before)
            assert len(running.broker.connections) == 1

    run(story())


def test_whoever_resets_the_connection_before_it_is_accepted_leaves_nothing(run: Run) -> None:
    """As a scan of ports does."""

    async def reset() -> None:
        async with running_broker() as running:
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", running.port)) as one:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(CONNECT)
            assert (await reader.readexactly(4))[0] >> 4 == PacketType.CONNACK
            await eventually(lambda: running.broker.taken == 1)
            writer.close()

    run(reset())


async def test_the_end_of_the_broker_is_told() -> None:
    async with AsyncExitStack() as client:
        async with running_broker() as running:
            peer = await client.enter_async_context(raw(running))
            await peer.say(CONNECT)
            await eventually(lambda: running.broker.sessions)
        *_, (first, body) = Framing().feed(await peer.rest())
        assert decode(first, body, V5) == Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)


async def test_a_refusal_arrives_before_the_end(running: RunningBroker) -> None:
    async with raw(running) as peer:
        await peer.say(encode(Connect(V3, "", clean_start=False), V3))
        ((first, body),) = Framing().feed(await peer.rest())
        assert decode(first, body, V3) == Connack(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)


@pytest.mark.parametrize(
    ("address", "peer"), [("127.0.0.1", ""), ("::1", ""), ("::ffff:127.0.0.9", ""), ("10.1.2.3", "10.1.2.3")]
)
def test_addresses_of_this_machine_have_no_limits(address: str, peer: str) -> None:
    assert limited_peer(address) == peer


async def test_connections_of_one_address_are_bounded() -> None:
    """The next one is closed without a word, and may come when another one has gone."""
    async with running_broker(BrokerBounds(connections_per_peer=1), name_peer=peer_of) as one:
        first = await asyncio.open_connection("127.0.0.1", one.port)
        await eventually(lambda: len(one.broker.connections) == 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert one.counters["broker.refused.too_many_of_peer"] == 1
        first[1].close()
        await eventually(lambda: not one.broker.connections)
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        writer.write(CONNECT)
        assert (await reader.read(1))[0] >> 4 == 2
        writer.close()


async def test_connections_over_the_bound_are_told_so_and_the_rest_of_them_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connections that say nothing have no more of the files than those that are told."""
    monkeypatch.setattr("app.broker.listener.MOST_TO_REFUSE", 1)
    async with running_broker(BrokerBounds(connections=1)) as one, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(raw(one)) for _ in range(2)]
        await eventually(lambda: len(one.broker.connections) == 2)
        third = await stack.enter_async_context(raw(one))
        assert await third.rest() == b""
        assert one.counters["broker.refused.server_busy"] == 1
        await silent[1].say(CONNECT)
        assert (await silent[1].rest())[:4] == b"\x20\x03\x00\x89"


async def test_no_session_begins_while_the_process_has_all_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.broker.listener.TICK_SECONDS", 0.01)
    resident = 100
    async with running_broker(BrokerBounds(process_bytes=100), memory=lambda: resident) as one:

        async def answer(client_id: str) -> ReasonCode:
            stream = MessageStream(one.broker, None)
            stream.begin()
            stream.feed(encode(Connect(V5, client_id, properties=properties(SESSION_EXPIRY_INTERVAL=60)), V5))
            ((first, body),) = Framing().feed(await stream.outgoing())
            stream.lost()
            said = decode(first, body, V5)
            assert isinstance(said, Connack)
            return said.reason

        assert await answer("a") is ReasonCode.SUCCESS
        resident = 101
        await eventually(lambda: one.broker.out_of_memory)
        assert await answer("a") is ReasonCode.SUCCESS, "it is there already"
        assert await answer("b") is ReasonCode.QUOTA_EXCEEDED
        assert one.counters["broker.refused.quota_exceeded"] == 1
        resident = 100
        await eventually(lambda: not one.broker.out_of_memory)
        assert await answer("b") is ReasonCode.SUCCESS


def test_a_process_knows_how_much_memory_it_has() -> None:
    assert 2**20 < resident_bytes() < 2**40
