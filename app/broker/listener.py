"""The sockets of the broker: bytes in, packets to the machine, bytes out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import structlog

from app import __version__
from app.broker.certificate import ServerCertificate, client_certificate
from app.broker.handshake import TlsDoorway
from app.broker.keeper import SessionKeeper
from app.broker.stream import MOST_UNSENT_BYTES, UNSENT_BYTES, ClientStream, MessageStream
from app.core.addresses import is_loopback
from app.core.broker.broker import Broker
from app.core.broker.figures import BrokerFigures
from app.core.errors import UnavailableError
from app.core.peers import peer_of
from app.runtime.sockets import BACKLOG

LINGER_SECONDS: Final = 5.0
"""The time that a client may take to read the last of a connection that the broker ends."""
TICK_SECONDS: Final = 1.0
MOST_TO_REFUSE: Final = 64
"""Connections over the bound that may say CONNECT and are told that the broker is busy; the rest are closed."""


@dataclass(frozen=True, slots=True)
class BrokerSocket:
    """A socket that listens; with a `certificate`, its clients speak TLS."""

    listener: socket.socket
    certificate: ServerCertificate | None = None


def limited_peer(address: str) -> str:
    """Return the peer whose limits count for this address; none on this machine, where a proxy may speak for all."""
    return "" if is_loopback(address) else peer_of(address)


class BrokerListener:
    """Listens from the start; whoever connects is served once `run` has begun. `keeper` writes what is kept."""

    def __init__(
        self,
        broker: Broker,
        sockets: Sequence[BrokerSocket],
        keeper: SessionKeeper | None = None,
        name_peer: Callable[[str], str] = limited_peer,
        *,
        memory: Callable[[], int],
    ) -> None:
        """`name_peer` gives the peer that an address counts for, or nothing where there are no limits.

        `memory` says how many bytes the process has.
        """
        self._broker = broker
        self._name_peer = name_peer
        self._memory = memory
        self._figures = BrokerFigures(broker, f"homing {__version__}")
        self._keeper = keeper
        self._sockets = sockets
        self._servers: list[asyncio.Server] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._is_open = False

    async def run(self) -> None:
        """Serve until `close`; the work that is due by time ends with this task."""
        if self._keeper is not None:
            await self._keeper.start()
        for one in self._sockets:
            await self._serve(one)
        self._is_open = True
        self._broker.unsent.notice = lambda: self._look_in(0)
        self._figures.tick()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await asyncio.sleep(0)  # so that what came while this process stood still is read before silence is judged
            for task in self._accepting:
                if task.done():
                    task.result()  # never: it only ends by a mistake
            self._weigh()
            self._broker.tick()
            self._figures.tick()
            await self._refresh()
            if self._keeper is not None:
                self._keeper.check()

    def open_stream(self) -> MessageStream:
        """A client that comes another way; UnavailableError while nobody is served."""
        if not self._is_open:
            raise UnavailableError("the broker of this node is not open yet")
        return MessageStream(self._broker, self._keeper)

    async def close(self) -> None:
        """Take no more connections, and end those that there are. What is kept is on the disk then."""
        self._is_open = False
        for server in self._servers:
            server.close()
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for one in self._sockets:
            one.listener.close()
        self._broker.stop()
        if self._keeper is not None:
            await self._keeper.close()
        await asyncio.sleep(0)  # so that what was said leaves

    async def _serve(self, one: BrokerSocket) -> None:
        loop = asyncio.get_running_loop()
        if one.certificate is None:
            self._servers.append(await loop.create_server(self._client, sock=one.listener, backlog=BACKLOG))
        else:
            doorway = TlsDoorway(self._broker, one.listener, one.certificate, self._client, self._name_peer)
            self._accepting.append(loop.create_task(doorway.run(), name="broker doorway"))
        host, port = one.listener.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        structlog.get_logger().info("broker_listens", address=address, tls=one.certificate is not None)

    def _look_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Let those go on who have waited until others have read."""
        if self._is_open and (again := self._broker.unsent.look()) is not None:
            self._look_in(again)

    def _weigh(self) -> None:
        most = self._broker.bounds.process_bytes
        full = bool(most) and self._memory() > most
        if full and not self._broker.out_of_memory:
            structlog.get_logger().warning("broker_out_of_memory", allowed=most)
        self._broker.out_of_memory = full

    async def _refresh(self) -> None:
        for one in self._sockets:
            if one.certificate is not None:
                await asyncio.to_thread(one.certificate.refresh)

    def _client(self) -> asyncio.Protocol:
        return _ClientSocket(self._broker, self._keeper, self._name_peer)


class _ClientSocket(ClientStream, asyncio.Protocol):
    """A stream over TCP."""

    def __init__(self, broker: Broker, keeper: SessionKeeper | None, name_peer: Callable[[str], str]) -> None:
        super().__init__(broker, keeper)
        self._name_peer = name_peer
        self._transport: asyncio.Transport | None = None
        self._ended = False
        self._late = bytearray()
        """Answers to a client that does not read: in the transport, each would be an object of many times its bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        stream.set_write_buffer_limits(high=UNSENT_BYTES)
        broker = self._broker
        address = transport.get_extra_info("peername")
        if address is None:  # the client has reset the connection before it was accepted; uvloop asks for it only now
            stream.abort()
            return
        peer = self._name_peer(address[0])
        is_busy = broker.taken >= broker.bounds.connections + MOST_TO_REFUSE
        if is_busy or broker.peers.full(peer):
            broker.counters[f"broker.refused.{'server_busy' if is_busy else 'too_many_of_peer'}"] += 1
            stream.abort()
            return
        shown = transport.get_extra_info("peercert")
        self.begin(peer, client_certificate(shown) if shown else None)

    def data_received(self, data: bytes) -> None:
        if not self._ended:
            self.feed(data)

    def pause_writing(self) -> None:
        self._saturated = True

    def resume_writing(self) -> None:
        self._saturated = False
        self._write_late()
        if not self._saturated:
            self.drained()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost()

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size() + len(self._late)

    def abort(self) -> None:
        self._late.clear()
        if self._transport is not None:
            self._transport.abort()

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self._ended or transport.is_closing():
            return
        if self.unsent > MOST_UNSENT_BYTES:
            self.give_up()
            return
        self._broker.counters["broker.sent_bytes"] += len(data)
        self._broker.unsent.said(len(data))
        if self._saturated:
            self._late += data
        else:
            transport.write(data)

    def close(self) -> None:
        """End it. A client that was connected and still sends gets to read our last words, as with RFC 9112, 9.6."""
        transport = self._transport
        if transport is None or self._ended or transport.is_closing():
            return
        self._write_late()
        self._ended = True
        asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.abort)
        if self._may_linger and transport.can_write_eof():
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()

    def _write_late(self) -> None:
        late, self._late = bytes(self._late), bytearray()
        if late and self._transport is not None and not self._transport.is_closing():
            self._transport.write(late)

    @property
    def _may_linger(self) -> bool:
        """True if CONNECT was accepted, of which an address may have so many in a second, and the node goes on."""
        return self._connection is not None and self._connection.connected and not self._broker.stopping
