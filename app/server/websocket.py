"""A WebSocket of the API: a connection after its upgrade, within the bounds that hold before it, too.

It has the same place in the limiter. A message is complete in the time and size that a body may take, a peer reads as
fast as that of a response has to, and one that is silent is sent a ping, and has to say something.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message
from starlette.websockets import WebSocketDisconnect
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api import problems
from app.api.problems import problem
from app.api.websockets import WebSocketClose
from app.server.frames import PeerClose, PeerPing, WebSocketFrames
from app.server.limiter import CloseReason, ConnectionLimiter
from app.server.place import LimiterPlace
from app.server.refusals import LINGER_SECONDS, MAX_MESSAGE, SLICE, written
from app.server.upgrades import Handshake

MOST_UNSENT: Final = 16 * 1024
"""Bytes that may be written in one iteration of the loop, give or take a message."""

_OPENING, _OPEN, _CLOSING, _CLOSED = range(4)
_STOPS: Final = "the node stops; go on with another one"
_SLOW: Final = "the rest of a message did not arrive in time"
_FULL: Final = "too many messages are half sent; try again"
_log = structlog.get_logger(__name__)


class _PeerLeftError(OSError):
    """Raised to an application that writes to nobody: ASGI has it be an OSError."""


class WebSocketConnection(asyncio.Protocol):
    """One connection, from its upgrade on: what asyncio, the limiter, uvicorn and the application call.

    It takes over from `before`. The application accepts, or answers with a response instead.
    """

    def __init__(
        self,
        before: HttpToolsProtocol,
        application: ASGIApp,
        handshake: Handshake,
        place: LimiterPlace,
        limiter: ConnectionLimiter,
    ) -> None:
        self.peer = place.peer
        self._application: Final = application
        self._server: Final = before.server_state
        self._transport: Final = before.transport
        self._handshake: Final = handshake
        self._scope: Final = _scope_of(dict(before.scope), handshake, self._abort)
        self._place: Final = place
        self._limiter: Final = limiter
        self._frames: Final = WebSocketFrames(MAX_MESSAGE)
        self._state = _OPENING
        self._inbox: deque[Message] = deque([{"type": "websocket.connect"}])
        self._filled = asyncio.Event()
        self._filled.set()
        self._writable = asyncio.Event()
        self._writable.set()
        self._backlog = b""
        self._is_paused = False
        self._overheard = 0
        self._unsent = 0
        self._refusal: Message | None = None

    def begin(self) -> None:
        """Let the application decide. Nothing is read until it has."""
        self._place.pass_on(self)
        self._server.connections.add(self)  # type: ignore[arg-type]  # uvicorn calls nothing but `shutdown`
        self._pause(paused=True)
        task = asyncio.get_running_loop().create_task(self._serve(), name="websocket")
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    # --- asyncio calls these ---

    def data_received(self, data: bytes) -> None:
        """Read messages, and time what is not complete."""
        if self._state == _CLOSING:
            self._overhear(data)
            return
        self._backlog += data
        self._read()

    def pause_writing(self) -> None:
        """The peer does not read as fast as we write: nor do we read then."""
        self._limiter.stalls(self)
        self._writable.clear()
        self._stand_where_due()

    def resume_writing(self) -> None:
        """The peer has read."""
        self._limiter.reads(self)
        self._writable.set()
        self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place, and let the application know."""
        del exc
        self._disconnect(1006, "")
        self._state = _CLOSED
        self._backlog = b""
        self._place.leave()
        self._server.connections.discard(self)
        self._writable.set()

    # --- the limiter calls these ---

    def dismiss(self, why: CloseReason) -> None:
        """Close: with a word to a peer that is slow to send, and at once where it does not read or is not there."""
        self._place.stand_in(None)
        if why is CloseReason.SLOW_BODY:
            self._close(WebSocketClose.POLICY, _SLOW)
        else:
            self._abort()

    def unread(self) -> int:
        """Bytes that the peer has not taken."""
        return self._transport.get_write_buffer_size()

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._transport.write(self._frames.ping())
        self._place.stand_in(self._limiter.pinged)

    # --- the transport calls these ---

    def must_linger(self) -> bool:
        """False: a peer that is closed was listened to for a moment already."""
        return False

    def linger(self) -> None:
        """Nobody asks for it."""

    def watch_flushing(self) -> None:
        """The transport closes as soon as the peer has read everything, for which it has as long as always."""
        if self.unread():
            self._limiter.stalls(self)

    # --- uvicorn calls this ---

    def shutdown(self) -> None:
        """Close, as the node stops."""
        if self._state == _OPENING:
            self._answer(problem(problems.NOT_READY, _STOPS))
        else:
            self._close(WebSocketClose.AWAY, _STOPS)

    # --- the application calls these (ASGI) ---

    async def receive(self) -> Message:
        """Return the next message; what comes behind it is read once somebody asks for it."""
        while not self._inbox:
            self._filled.clear()
            self._read()
            await self._filled.wait()
        if len(self._inbox) == 1 and self._inbox[0]["type"] == "websocket.disconnect":
            return self._inbox[0]  # as often as anybody asks
        return self._inbox.popleft()

    async def send(self, message: Message) -> None:
        """Write; returns once the peer has read most of what came before."""
        kind = message["type"]
        if self._state == _OPENING:
            self._decide(kind, message)
            return
        await self._writable.wait()
        if self._state != _OPEN:
            raise _PeerLeftError
        if kind == "websocket.close":
            self._close(message.get("code", WebSocketClose.NORMAL), message.get("reason") or "")
        else:
            text, data = message.get("text"), message.get("bytes")
            frame = self._frames.message(data or b"" if text is None else text)
            self._transport.write(frame)
            self._unsent += len(frame)
            if self._unsent > MOST_UNSENT:
                self._unsent = 0
                await asyncio.sleep(0)  # the transport sends at the end of this iteration, and may have us wait then

    def _decide(self, kind: str, message: Message) -> None:
        if kind == "websocket.accept":
            self._accept(message.get("subprotocol"))
        elif kind == "websocket.http.response.start":
            self._refusal = message
        elif kind == "websocket.http.response.body" and self._refusal is not None:
            response = Response(message["body"], self._refusal["status"])
            response.raw_headers = list(self._refusal["headers"])
            self._answer(response)
        else:
            self._answer(problem(problems.INTERNAL, "the request could not be served"))

    async def _serve(self) -> None:
        try:
            await self._application(self._scope, self.receive, self.send)
        except (_PeerLeftError, WebSocketDisconnect):
            pass
        except Exception:  # noqa: BLE001 - whatever the application raises must not end the node
            _log.exception("websocket_failed", path=self._handshake.path)
            self._close(WebSocketClose.FAILED, "the node has failed unexpectedly; its log says why")
        if self._state == _OPENING:
            self._answer(problem(problems.INTERNAL, "the request could not be served; the node's log says why"))
        self._close(WebSocketClose.NORMAL, "")

    # --- opening and closing ---

    def _accept(self, subprotocol: str | None) -> None:
        headers = [(b"upgrade", b"websocket"), (b"connection", b"Upgrade")]
        headers.append((b"sec-websocket-accept", self._handshake.accept))
        if subprotocol is not None:
            headers.append((b"sec-websocket-protocol", subprotocol.encode()))
        response = Response(status_code=HTTPStatus.SWITCHING_PROTOCOLS)
        response.raw_headers = headers
        self._transport.write(written(response, self._server.default_headers))
        self._state = _OPEN
        self._limiter.counters["websocket.opened"] += 1
        self._read()

    def _abort(self) -> None:
        """End at once. The application calls it, too: ASGI only has a close that waits until the peer reads."""
        self._place.leave()
        self._transport.abort()

    def _answer(self, response: Response) -> None:
        """Say in plain HTTP that there is no WebSocket here, and close."""
        response.raw_headers.append((b"connection", b"close"))
        self._state = _CLOSED
        self._disconnect(1006, "")
        self._transport.write(written(response, self._server.default_headers))
        self._transport.close()

    def _close(self, code: int, reason: str) -> None:
        """Close from this side, and listen for the answer of the peer for a moment."""
        if self._state == _OPEN:
            self._end(code, reason, self._frames.close(code, reason))

    def _end(self, code: int, reason: str, frame: bytes) -> None:
        self._state = _CLOSING
        self._backlog = b""
        self._place.release()
        self._place.stand_in(None)
        self._disconnect(code, reason)
        self._transport.write(frame)
        self._pause(paused=False)
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.close)

    def _overhear(self, data: bytes) -> None:
        """Wait for the answer to our close; whatever else comes is forgotten."""
        self._overheard += len(data)
        if self._overheard > MAX_MESSAGE:
            self._transport.abort()
        elif any(isinstance(one, PeerClose) for one in self._frames.feed(data)):
            self._transport.close()

    def _disconnect(self, code: int, reason: str) -> None:
        """Let the application know, once. What it has not read of before, it need not read any more."""
        if not self._inbox or self._inbox[-1]["type"] != "websocket.disconnect":
            self._inbox.append({"type": "websocket.disconnect", "code": code, "reason": reason})
            self._filled.set()

    # --- reading ---

    def _read(self) -> None:
        """Read in slices, and only as far as the application keeps up, and the peer with it."""
        at = 0
        while self._state == _OPEN and at < len(self._backlog) and self._may_read():
            part = self._backlog[at : at + SLICE]
            at += len(part)
            for found in self._frames.feed(part):
                self._take(found)
            if self._frames.is_within_message and not self._place.hold(len(part)):
                self._limiter.note(CloseReason.TOO_MUCH_HELD, self.peer)
                self._close(WebSocketClose.TRY_LATER, _FULL)
            elif not self._frames.is_within_message and self._place.held:
                self._place.release()
        self._backlog = self._backlog[at:]
        self._stand_where_due()

    def _take(self, found: str | bytes | PeerPing | PeerClose) -> None:
        if isinstance(found, PeerPing):
            self._transport.write(found.pong)
        elif not isinstance(found, PeerClose):
            self._inbox.append({"type": "websocket.receive", "text" if isinstance(found, str) else "bytes": found})
            self._filled.set()
        elif self._state == _OPEN:
            if found.fault:
                large = found.code == WebSocketClose.TOO_LARGE
                self._limiter.note(CloseReason.BODY_TOO_LARGE if large else CloseReason.UNREADABLE, self.peer)
            self._end(found.code, found.reason, found.reply)
            if not found.fault:
                self._transport.close()

    def _may_read(self) -> bool:
        return not self._inbox and self._writable.is_set()

    def _stand_where_due(self) -> None:
        """Stand in the line for what the peer owes us, if it does: it owes nothing while we do not listen."""
        if self._state != _OPEN:
            return
        paused = bool(self._backlog) or not self._may_read()
        self._pause(paused=paused)
        if paused:
            self._place.stand_in(None)
        elif not self._frames.is_within_message:
            self._place.stand_in(self._limiter.silent)
        elif self._place.line is not self._limiter.body:
            self._place.stand_in(self._limiter.body)

    def _pause(self, *, paused: bool) -> None:
        if paused != self._is_paused and not self._transport.is_closing():
            self._is_paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()


def _scope_of(request: dict[str, Any], handshake: Handshake, abort: Callable[[], None]) -> dict[str, Any]:
    root = request["root_path"]
    return {
        **request,
        "type": "websocket",
        "asgi": {**request["asgi"], "spec_version": "2.4"},
        "scheme": "wss" if request["scheme"] == "https" else "ws",
        "path": f"{root}{handshake.path}",
        "raw_path": f"{root}{handshake.path}".encode(),
        "query_string": handshake.query,
        "subprotocols": list(handshake.subprotocols),
        "extensions": {"websocket.http.response": {}, "homing.abort": {"abort": abort}},
    }
