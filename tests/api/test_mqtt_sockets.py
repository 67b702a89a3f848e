"""MQTT over WebSocket: clients of the node's own broker that come over HTTP, by paho and frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from app.runtime.sockets import listen
from tests.api.rig import Rig, running, until
from tests.api.serving import Served, connection, raw_socket, serving
from tests.api.sockets import BytesMessage, Socket, TextMessage, opening, socket
from tests.waiting import PATIENCE, turns

CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a"
WILL = b"\x10\x14\x00\x04MQTT\x04\x06\x00\x3c\x00\x01b\x00\x01w\x00\x02by"
CONNACK = b"\x20\x02\x00\x00"
PING, PONG = b"\xc0\x00", b"\xd0\x00"
SUBSCRIBE = b"\x82\x06\x00\x01\x00\x01w\x00"
SUBACK = b"\x90\x03\x00\x01\x00"
LONG = b"\x30\x83\x80\x08\x00\x01w" + b"x" * 131_072
HEADERS = {"Sec-WebSocket-Protocol": "mqtt"}


def free_port() -> int:
    with listen("127.0.0.1", 0) as one:
        port: int = one.getsockname()[1]
    return port


class Site:
    """A node with a broker."""

    def __init__(self, served: Served, port: int) -> None:
        self.served = served
        self.port = port


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    port = free_port()
    async with running(broker={"url": f"mqtt://127.0.0.1:{port}"}) as rig, serving(rig) as served:
        yield Site(served, port)
        await until(lambda: served.count() == 0)


class PahoClient:
    """A client of paho in a thread, whose messages come to the loop of the test."""

    def __init__(self, name: str, version: int, transport: str) -> None:
        self.heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            name,
            protocol=MQTTProtocolVersion(version),
            transport=transport,  # type: ignore[arg-type]  # a literal
        )
        self.subscribed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.client.on_connect = lambda client, *_: self._began(client)
        self.client.on_subscribe = lambda *_: self._call(self.subscribed.set)
        self.client.on_message = lambda _client, _data, one: self._call(
            lambda: self.heard.put_nowait((one.topic, bytes(one.payload)))
        )

    def _began(self, client: paho.Client) -> None:
        client.subscribe("site/#", 2)

    def _call(self, what: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(what)

    async def next(self) -> tuple[str, bytes]:
        """The next message."""
        async with asyncio.timeout(PATIENCE):
            return await self.heard.get()


@asynccontextmanager
async def client(name: str, port: int, version: int, transport: str) -> AsyncIterator[PahoClient]:
    one = PahoClient(name, version, transport)
    one.client.connect_async("127.0.0.1", port)
    one.client.loop_start()
    try:
        async with asyncio.timeout(PATIENCE):
            await one.subscribed.wait()
        yield one
    finally:
        one.client.disconnect()
        await asyncio.to_thread(one.client.loop_stop)


@pytest.mark.parametrize("version", [4, 5])
async def test_a_client_that_others_wrote_speaks_with_one_of_tcp(site: Site, version: int) -> None:
    async with (
        client("ws", site.served.port, version, "websockets") as one,
        client("tcp", site.port, version, "tcp") as other,
    ):
        for qos, sender in ((0, one), (1, other), (2, one), (2, other)):
            payload = bytes(range(256)) * 800  # in several frames of TCP, and larger than what is read at a time
            sender.client.publish(f"site/{qos}", payload, qos)
            for hearer in (one, other):
                assert await hearer.next() == (f"site/{qos}", payload)
    assert site.served.rig.counters["websocket.opened"] == 1


async def exactly(one: Socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        event = await one.next()
        assert isinstance(event, BytesMessage), event
        data += event.data
    return data


async def test_packets_and_frames_need_not_begin_and_end_together(site: Site) -> None:
    async with socket(site.served.port, HEADERS, "/mqtt") as one:
        for byte in CONNECT:
            one.send(BytesMessage(bytes((byte,))))
        assert await exactly(one, 4) == CONNACK
        one.send(BytesMessage(PING * 3 + PING[:1]))
        assert await exactly(one, 6) == PONG * 3
        one.send(BytesMessage(PING[1:]))
        assert await exactly(one, 2) == PONG


async def test_text_is_no_mqtt(site: Site) -> None:
    async with socket(site.served.port, HEADERS, "/mqtt") as one:
        one.send(TextMessage(CONNECT.decode("latin-1")))
        assert (await one.closed())[0] == 1003


async def test_what_is_no_packet_ends_the_connection_as_over_tcp(site: Site) -> None:
    async with socket(site.served.port, HEADERS, "/mqtt") as one:
        one.send(BytesMessage(b"GET / HTTP/1.1\r\n\r\n"))
        assert (await one.closed())[0] == 1000


async def test_a_client_must_offer_mqtt_and_the_node_must_have_a_broker(site: Site, rig: Rig) -> None:
    async with serving(rig) as without:
        for port, headers, status in (
            (site.served.port, {}, b"422"),
            (site.served.port, {"Sec-WebSocket-Protocol": "amqp"}, b"422"),
            (site.served.port, {"Sec-WebSocket-Protocol": "mqtt", "Origin": "http://evil.example"}, b"403"),
            (site.served.port, {"Upgrade": "", "Connection": "close"}, b"426"),
            (without.port, HEADERS, b"404"),
        ):
            async with connection(port) as (reader, writer):
                writer.write(opening(headers, "/mqtt"))
                head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 " + status), (headers, head)
            assert b"application/problem+json" in head
        async with connection(site.served.port) as (reader, writer):
            writer.write(opening({"Sec-WebSocket-Protocol": "v12.stomp, mqtt"}, "/mqtt"))
            assert b"sec-websocket-protocol: mqtt\r\n" in await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("how", ["lost", "dismissed"])
async def test_a_will_is_published_for_who_is_lost_and_not_because_the_node_stops(site: Site, how: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(CONNECT + SUBSCRIBE)
    assert await reader.readexactly(9) == CONNACK + SUBACK
    async with socket(site.served.port, HEADERS, "/mqtt") as one:
        one.send(BytesMessage(WILL))
        assert await exactly(one, 4) == CONNACK
        if how == "lost":
            one.writer.transport.abort()
        else:
            site.served.rig.application.dismiss()
            assert (await one.closed())[0] == 1001
            await turns()
            writer.write(PING)
        assert await reader.readexactly(2) == (b"\x30\x05" if how == "lost" else PONG)
    writer.close()


@asynccontextmanager
async def nobody_reads(site: Site) -> AsyncIterator[asyncio.StreamWriter]:
    """A client that has stalled behind its WebSocket, and the connection of somebody who publishes for it."""
    loop, served = asyncio.get_running_loop(), site.served
    _, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(CONNECT.replace(b"a", b"c"))
    with raw_socket(served.port, receive_buffer=4096) as peer:
        await loop.sock_sendall(peer, opening(HEADERS, "/mqtt"))
        assert (await loop.sock_recv(peer, 4096)).startswith(b"HTTP/1.1 101 ")
        for packet in (CONNECT, SUBSCRIBE):
            await loop.sock_sendall(peer, bytes((0x82, 0x80 | len(packet))) + b"\0" * 4 + packet)
        while not served.limiter._stalled:
            writer.write(LONG)
            await turns(5)
        yield writer
    writer.close()


async def test_who_never_reads_is_cut_and_nothing_piles_up(site: Site) -> None:
    served = site.served
    async with nobody_reads(site) as writer:
        (stalled,) = served.limiter._stalled
        for _ in range(40):  # what comes now waits for nobody
            writer.write(LONG)
            await turns(5)
        assert stalled.unread() < 512 * 1024
        served.after(30)
        await until(lambda: served.count() == 0)
    assert served.closed("slow_reader") == 1


async def test_who_is_given_up_leaves_at_once_with_all_that_was_for_them(site: Site) -> None:
    served = site.served
    async with nobody_reads(site):
        (stream,) = served.rig.application.mqtt._open
        stream.give_up()
        await until(lambda: served.count() == 0)
    assert served.closed("slow_reader") == 0
