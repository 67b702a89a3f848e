"""The handshakes of TLS: whoever is through with one is a client like others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import structlog

from app.broker.certificate import ServerCertificate
from app.core.broker.broker import Broker

MOST_HANDSHAKES: Final = 512
"""Handshakes that are under way; who comes next waits in the backlog of the system."""
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
    ) -> None:
        self._broker = broker
        self._listener = listener
        self._certificate = certificate
        self._serve = serve
        self._room = asyncio.Semaphore(MOST_HANDSHAKES)
        self._handshakes: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept until cancelled, which ends the handshakes, too."""
        self._listener.setblocking(False)
        try:
            while True:
                await self._room.acquire()
                self._begin(await self._accepted())
        finally:
            for one in self._handshakes:
                one.cancel()

    async def _accepted(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return (await loop.sock_accept(self._listener))[0]
            except ConnectionError:  # it has gone meanwhile
                continue
            except OSError as error:  # no file is left for it
                structlog.get_logger().error("broker_cannot_accept", reason=str(error))
            await asyncio.sleep(AGAIN_SECONDS)

    def _begin(self, connection: socket.socket) -> None:
        broker = self._broker
        if broker.taken >= broker.bounds.connections:
            broker.counters["broker.refused.server_busy"] += 1
            connection.close()
            self._room.release()
            return
        broker.arriving += 1
        task = asyncio.create_task(self._shake_hands(connection), name="broker handshake")
        self._handshakes.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
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
