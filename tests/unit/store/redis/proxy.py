"""A TCP proxy in front of Redis that loses replies, goes silent or slows down, as networks do."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Proxy:
    """Start it as an async context manager on the loop of the test."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self.requests = 0
        """How many pieces came from clients: about one for each pipeline."""
        self.cut_replies = 0
        """So many replies are lost, each with its connection; the request was carried out."""
        self.silent = False
        """Nothing comes back, and nothing tells why."""

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    def shut(self) -> None:
        """New connections get no answer until `reopen`."""
        self._open.clear()

    def reopen(self) -> None:
        self._open.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.reopen()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        there = await asyncio.open_connection("127.0.0.1", self._target)
        up = asyncio.create_task(self._pump(reader, there[1], replies=False))
        down = asyncio.create_task(self._pump(there[0], writer, replies=True))
        self._pumps |= {up, down}
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in (writer, there[1]):
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool) -> None:
        try:
            while data := await reader.read(1 << 16):
                self.requests += not replies
                if replies and self.cut_replies:
                    self.cut_replies -= 1
                    return
                if not (replies and self.silent):
                    writer.write(data)
                    await writer.drain()
        except OSError:
            return
