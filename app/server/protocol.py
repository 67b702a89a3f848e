"""uvicorn's HTTP protocol with bounds: uvicorn itself limits neither sizes nor times nor the number of connections.

Besides, an upgrade that we do not take is ignored (RFC 9110, 7.8), and a response takes one system call instead of two.
A WebSocket goes on as another object, with the same place in the limiter.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.api.problems import problem
from app.core.peers import peer_of
from app.server.application_choice import ApplicationChoice
from app.server.hosts import Hosts
from app.server.limiter import Admission, CloseReason, ConnectionLimiter
from app.server.place import LimiterPlace
from app.server.refusals import LINGER_SECONDS, MAX_MESSAGE, REFUSALS, SLICE, excess_of_head, written
from app.server.sockets import OpsListener
from app.server.transport import GatheringTransport
from app.server.upgrades import as_plain, handshake_of
from app.server.websocket import WebSocketConnection

_BETWEEN, _HEAD, _BODY = range(3)
"""The parts of a request that may be coming in."""


class _RefusedError(Exception):
    """Raised inside the parser, to make it stop."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limiter: ConnectionLimiter,
        hosts: Hosts,
        ops: OpsListener | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.peer = ""
        self._limiter: Final = limiter
        self._place: Final = LimiterPlace(limiter)
        self._choice: Final = ApplicationChoice(self.app, limiter, self._place, hosts, ops)
        self._part = _BETWEEN
        self._size = 0
        """Bytes of the part that is coming in."""
        self._backlog = b""
        """The bytes that came behind requests that are still to be served."""
        self._why: CloseReason | None = None
        """The reason why the connection ends, once the requests before have been answered."""
        self._deaf = False
        """True if nothing more is taken from the peer, as the connection is about to end."""

    # --- asyncio calls these ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn itself
        """Find out whether there is room."""
        super().connection_made(cast("asyncio.Transport", GatheringTransport(self, transport, self.loop)))
        if self.client:
            self.peer = peer_of(self.client[0])
        self._choice.face(self.client, self.server)
        standing = self._place.enter(self)
        if standing is Admission.REJECTED:
            self._say_last(CloseReason.TOO_MANY)
        else:
            self._place.stand_in(self._limiter.idle if standing is Admission.ADMITTED else self._limiter.head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place."""
        self._place.leave()
        self._deaf = True
        super().connection_lost(exc)
        self._forget_body()

    def data_received(self, data: bytes) -> None:
        """Parse it, and time what is not complete."""
        if self._deaf:
            self._overhear(len(data))
            return
        if len(data) > SLICE or self._backlog:
            self._backlog += data
            self._parse_backlog()
        else:
            self._parse(data)
            place = self._place
            if self._part == _BETWEEN and not self.pipeline and not place.held and self._is_serving():
                if place.line is not None:  # by far most requests come in one piece
                    place.line.since.pop(self, None)
                    place.line = None
                return
        self._stand_where_due(len(data))

    def pause_writing(self) -> None:
        """The peer does not read as fast as we write."""
        self._limiter.stalls(self)
        super().pause_writing()

    def resume_writing(self) -> None:
        """The peer has read."""
        self._limiter.reads(self)
        super().resume_writing()

    # --- the parser calls these ---

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._part = _HEAD
        self._size = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Trailers are dropped: nothing that we read may come after the body (RFC 9110, 6.5.1)."""
        if self._part == _HEAD:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Have the request served, or answered with the reason why not."""
        self._why = excess_of_head(0, self.url, self.headers)
        if self._why is not None:
            raise _RefusedError
        if self.parser.should_upgrade():
            return  # the parser stops behind this head, and says so
        by_name = dict(self.headers)
        version = self.parser.get_http_version()
        if b"transfer-encoding" in by_name and version == "1.0":
            raise _RefusedError  # whoever stands between us may have read it differently (RFC 9112, 6.1)
        if b"expect" in by_name:
            self.expect_100_continue = by_name[b"expect"].lower() == b"100-continue"
        self.app = self._choice.of(self.url, self.headers, by_name, version)
        super().on_headers_complete()
        self._part = _BODY
        self._size = 0
        if self._place.standing is Admission.PROBE:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Keep what somebody may read."""
        if self.cycle.response_complete:
            return
        self.cycle.body += body
        if len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def on_message_complete(self) -> None:
        """A request is complete."""
        if self._part != _BODY:
            return  # a head that asks for an upgrade
        self._part = _BETWEEN
        if not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def _forget_body(self) -> None:
        """Free a body that nobody has read, as the request was refused before: connections stay open for a while."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and (cycle.response_complete or cycle.disconnected):
            cycle.body = bytearray()

    # --- a response calls this ---

    def on_response_complete(self) -> None:
        """Go on with the next request."""
        self.server_state.total_requests += 1
        self._forget_body()
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        if self._why is not None:
            self._say_last(self._why)
            return
        if self._backlog:
            self._parse_backlog()
        if self.flow.read_paused and not self._backlog:
            self.flow.resume_reading()
        place = self._place
        if self._part == _BETWEEN and place.line is None and not place.held and place.standing is Admission.ADMITTED:
            place.line = self._limiter.idle
            place.line.since[self] = self._limiter.now()
        else:
            self._stand_where_due(0)

    # --- the limiter calls these ---

    def dismiss(self, why: CloseReason) -> None:
        """Close: with a word where a request is half there, and at once where somebody else needs the room."""
        if why is CloseReason.IDLE:
            self.transport.close()
        elif why in REFUSALS:
            self._place.line = None
            self._turn_down(why)
        else:
            self._place.leave()
            self.transport.abort()

    def unread(self) -> int:
        """Bytes that the peer has not taken."""
        return self.transport.get_write_buffer_size()

    def ping(self) -> None:
        """HTTP has nothing of the kind, so nobody asks."""

    # --- the transport calls these ---

    def must_linger(self) -> bool:
        """True if the peer may still send, so that closing at once would cost it our last words (RFC 9112, 9.6)."""
        return self._place.standing in (Admission.ADMITTED, Admission.PROBE) and (self._part != _BETWEEN or self._deaf)

    def linger(self) -> None:
        """Nothing more will be written. Take what comes, for a moment, and forget it."""
        self._place.stand_in(None)
        self._deaf = True
        self._size = 0
        self.flow.resume_reading()
        self.loop.call_later(LINGER_SECONDS, self._end)

    def watch_flushing(self) -> None:
        """The transport closes as soon as the peer has read everything, for which it has as long as always."""
        if self.unread():
            self._limiter.stalls(self)

    def _end(self) -> None:
        if self.unread():
            self._limiter.stalls(self)
        else:
            self.transport.abort()

    # --- parsing ---

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            rest = data[stopped.args[0] :]
            if rest or not self._pass_on():
                self._ignore_upgrade(rest)
        except httptools.HttpParserError:
            self._refuse(self._why or CloseReason.UNREADABLE)
        else:
            if self._part != _BETWEEN:
                self._check_size(len(data))

    def _parse_backlog(self) -> None:
        """In slices, and only as far as there is a request to be served next: the rest waits as it is."""
        data, at = self._backlog, 0
        self._backlog = b""
        while at < len(data) and not self.pipeline and not self._deaf:
            self._parse(data[at : at + SLICE])
            at += SLICE
        if at < len(data) and not self._deaf:
            self._backlog = data[at:]
            self.flow.pause_reading()

    def _check_size(self, size: int) -> None:
        """Refuse an incomplete message that is too large."""
        self._size += size
        if self._part != _BODY:
            why = excess_of_head(self._size, self.url, self.headers)
        else:
            why = CloseReason.BODY_TOO_LARGE if self._size > MAX_MESSAGE else None
        if why is not None:
            self._refuse(why)

    def _pass_on(self) -> bool:
        """Let a WebSocket go on as one, where that is what was asked for, rightly, and where there is one to be had."""
        version = self.parser.get_http_version()
        handshake = handshake_of(self.parser.get_method(), self.url, version, self.headers)
        idle = not (self._is_serving() or self.pipeline) and self._place.standing is Admission.ADMITTED
        if handshake is None or not idle or self._choice.application is not self.config.loaded_app:
            return False
        if self._choice.is_refused(self.url, self.headers, version):
            return False
        self._deaf, self._part = True, _BETWEEN
        self.connections.discard(self)
        websocket = WebSocketConnection(self, self._choice.application, handshake, self._place, self._limiter)
        cast("GatheringTransport", self.transport).pass_on(websocket)
        self.transport.set_protocol(websocket)
        websocket.begin()
        return True

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Read the request once more, without its wish to speak something else.

        The parser takes whatever follows such a head for the other protocol, and leaves out the body.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(CloseReason.UNREADABLE)
            return
        head = as_plain(method, self.url, self.parser.get_http_version(), self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._part = _BETWEEN
        self._parse(head + rest)

    # --- refusing ---

    def _refuse(self, why: CloseReason) -> None:
        self._limiter.note(why, self.peer)
        self._turn_down(why)

    def _turn_down(self, why: CloseReason) -> None:
        """Take nothing more, answer what came before, and then say why."""
        self._deaf, self._why, self._backlog = True, why, b""
        earlier = bool(self.pipeline)
        if self._part == _BODY:
            self._give_up_request()
        elif self._is_serving():
            earlier = True
        self._place.stand_in(None)
        if earlier:
            self.flow.pause_reading()
        elif self._part == _BODY and self.cycle.response_started:
            self.transport.close()
        else:
            self._say_last(why)

    def _give_up_request(self) -> None:
        """The request whose body is broken: nobody has to answer it any more, but for us."""
        if self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()
        self.cycle.disconnected = True
        self.cycle.message_event.set()

    def _say_last(self, why: CloseReason) -> None:
        self._deaf = True
        self.transport.write(written(problem(*REFUSALS[why]), self.server_state.default_headers))
        self.transport.close()

    def _overhear(self, size: int) -> None:
        self._size += size
        if self._size > MAX_MESSAGE:
            self.transport.abort()

    # --- waiting ---

    def _stand_where_due(self, size: int) -> None:
        """In the line for what the peer owes us, if it does. `size` is what it has just sent."""
        self._hold(size)
        if self._deaf:
            return
        limiter = self._limiter
        if self._part == _BODY:
            line = None if self.flow.read_paused else limiter.body
        elif self._is_serving():
            line = None
        elif self._part == _HEAD or self._place.standing is Admission.PROBE:
            line = limiter.head
        else:
            line = limiter.idle
        if line is not self._place.line:
            self._place.stand_in(line)

    def _is_serving(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _hold(self, size: int) -> None:
        """Account for what is kept of requests that nobody can be given yet."""
        if self._part != _BETWEEN or self.pipeline or self._backlog:
            if not self._place.hold(size):
                self._refuse(CloseReason.TOO_MUCH_HELD)
        elif self._place.held:
            self._place.release()
