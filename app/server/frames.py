"""The messages of a WebSocket in what a peer sends, within bounds. Does no input or output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from app.api.websockets import WebSocketClose

MAX_REASON: Final = 120
"""Bytes of the sentence in a close frame; RFC 6455, 5.5, allows 123."""


class PeerPing(NamedTuple):
    """The peer wants to know whether anybody is there; `pong` is the answer as it goes over the wire."""

    pong: bytes


class PeerClose(NamedTuple):
    """The peer closes, or has to be closed; `reply` is the answer as it goes over the wire, where one is due."""

    code: int
    reason: str
    reply: bytes
    fault: bool
    """True if what it sent is against the protocol or a bound."""


class WebSocketFrames:
    """Reads messages of at most `most` bytes, and writes frames. Nothing is compressed, as no extension is spoken."""

    def __init__(self, most: int) -> None:
        self._frames = Connection(ConnectionType.SERVER)
        self._most: Final = most
        self._parts: list[str | bytes] = []
        self._size = 0
        self._is_broken = False

    @property
    def is_within_message(self) -> bool:
        """True if a part of a message is here, and not yet the whole of it."""
        return self._size > 0

    @property
    def is_open(self) -> bool:
        """True until either side has closed."""
        return self._frames.state is ConnectionState.OPEN

    def feed(self, data: bytes) -> Iterator[str | bytes | PeerPing | PeerClose]:
        """Read what came in; nothing is read behind a close."""
        if self._is_broken or self._frames.state not in (ConnectionState.OPEN, ConnectionState.LOCAL_CLOSING):
            return
        self._frames.receive_data(data)
        for event in self._frames.events():
            found: str | bytes | PeerPing | PeerClose | None = None
            if isinstance(event, TextMessage | BytesMessage):
                found = self._extended(event)
            elif isinstance(event, Ping) and self.is_open:
                found = PeerPing(self._frames.send(event.response()))
            elif isinstance(event, CloseConnection):
                found = self._closed(event)
            if found is not None:
                yield found
            if isinstance(found, PeerClose):
                return

    def message(self, data: str | bytes) -> bytes:
        """Write a message."""
        whole = TextMessage(data) if isinstance(data, str) else BytesMessage(data)
        return self._frames.send(whole)

    def ping(self) -> bytes:
        """Write a ping."""
        return self._frames.send(Ping())

    def close(self, code: int, reason: str) -> bytes:
        """Write a close frame, or nothing if there was one already."""
        if not self.is_open:
            return b""
        self._forget()
        return self._frames.send(CloseConnection(code, reason.encode()[:MAX_REASON].decode(errors="ignore")))

    def _extended(self, part: TextMessage | BytesMessage) -> str | bytes | PeerClose | None:
        data: str | bytes = part.data if isinstance(part.data, str) else bytes(part.data)
        if data:
            self._parts.append(data)
            self._size += len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode())
        if self._size > self._most:
            return self._fault(WebSocketClose.TOO_LARGE, f"a message is too large; allowed: {self._most} bytes")
        if not part.message_finished:
            return None
        whole = _joined(self._parts, data)
        self._forget()
        return whole

    def _closed(self, event: CloseConnection) -> PeerClose:
        if self._frames.state is ConnectionState.OPEN:
            return self._fault(event.code, event.reason or "")  # the parser has given up
        due = self._frames.state is ConnectionState.REMOTE_CLOSING
        reply = self._frames.send(event.response()) if due else b""
        self._forget()
        return PeerClose(event.code, event.reason or "", reply, fault=False)

    def _fault(self, code: int, reason: str) -> PeerClose:
        self._is_broken = True
        return PeerClose(code, reason, self.close(code, reason), fault=True)

    def _forget(self) -> None:
        self._parts.clear()
        self._size = 0


def _joined(parts: Sequence[str | bytes], last: str | bytes) -> str | bytes:
    """The parts of a message, which are all of the kind of the last one."""
    if isinstance(last, str):
        return "".join(one for one in parts if isinstance(one, str))
    return b"".join(one for one in parts if isinstance(one, bytes))
