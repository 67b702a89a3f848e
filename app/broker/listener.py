"""The sockets of the broker: bytes in, packets to the machine, bytes out."""

from __future__ import annotations

import asyncio
import socket
from typing import Final, cast

import structlog

from app.broker.keeper import SessionKeeper
from app.core.broker.broker import Broker
from app.core.broker.codes import PacketError
from app.core.broker.connection import BrokerConnection
from app.core.broker.decoder import decode
from app.core.broker.wire import Framing
from app.runtime.sockets import BACKLOG

UNSENT_BYTES: Final = 262_144
"""What waits for one socket before messages wait in the session instead."""
MOST_UNSENT_BYTES: Final = 1_048_576
"""A client that has this much to read, which are acknowledgements then, is one that never reads."""
LINGER_SECONDS: Final = 5.0
"""How long a client may take to read the last of a connection that the broker ends."""
TICK_SECONDS: Final = 1.0


class BrokerListener:
    """Listens from the start; whoever connects is served once `run` has begun. `keeper` writes what is kept."""

    def __init__(self, broker: Broker, listener: socket.socket, keeper: SessionKeeper | None = None) -> None:
        self._broker = broker
        self._keeper = keeper
        self._listener = listener
        self._server: asyncio.Server | None = None

    async def run(self) -> None:
        """Serve until `close`; the work that is due by time ends with this task."""
        if self._keeper is not None:
            await self._keeper.start()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _ClientSocket(self._broker, self._keeper), sock=self._listener, backlog=BACKLOG
        )
        host, port = self._listener.getsockname()[:2]
        structlog.get_logger().info("broker_listens", address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._broker.tick()
            if self._keeper is not None:
                self._keeper.check()

    async def close(self) -> None:
        """Take no more connections, and end those that there are. What is kept is on the disk then."""
        if self._server is not None:
            self._server.close()
        self._listener.close()
        self._broker.stop()
        if self._keeper is not None:
            await self._keeper.close()
        await asyncio.sleep(0)  # so that what was said leaves


class _ClientSocket(asyncio.Protocol):
    """The link of one connection."""

    def __init__(self, broker: Broker, keeper: SessionKeeper | None) -> None:
        self.saturated = False
        self._broker = broker
        self._keeper = keeper
        self._framing = Framing(broker.bounds.connect_bytes)
        self._transport: asyncio.Transport | None = None
        self._connection: BrokerConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        stream.set_write_buffer_limits(high=UNSENT_BYTES)
        if self._keeper is None:
            self._connection = self._broker.open(self)
            return
        link = self._keeper.link(self)
        self._connection = self._broker.open(link)
        link.drained = self._connection.drained

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            for first_byte, body in self._framing.feed(data):
                if connection.closed:
                    return
                connection.receive(decode(first_byte, body, connection.version))
                self._framing.largest = connection.largest
        except PacketError as error:
            connection.refuse(error)

    def pause_writing(self) -> None:
        self.saturated = True

    def resume_writing(self) -> None:
        self.saturated = False
        if self._connection is not None:
            self._connection.drained()

    def connection_lost(self, _exc: Exception | None) -> None:
        if self._connection is not None:
            self._connection.lost()

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > MOST_UNSENT_BYTES:
            self._broker.counters["broker.refused.not_read"] += 1
            transport.abort()
            return
        transport.write(data)

    def close(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.abort)
