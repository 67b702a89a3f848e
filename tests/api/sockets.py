"""A client of WebSockets for tests: raw frames by wsproto, so that a test can say what no library would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from tests.api.serving import connection
from tests.waiting import PATIENCE

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
OPENING: Mapping[str, str] = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
}


def opening(headers: Mapping[str, str] | None = None, target: str = "/v1/connect") -> bytes:
    """The request that opens a WebSocket; a header that is empty is left out."""
    lines = [f"{name}: {value}" for name, value in {**OPENING, **(headers or {})}.items() if value]
    return "\r\n".join((f"GET {target} HTTP/1.1", *lines, "", "")).encode()


class Socket:
    """An open WebSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = Connection(ConnectionType.CLIENT)
        self._found: list[Event] = []

    def send(self, event: Event) -> None:
        """Send one frame."""
        self.writer.write(self.frames.send(event))

    def say(self, **members: Any) -> None:
        """Send a JSON object."""
        self.send(TextMessage(json.dumps(members)))

    async def next(self) -> Event:
        """The next event, whatever it is; the end without a close is an EOFError."""
        async with asyncio.timeout(PATIENCE):
            while not self._found:
                data = await self.reader.read(65536)
                if not data:
                    raise EOFError
                self.frames.receive_data(data)
                self._found += self.frames.events()
        return self._found.pop(0)

    async def heard(self) -> dict[str, Any]:
        """The next message, read as JSON; pings are answered."""
        text = ""
        while True:
            event = await self.next()
            if isinstance(event, Ping):
                self.send(event.response())
                continue
            assert isinstance(event, TextMessage), event
            text += event.data
            if event.message_finished:
                told: dict[str, Any] = json.loads(text)
                return told

    async def closed(self) -> tuple[int, str]:
        """The code and the reason with which the node closes; what it says before is left out."""
        while True:
            event = await self.next()
            if isinstance(event, CloseConnection):
                return event.code, event.reason or ""


@asynccontextmanager
async def socket(
    port: int, headers: Mapping[str, str] | None = None, target: str = "/v1/connect"
) -> AsyncIterator[Socket]:
    """Open a WebSocket."""
    async with connection(port) as (reader, writer):
        writer.write(opening(headers, target))
        async with asyncio.timeout(PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head + await reader.read(65536)
        yield Socket(reader, writer)


__all__ = ["BytesMessage", "CloseConnection", "Ping", "Pong", "Socket", "TextMessage", "opening", "socket"]
