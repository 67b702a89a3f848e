"""The broker over TLS: with the clients that people have, and with peers that nobody wants, on both loops."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar

import paho.mqtt.client as paho
import pytest
import uvloop
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from app.broker import handshake
from app.broker.certificate import ServerCertificate
from app.core.broker.bounds import BrokerBounds
from app.core.broker.codes import PacketType, ProtocolVersion, ReasonCode
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.packets import Connect, Disconnect, Packet, Publish, PublishAck
from app.core.broker.wire import Framing
from app.runtime.system import SystemClock
from tests.broker import RunningBroker, running_broker
from tests.certificates import CertificateFiles, make_certificate
from tests.unit.broker.conftest import Run
from tests.waiting import PATIENCE, eventually

V5 = ProtocolVersion.V5
CONNECT = encode(Connect(V5, "raw"), V5)
T = TypeVar("T")


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return make_certificate(tmp_path)


@asynccontextmanager
async def broker_of(files: CertificateFiles, bounds: BrokerBounds | None = None) -> AsyncIterator[RunningBroker]:
    certificate = ServerCertificate(files.certificate, files.key, SystemClock())
    async with running_broker(bounds, certificate=certificate) as running:
        yield running


def trusting(files: CertificateFiles) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=files.authority)


class Peer:
    """A socket on which a test says what it likes, over TLS or not; closed at the end of the block."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._context = context

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(
            "localhost", self._port, ssl=self._context, family=socket.AF_INET
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()

    async def rest(self) -> bytes:
        """All until the broker closes the connection."""
        try:
            return await self.reader.read()
        except OSError:
            return b""


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
def test_paho_publishes_and_receives(run: Run, files: CertificateFiles, version: int) -> None:
    """Large messages both ways, so that buffers on both sides fill; those of QoS 0 would be dropped then."""

    async def story() -> None:
        async with broker_of(files) as running:
            messages: list[bytes] = []
            client = paho.Client(CallbackAPIVersion.VERSION2, "one", protocol=MQTTProtocolVersion(version))
            client.tls_set_context(trusting(files))
            client.on_message = lambda _client, _data, message: messages.append(bytes(message.payload))
            client.connect_async("localhost", running.tls_port)
            client.loop_start()
            await eventually(client.is_connected)
            client.subscribe("t", 2)
            await eventually(lambda: len(running.broker.subscriptions))
            for number in range(40):
                client.publish("t", bytes([number]) * 200_000, qos=1 + number % 2)
            await eventually(lambda: len(messages) == 40)
            assert sorted(messages) == [bytes([number]) * 200_000 for number in range(40)]
            client.disconnect()
            await asyncio.to_thread(client.loop_stop)
            await eventually(lambda: not running.broker.connections)
            assert not running.broker.arriving

    run(story())


def test_what_comes_with_the_end_of_the_handshake_is_read(run: Run, files: CertificateFiles) -> None:
    """A client that does not wait: Finished and CONNECT are in one segment."""

    async def story() -> None:
        async with broker_of(files) as running, Peer(running.tls_port) as peer:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = trusting(files).wrap_bio(incoming, outgoing, server_hostname="localhost")

            async def done(step: Callable[[], T]) -> T:
                while True:
                    try:
                        return step()
                    except ssl.SSLWantReadError:
                        peer.writer.write(outgoing.read())
                        incoming.write(await peer.reader.read(65_536))

            await done(client.do_handshake)
            client.write(CONNECT)
            assert (await done(client.read))[0] == 0x20, "a CONNACK"

    run(story())


@pytest.mark.parametrize(
    "rubbish",
    [CONNECT, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 100],
    ids=["MQTT", "HTTP", "record"],
)
def test_what_is_no_tls_is_closed_and_counted(run: Run, files: CertificateFiles, rubbish: bytes) -> None:
    async def story() -> None:
        async with broker_of(files, BrokerBounds(connect_seconds=0.5)) as running, Peer(running.tls_port) as peer:
            peer.writer.write(rubbish)
            assert b"\x20" not in await peer.rest()
            await eventually(lambda: running.counters["broker.refused.tls_handshake"] == 1)
            await eventually(lambda: not running.broker.taken)

    run(story())


def test_whoever_stalls_in_the_handshake_is_closed(run: Run, files: CertificateFiles) -> None:
    async def story() -> None:
        async with broker_of(files, BrokerBounds(connect_seconds=0.2)) as running, Peer(running.tls_port) as peer:
            peer.writer.write(b"\x16\x03")
            await eventually(lambda: running.broker.arriving == 1)
            assert await peer.rest() == b""
            await eventually(lambda: running.counters["broker.refused.tls_handshake"] == 1)
            await eventually(lambda: not running.broker.arriving)

    run(story())


def test_tls_of_before_1_2_is_refused(run: Run, files: CertificateFiles) -> None:
    async def story() -> None:
        async with broker_of(files) as running:
            old = trusting(files)
            old.set_ciphers("ALL:@SECLEVEL=0")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                old.minimum_version = ssl.TLSVersion.TLSv1
                old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises(OSError):  # noqa: PT011 - what the alert is called is the loop's
                await Peer(running.tls_port, old).__aenter__()
            await eventually(lambda: running.counters["broker.refused.tls_handshake"] == 1)
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            async with Peer(running.tls_port, old) as peer:
                peer.writer.write(CONNECT)
                assert (await peer.reader.readexactly(4))[3] == ReasonCode.SUCCESS

    run(story())


def test_handshakes_count_among_the_connections(run: Run, files: CertificateFiles) -> None:
    async def story() -> None:
        async with broker_of(files, BrokerBounds(connections=2)) as running:
            async with Peer(running.tls_port), Peer(running.tls_port):
                await eventually(lambda: running.broker.arriving == 2)
                async with Peer(running.tls_port) as third, Peer(running.port) as plain:
                    assert await third.rest() == b""
                    plain.writer.write(CONNECT)
                    assert (await plain.rest())[3] == ReasonCode.SERVER_BUSY
                assert running.counters["broker.refused.server_busy"] == 2
            await eventually(lambda: not running.broker.arriving)
            async with Peer(running.tls_port, trusting(files)) as served:
                served.writer.write(CONNECT)
                assert (await served.reader.readexactly(4))[3] == ReasonCode.SUCCESS

    run(story())


def test_whoever_stalls_their_handshakes_keeps_nobody_else_out(
    run: Run, files: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "MOST_OF_PEER", 2)
    names = iter(["stalls", "stalls", "stalls", "other"])

    async def story() -> None:
        certificate = ServerCertificate(files.certificate, files.key, SystemClock())
        bounds = BrokerBounds(connect_seconds=10 * PATIENCE)
        async with (
            running_broker(bounds, certificate=certificate, name_peer=lambda _: next(names, "other")) as running,
            Peer(running.tls_port),
            Peer(running.tls_port),
        ):
            await eventually(lambda: running.broker.arriving == 2)
            async with Peer(running.tls_port) as third:
                assert await third.rest() == b""
            assert running.counters["broker.refused.too_many_of_peer"] == 1
            async with Peer(running.tls_port, trusting(files)) as served:
                served.writer.write(CONNECT)
                assert (await served.reader.readexactly(4))[3] == ReasonCode.SUCCESS

    run(story())


def sends_on(port: int, context: ssl.SSLContext, ended: threading.Event) -> list[Packet]:
    """Send one message of QoS 2 too many, and go on with answers to what was read; return all that was said."""
    messages = b"".join(encode(Publish("t", b"", 2, packet_id=one), V5) for one in range(1, 1026))
    with (
        socket.create_connection(("localhost", port), PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        client.sendall(CONNECT + messages)
        assert ended.wait(PATIENCE)
        for packet_id in range(1, 1025):
            client.sendall(encode(PublishAck(PacketType.PUBREL, packet_id), V5))
        said = b""
        while data := client.recv(65_536):
            said += data
    return [decode(first, body, V5) for first, body in Framing().feed(said)]


def test_who_still_sends_gets_to_read_why_its_connection_has_ended(files: CertificateFiles) -> None:
    """The loop of a node reads on after the end of TLS; asyncio's own ends the connection at what comes then."""

    async def story() -> None:
        async with broker_of(files) as running:
            ended = threading.Event()
            sending = asyncio.create_task(asyncio.to_thread(sends_on, running.tls_port, trusting(files), ended))
            await eventually(lambda: running.counters["broker.refused.receive_maximum_exceeded"])
            ended.set()
            said = await sending
            assert isinstance(said[-1], Disconnect)
            assert said[-1].reason is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


def test_an_end_right_after_the_handshake_leaves_nothing(run: Run, files: CertificateFiles) -> None:
    async def story() -> None:
        async with broker_of(files) as running:
            for _ in range(5):
                async with Peer(running.tls_port, trusting(files)):
                    pass
            await eventually(lambda: not running.broker.taken)

    run(story())


def test_the_end_of_the_broker_ends_handshakes_too(run: Run, files: CertificateFiles) -> None:
    async def story() -> None:
        async with AsyncExitStack() as client:
            async with broker_of(files, BrokerBounds(connect_seconds=10 * PATIENCE)) as running:
                peer = await client.enter_async_context(Peer(running.tls_port))
                await eventually(lambda: running.broker.arriving == 1)
            assert await peer.rest() == b""

    run(story())


def test_a_new_certificate_counts_for_those_who_come_then(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        files, clock = make_certificate(tmp_path), SystemClock()
        certificate = ServerCertificate(files.certificate, files.key, clock)
        async with (
            running_broker(certificate=certificate) as running,
            Peer(running.tls_port, trusting(files)) as early,
        ):
            early.writer.write(CONNECT)
            assert (await early.reader.readexactly(4))[3] == ReasonCode.SUCCESS
            renewed = trusting(make_certificate(tmp_path))
            with pytest.raises(ssl.SSLError):
                await Peer(running.tls_port, renewed).__aenter__()
            for _ in range(2):
                certificate.refresh()
            async with Peer(running.tls_port, renewed) as late:
                late.writer.write(encode(Connect(ProtocolVersion.V5, "late"), ProtocolVersion.V5))
                assert (await late.reader.readexactly(4))[3] == ReasonCode.SUCCESS
            assert len(running.broker.sessions) == 2, "the connection of before goes on"

    run(story())
