"""A transport that writes less often, and closes so that the peer gets to read our last words."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol


class Lingering(Protocol):
    """The port of a protocol that the transport asks when it is closed."""

    def must_linger(self) -> bool:
        """True if the peer may still send, so that closing at once would cost it our last words (RFC 9112, 9.6)."""

    def linger(self) -> None:
        """Nothing more will be written. Take what comes, for a moment, and forget it."""

    def watch_flushing(self) -> None:
        """The transport closes as soon as the peer has read everything."""


class GatheringTransport:
    """A transport that sends at the end of the loop's iteration what was written during it.

    uvicorn writes the head and the body of a response one by one; docs/performance.md says what that costs.
    """

    __slots__ = ("_ending", "_loop", "_protocol", "_transport", "_written")

    def __init__(self, protocol: Lingering, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._protocol = protocol
        self._transport: Final = transport
        self._loop: Final = loop
        self._written: list[bytes] = []
        self._ending = False

    def write(self, data: bytes) -> None:
        """Send, at the end of the loop's iteration."""
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(data)

    def pass_on(self, protocol: Lingering) -> None:
        """Ask another protocol from now on when it is closed."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """True if nothing more can be written."""
        return self._ending or self._transport.is_closing()

    def close(self) -> None:
        """Send what was written, and close; a peer that may still send is listened to for a moment."""
        self._flush()
        if self._transport.is_closing():
            return
        if self._ending or not self._protocol.must_linger() or not self._transport.can_write_eof():
            self._transport.close()
            self._protocol.watch_flushing()
        else:
            self._transport.write_eof()
            self._protocol.linger()
        self._ending = True

    def _flush(self) -> None:
        if self._written:
            if not self.is_closing():  # the peer, or the limiter, may have ended it since
                self._transport.write(b"".join(self._written))
            self._written.clear()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a transport has
        return getattr(self._transport, name)
