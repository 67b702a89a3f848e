"""Bodies that are read within bounds, and responses that are bytes already."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope

from app.access.origin import RequestOrigin
from app.core.access.callers import Caller
from app.core.errors import PayloadTooLargeError
from app.core.payload import MAX_BYTES

RawHeaders = Sequence[tuple[bytes, bytes]]

BODY_SECONDS: Final = 10.0
"""The time that a caller may take to send the body of a request that has begun: slow ones must not fill up a node."""

JSON: Final = b"application/json"
PROBLEM_JSON: Final = b"application/problem+json"
NO_STORE: Final = (b"cache-control", b"no-store")
"""The header of a response that nobody may keep."""


_SLOW: Final = "slow body"
_AS_IT_IS: Final = (b"", b"identity")
"""The codings of a body that is sent as it is."""
_DIGITS: Final = 20
"""A length of so many digits is over any limit; Python refuses to read thousands of them, zeros included."""


class SlowBodyError(Exception):
    """The body of a request did not arrive in time; the sentence says so to its sender."""


class EncodedBodyError(Exception):
    """The body of a request is compressed, or coded in another way; the sentence says so to its sender."""


class BytesResponse(Response):
    """A response whose body needs no rendering and whose headers need no look."""

    def __init__(
        self, body: bytes, *, status: int = 200, content_type: bytes = JSON, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", content_type), *headers]


Serve = Callable[[str, Scope, Receive], Awaitable[Response]]
"""Serves the busy call for a device."""


def headers_of(scope: Scope) -> Mapping[bytes, bytes]:
    """The headers by lower-case name; the values of one that is given several times are joined (RFC 9110, 5.3)."""
    raw: RawHeaders = scope["headers"]
    headers = dict(raw)
    if len(headers) != len(raw):
        headers.clear()
        for name, value in raw:
            headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def asking(caller: Caller | None, scope: Scope, headers: Mapping[bytes, bytes]) -> RequestOrigin:
    """The origin of a request: its caller, and the address that it comes from."""
    client = scope.get("client")
    return RequestOrigin(caller, client[0] if client else None, headers.get(b"user-agent"))


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], most: int = MAX_BYTES, seconds: float = BODY_SECONDS
) -> bytes:
    """The whole body of a request, of so many bytes at most.

    PayloadTooLargeError as soon as it is known to be over the limit, without reading on; EncodedBodyError when nobody
    here can decode it; SlowBodyError when it does not arrive within these `seconds`; ClientDisconnect when the caller
    hangs up.
    """
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in _AS_IT_IS:
        raise EncodedBodyError(
            f"Content-Encoding: {ascii(encoding[:64].decode('latin-1'))[1:-1]} is not decoded here; "
            "send the body as it is, without this header"
        )
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit() or int(declared.lstrip(b"0")[:_DIGITS] or b"0") > most:
        raise _too_large(most)
    task = current_task()
    timer = asyncio.get_running_loop().call_later(seconds, task.cancel, _SLOW)  # half the price of asyncio.timeout
    try:
        return await _receive_body(receive, most)
    except asyncio.CancelledError as error:
        if _SLOW not in error.args or task.uncancel() > 0:
            raise
        raise SlowBodyError(f"the body did not arrive within {seconds:g} seconds") from None
    finally:
        timer.cancel()


def current_task() -> asyncio.Task[Any]:
    """The task that serves the request."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("requests are served in tasks")
    return task


def _too_large(most: int) -> PayloadTooLargeError:
    return PayloadTooLargeError("body", f"is too large; allowed: at most {most} bytes")


async def _receive_body(receive: Receive, most: int) -> bytes:
    body = b""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body = message.get("body", b"")
        size += len(body)
        if size > most:
            raise _too_large(most)
        if not message.get("more_body", False):
            return b"".join((*chunks, body)) if chunks else body
        chunks.append(body)
