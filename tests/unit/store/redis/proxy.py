"""A TCP proxy in front of Redis that loses replies, goes silent or slows down, as networks do."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from tests.tcp import listening


class Proxy:
    """Start it as an async context manager on the loop of the test."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = listening(self._serve)
        self._port = 0
        self._open = asyncio.Event()
        self._open.set()
        self.requests = 0
        """The number of pieces that came from clients: about one for each pipeline."""
        self.cut_replies = 0
        """The number of replies to lose, each with its connection; the request was carried out."""
        self.silent = False
        """Nothing comes back, and nothing tells why."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    def shut(self) -> None:
        """New connections get no answer until `reopen`."""
        self._open.clear()

    def reopen(self) -> None:
        self._open.set()

    async def __aenter__(self) -> Self:
        self._port = await self._listening.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._listening.__aexit__(kind, error, trace)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        there = await asyncio.open_connection("127.0.0.1", self._target)
        up = asyncio.create_task(self._pump(reader, there[1], replies=False))
        down = asyncio.create_task(self._pump(there[0], writer, replies=True))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            down.cancel()
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
