"""The bytes of one client, whatever carries them: packets to the machine, and what it says back."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from app.broker.gate import PausableLink
from app.broker.keeper import SessionKeeper
from app.core.broker.broker import Broker
from app.core.broker.codes import PacketError, PacketType, protocol_error
from app.core.broker.connection import BrokerConnection, ClientLink
from app.core.broker.decoder import decode
from app.core.broker.rights import ClientCertificate
from app.core.broker.unsent import SMALL_MESSAGE
from app.core.broker.wire import Framing

UNSENT_BYTES: Final = 262_144
"""The bytes that wait for one client before messages wait in the session instead."""
MOST_UNSENT_BYTES: Final = 1_048_576
"""A client that has this much to read, which are acknowledgements then, is one that never reads."""


class ClientStream(PausableLink):
    """The link of one connection. Its owner says when it begins, what comes in, and when it is lost."""

    def __init__(self, broker: Broker, keeper: SessionKeeper | None) -> None:
        self._saturated = False
        self._broker: Final = broker
        self._keeper: Final = keeper
        self._framing: Final = Framing(broker.bounds.connect_bytes)
        self._link: ClientLink = self
        """The link that the connection knows, which may have a gate."""
        self._connection: BrokerConnection | None = None
        self._resuming: asyncio.TimerHandle | None = None
        self._early = bytearray()
        """The bytes that came while what was said before is not done."""

    @property
    def saturated(self) -> bool:
        """See ClientLink."""
        return self._saturated or (self._broker.unsent.full and self.unsent > SMALL_MESSAGE)

    @property
    def unread(self) -> bool:
        """See ClientLink."""
        return self._resuming is not None

    def begin(self, peer: str = "", certificate: ClientCertificate | None = None) -> None:
        """Let the broker know of it, of the peer if its peers are limited there, and of what the client has shown."""
        self._broker.unsent.links.add(self)
        if self._keeper is None:
            self._connection = self._broker.open(self, peer, certificate)
            return
        self._link = link = self._keeper.link(self)
        self._connection = self._broker.open(link, peer, certificate)
        link.drained = self._connection.drained

    def feed(self, data: bytes) -> None:
        """Take what came in."""
        if self._connection is None:
            return
        self._broker.counters["broker.received_bytes"] += len(data)
        if self._resuming is None:
            self._read(self._connection, data)
            return
        self._early += data
        self._broker.hold_unfinished(self._connection, len(self._early), anew=False)
        if len(self._early) > self._broker.bounds.connect_bytes:
            self.pause_reading()

    def lost(self) -> None:
        """The connection has ended."""
        self._broker.unsent.links.discard(self)
        if self._resuming is not None:
            self._resuming.cancel()
        if self._connection is not None:
            self._connection.lost()

    def _read(self, connection: BrokerConnection, data: bytes) -> None:
        anew = False
        try:
            for first_byte, body in self._framing.feed(data):
                anew = True
                if connection.closed:
                    return
                if connection.connected == (first_byte >> 4 == PacketType.CONNECT):
                    raise protocol_error("CONNECT is the first packet, and no other one")  # [MQTT-3.1.0-1, -2]
                connection.receive(decode(first_byte, body, connection.version))
                self._framing.largest = connection.largest
                if self._waits(connection):
                    return  # what follows is read when that is done
            connection.read(self._framing.held, anew=anew)
        except PacketError as error:
            connection.refuse(error)

    def _waits(self, connection: BrokerConnection) -> bool:
        """True if the connection takes nothing for now; it is resumed when it does."""
        wait = connection.wait
        if wait is not None:
            self._resuming = asyncio.get_running_loop().call_later(wait, self._resume, connection)
        return wait is not None

    def _resume(self, connection: BrokerConnection) -> None:
        self._resuming = None
        connection.resume()
        if self._waits(connection):
            return
        self._framing.largest = connection.largest
        early, self._early = bytes(self._early), bytearray()
        if not self._link.unread:
            self.resume_reading()
        self._read(connection, early)  # which may pause it again

    def drained(self) -> None:
        """The client has read."""
        self._saturated = False
        if self._connection is not None:
            self._connection.drained()

    def give_up(self) -> None:
        """See UnsentLink."""
        self._broker.unsent.links.discard(self)
        self._broker.counters["broker.refused.not_read"] += 1
        self.abort()

    @property
    @abstractmethod
    def unsent(self) -> int:
        """See UnsentLink."""

    @abstractmethod
    def abort(self) -> None:
        """End the connection without what was said."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """See ClientLink."""

    @abstractmethod
    def close(self) -> None:
        """See ClientLink."""

    @abstractmethod
    def pause_reading(self) -> None:
        """See PausableLink."""

    @abstractmethod
    def resume_reading(self) -> None:
        """See PausableLink."""


class MessageStream(ClientStream):
    """A stream whose owner fetches what is to be sent, as one message each time."""

    def __init__(self, broker: Broker, keeper: SessionKeeper | None) -> None:
        super().__init__(broker, keeper)
        self.cut: Callable[[], None] = lambda: None
        """Ends the socket of its owner at once, with what that was given and has not sent."""
        self._unsent = bytearray()
        self._size = 0
        self._closing = False
        self._filled = asyncio.Event()
        self._readable = asyncio.Event()
        self._readable.set()

    async def outgoing(self) -> bytes:
        """Return what is to be sent next, once it is there; empty when the broker has closed and all was sent."""
        self._size = 0
        if self._saturated:
            self.drained()
        while not self._unsent and not self._closing:
            self._filled.clear()
            await self._filled.wait()
        data = bytes(self._unsent)
        self._unsent.clear()
        self._size = len(data)  # until it is asked for more, this is not sent
        return data

    async def readable(self) -> None:
        """Return when more may be read."""
        await self._readable.wait()

    def write(self, data: bytes) -> None:
        """See ClientLink."""
        if self._closing:
            return
        if self._size > MOST_UNSENT_BYTES:
            self.give_up()
            return
        self._broker.counters["broker.sent_bytes"] += len(data)
        self._broker.unsent.said(len(data))
        self._unsent += data
        self._size += len(data)
        self._saturated = self._saturated or self._size > UNSENT_BYTES
        self._filled.set()

    @property
    def unsent(self) -> int:
        """See UnsentLink."""
        return self._size

    def abort(self) -> None:
        """See ClientStream."""
        self._unsent.clear()
        self.close()
        self.cut()

    def close(self) -> None:
        """See ClientLink."""
        self._closing = True
        self._filled.set()

    def pause_reading(self) -> None:
        """See PausableLink."""
        self._readable.clear()

    def resume_reading(self) -> None:
        """See PausableLink."""
        self._readable.set()
