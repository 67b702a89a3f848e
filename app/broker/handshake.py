"""The handshakes of TLS: whoever is through with one is a client like others."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from app.broker.certificate import ServerCertificate
from app.core.broker.broker import Broker

MOST_HANDSHAKES: Final = 512
"""Handshakes that are under way; who comes next waits in the backlog of the system."""
MOST_OF_PEER: Final = 128
"""The handshakes of one address among these: one that stalls them all would keep everybody else from the door."""
AGAIN_SECONDS: Final = 1.0


class TlsDoorway:
    """Accepts connections on a socket, and gives each one that speaks TLS to a protocol that `serve` makes.

    Connections count among those of the broker from the start. Those that are too many, too slow or no TLS are closed.
    """

    def __init__(
        self,
        broker: Broker,
        listener: socket.socket,
        certificate: ServerCertificate,
        serve: Callable[[], asyncio.Protocol],
        name_peer: Callable[[str], str],
    ) -> None:
        self._broker = broker
        self._listener = listener
        self._certificate = certificate
        self._serve = serve
        self._name_peer = name_peer
        self._room = asyncio.Semaphore(MOST_HANDSHAKES)
        self._handshakes: dict[asyncio.Task[None], str] = {}
        self._by_peer: Counter[str] = Counter()

    async def run(self) -> None:
        """Accept until cancelled, which ends the handshakes, too."""
        self._listener.setblocking(False)
        try:
            while True:
                await self._room.acquire()
                self._begin(*await self._accepted())
        finally:
            for one in self._handshakes:
                one.cancel()

    async def _accepted(self) -> tuple[socket.socket, str]:
        """Return the connection, and the peer that it counts for."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listener)
                return connection, self._name_peer(address[0])
            except ConnectionError:  # it has gone meanwhile
                continue
            except OSError as error:  # no file is left for it
                structlog.get_logger().error("broker_cannot_accept", reason=str(error))
            await asyncio.sleep(AGAIN_SECONDS)

    def _begin(self, connection: socket.socket, peer: str) -> None:
        broker = self._broker
        is_busy = broker.taken >= broker.bounds.connections
        if is_busy or (peer and self._by_peer[peer] >= MOST_OF_PEER):
            broker.counters[f"broker.refused.{'server_busy' if is_busy else 'too_many_of_peer'}"] += 1
            connection.close()
            self._room.release()
            return
        broker.arriving += 1
        self._by_peer[peer] += 1
        task = asyncio.create_task(self._shake_hands(connection), name="broker handshake")
        self._handshakes[task] = peer
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        peer = self._handshakes.pop(task)
        self._by_peer[peer] -= 1
        if not self._by_peer[peer]:
            del self._by_peer[peer]
        self._broker.arriving -= 1
        self._room.release()

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._serve,
                connection,
                ssl=self._certificate.context,
                ssl_handshake_timeout=self._broker.bounds.connect_seconds,
            )
        except OSError:
            self._broker.counters["broker.refused.tls_handshake"] += 1
