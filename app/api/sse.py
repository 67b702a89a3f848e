"""Server-sent events (WHATWG HTML, 9.2): how they are written, and the streams that are open on this node.

A stream is a response that is written by one task, its own, for as long as its caller reads: what is not read yet waits
in the transport, and the task with it, so whoever feeds a stream bounds what waits for its turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from random import SystemRandom
from typing import Final, NoReturn

from fastapi.sse import format_sse_event
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.http import NO_STORE, current_task
from app.api.media_types import accepts
from app.api.parking import Ending, ParkedCaller, ParkedCallers
from app.api.problems import of_error
from app.core.errors import CapacityError, HomingError
from app.runtime.telemetry import Counters, Fill

MEDIA_TYPE: Final = b"text/event-stream"
KEEP_ALIVE_SECONDS: Final = 15.0
"""After so long without an event something is written nevertheless, or proxies would close the connection."""
RETRY_MS: Final = 1000
"""The time after which clients connect again whose connection broke, in milliseconds."""
AWAY_MS: Final = (500, 3500)
"""The shortest and the longest time after which callers come back that a node sends away: not all at once."""
LAST_WORD_SECONDS: Final = 1.0
"""The time that a caller may take to read the end of a stream that this node ends."""
HEADERS: Final = (
    (b"content-type", MEDIA_TYPE + b"; charset=utf-8"),
    NO_STORE,
    (b"x-accel-buffering", b"no"),
)
"""The last one keeps nginx from holding events back."""
PING: Final = b": still here\n\n"

_RANDOM: Final = SystemRandom()


def event(name: str, data: bytes, identity: str | None = None) -> bytes:
    """An event; `data` is a JSON text."""
    return format_sse_event(event=name, data_str=data.decode(), id=identity)


def retry(milliseconds: int) -> bytes:
    """The field that tells a client when to connect again."""
    return format_sse_event(retry=milliseconds)


def wants_events(accept: bytes | None) -> bool:
    """True if an `Accept` header names this media type."""
    return accepts(accept, MEDIA_TYPE)


class SseStream:
    """An open stream, for who feeds it."""

    def __init__(self, send: Send, place: ParkedCaller, keep_alive: float) -> None:
        self._send = send
        self._place = place
        self._keep_alive = keep_alive
        self._now = asyncio.get_running_loop().time
        self._written = self._now()

    async def write(self, data: bytes) -> None:
        """Write whole events. Returns once the peer has read most of what came before."""
        self._written = self._now()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def cut_off(self) -> None:
        """End it at once: its caller does not read, and there is no room for what they leave."""
        self._place.interrupt(Ending.TOO_SLOW)

    async def keep(self, bookmark: bytes) -> None:
        """Write a bookmark if nothing was written for long; raises what the caller's rights raise, as `rest` does."""
        if self._now() >= self._written + self._keep_alive:
            self._place.may()
            await self.write(bookmark)

    async def rest(self, changed: asyncio.Event, bookmark: Callable[[], bytes] = lambda: PING) -> None:
        """Return when there may be something new. A bookmark is written when nothing was for long.

        What is new and is not for this caller makes no difference to when it is written. Raises what the caller's
        rights raise, once these are gone.
        """
        while not changed.is_set():  # most often it is, where there are many readers, and then a timer would be waste
            try:
                async with asyncio.timeout_at(self._written + self._keep_alive):
                    await changed.wait()
            except TimeoutError:
                self._place.may()
                await self.write(bookmark())
        changed.clear()


Feed = Callable[[SseStream], Awaitable[None]]
"""Writes a stream to its end."""


class SseStreams:
    """Streams of this node; at most `most`, and `most_per_principal` of each."""

    def __init__(
        self, counters: Counters, *, most: int, most_per_principal: int, keep_alive: float = KEEP_ALIVE_SECONDS
    ) -> None:
        self.keep_alive = keep_alive
        self._counters = counters
        self._most = most
        self._most_per_principal = most_per_principal
        self._principals: Counts[str] = Counts()
        self._places = ParkedCallers()
        self._count = 0
        self.dismiss = self._places.dismiss
        self.recheck = self._places.recheck

    def __len__(self) -> int:
        return self._count

    def fill(self) -> Fill:
        """The number of streams, and its bound."""
        return Fill(self._count, self._most)

    def admit(self, principal: str | None) -> Callable[[], None]:
        """Take a place, and get what frees it; CapacityError when there is none. None is nobody in particular."""
        if self._count >= self._most:
            self._refuse(f"this node has {self._most} streams open already (HOMING_API_MAX_STREAMS)")
        if principal is not None and self._principals[principal] >= self._most_per_principal:
            self._refuse(
                f"{self._most_per_principal} streams of {principal} are open on this node already "
                "(HOMING_API_MAX_STREAMS_PER_PRINCIPAL)"
            )
        self._count += 1
        if principal is not None:
            self._principals[principal] += 1
        return partial(self._free, principal)

    def _free(self, principal: str | None) -> None:
        self._count -= 1
        if principal is not None:
            self._principals[principal] -= 1
            if not self._principals[principal]:
                del self._principals[principal]

    def _refuse(self, why: str) -> NoReturn:
        self._counters["stream.refused"] += 1
        raise CapacityError(why)

    async def run(self, feed: Feed, may: Callable[[], None], receive: Receive, send: Send) -> None:
        """Let the stream be written until it ends: by itself, by its caller, or by this node."""
        place = ParkedCaller(current_task(), receive, may)
        self._places.add(place)
        self._counters["stream.opened"] += 1
        place.watch()
        last = b""
        try:
            await send({"type": "http.response.body", "body": retry(RETRY_MS), "more_body": True})
            await feed(SseStream(send, place, self.keep_alive))
        except asyncio.CancelledError:
            if not place.interrupted():
                raise
            if place.why is Ending.HUNG_UP:
                self._counters["stream.hung_up"] += 1
                return
            if place.why is Ending.TOO_SLOW:
                self._counters["stream.too_slow"] += 1
                return
            last = self._last_word(place)
        except HomingError as error:
            self._counters["stream.failed"] += 1
            last = _failure(error)
        finally:
            self._places.discard(place)
            place.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await send({"type": "http.response.body", "body": last})

    def _last_word(self, place: ParkedCaller) -> bytes:
        if place.why is Ending.UNWANTED:
            self._counters["stream.unwanted"] += 1
            try:
                place.may()
            except HomingError as error:
                return _failure(error)
        else:
            self._counters["stream.dismissed"] += 1
        return retry(_RANDOM.randint(*AWAY_MS))


def _failure(error: HomingError) -> bytes:
    """The event that a stream ends with when it cannot go on: the problem that a request would get."""
    return event("problem", bytes(of_error(error).body))


class EventStream(Response):
    """The response that is a stream, of `principal` where that is known; a problem when there are too many."""

    def __init__(
        self,
        streams: SseStreams,
        feed: Feed,
        *,
        may: Callable[[], None],
        principal: str | None,
        headers: Iterable[tuple[bytes, bytes]] = (),
        free: Callable[[], None] | None = None,
    ) -> None:
        """`free` is of a place that was taken before."""
        self.status_code = 200
        self.body = b""
        self.background = None
        self.raw_headers = [*HEADERS, *headers]
        self._streams = streams
        self._feed = feed
        self._may = may
        self._principal = principal
        self._free = free

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, for as long as it lasts."""
        try:
            free = self._free or self._streams.admit(self._principal)
        except CapacityError as error:
            await of_error(error)(scope, receive, send)
            return
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._streams.run(self._feed, self._may, receive, send)
        finally:
            free()
