"""uvicorn's HTTP protocol, with one system call per response instead of two."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn writes the head and the body of a response one by one; docs/performance.md says what that costs."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn itself
        """Put the joining in between."""
        super().connection_made(cast("asyncio.Transport", _JoiningTransport(transport, self.loop)))


class _JoiningTransport:
    """A transport that sends at the end of the loop's iteration what was written during it."""

    __slots__ = ("_loop", "_transport", "_written")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport: Final = transport
        self._loop: Final = loop
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._written:
            self._transport.write(b"".join(self._written))
            self._written.clear()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a transport has
        return getattr(self._transport, name)
