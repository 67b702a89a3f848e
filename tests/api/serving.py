"""A node behind a listening socket, served as `homing serve` does it, and raw connections to it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from app.server.hosts import Hosts
from app.server.limiter import ConnectionLimiter, Limits
from app.server.run import http_config
from tests.api.rig import COMMANDS, Rig, until
from tests.waiting import PATIENCE

HEAD = f"POST {COMMANDS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds


class Served:
    """A node's port, and its limiter of connections with a clock that stands still unless told otherwise."""

    def __init__(self, rig: Rig, limits: Limits) -> None:
        self.rig = rig
        self.clock = Clock()
        self.limiter = ConnectionLimiter(limits, self.clock, rig.counters)
        self.port = 0
        self.server: uvicorn.Server

    def after(self, seconds: float) -> None:
        """Let so much time pass."""
        self.clock.seconds += seconds
        self.limiter.tick()

    def closed(self, why: str) -> int:
        """The number of connections that were closed for that reason."""
        return self.rig.counters[f"http.closed.{why}"]

    def count(self) -> int:
        """The number of connections."""
        return self.limiter.fill().size


@asynccontextmanager
async def serving(
    rig: Rig, limits: Limits | None = None, hosts: Hosts | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Served]:
    """Serve the rig's node on a free port."""
    served = Served(rig, limits or Limits())
    config = http_config(rig.application, served.limiter, hosts or Hosts((), loopback=True))
    config.lifespan = "off"  # the rig has started the node
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        server = served.server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve([listener]))  # without its signal handlers
        await until(lambda: server.started)
        served.port = listener.getsockname()[1]
        try:
            yield served
        finally:
            server.should_exit = True
            await task


@asynccontextmanager
async def connection(
    port: int, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield reader, writer
    finally:
        writer.close()


def request(body: str) -> bytes:
    """A command."""
    return f"{HEAD}Content-Length: {len(body)}\r\n\r\n{body}".encode()


async def all_of(reader: asyncio.StreamReader) -> bytes:
    """Everything up to the end, also where the peer resets the connection behind it."""
    parts = []
    async with asyncio.timeout(PATIENCE):
        try:
            while part := await reader.read(65536):
                parts.append(part)
        except ConnectionError:
            pass
    return b"".join(parts)


async def answer_to(port: int, *pieces: bytes) -> bytes:
    """All that comes back for these pieces, each sent on its own; the last says that the connection should end."""
    async with connection(port) as (reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)  # so that it travels on its own; nothing depends on that
        return await all_of(reader)


@contextmanager
def raw_socket(port: int, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    """A connection that does nothing by itself."""
    with socket.socket() as one:
        if receive_buffer is not None:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        one.connect(("127.0.0.1", port))
        one.setblocking(False)
        yield one
