"""The bounds of a request, and what a caller is told who is beyond one."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.api import problems
from app.api.http import RawHeaders
from app.api.problems import BY_ERROR, ProblemType
from app.core.errors import PayloadTooLargeError
from app.server.limiter import CloseReason

SLICE: Final = 4 * 1024
"""Bytes that are parsed at a time: what a peer sends in one go may be thousands of requests."""
LINGER_SECONDS: Final = 1.0
"""The time that a peer that still sends is listened to, so that it gets to read our last words."""
MAX_HEAD: Final = 16 * 1024
"""Bytes of request line and headers, give or take a slice."""
MAX_TARGET: Final = 8 * 1024
MAX_HEADERS: Final = 100
MAX_MESSAGE: Final = 1024 * 1024
"""Bytes of a body with all that frames it, also where nobody reads it; what a body may say is limited elsewhere."""

_TOO_LARGE: Final = BY_ERROR[PayloadTooLargeError]
REFUSALS: Final = MappingProxyType[CloseReason, tuple[ProblemType, str]](
    {
        CloseReason.SLOW_HEAD: (problems.SLOW_HEAD, "the head of the request did not arrive in time"),
        CloseReason.SLOW_BODY: (problems.SLOW_BODY, "the body of the request did not arrive in time"),
        CloseReason.UNREADABLE: (
            problems.UNREADABLE_REQUEST,
            "the request cannot be read as HTTP/1.1 (RFC 9112): its method, target, headers or framing are wrong",
        ),
        CloseReason.HEAD_TOO_LARGE: (
            problems.HEAD_TOO_LARGE,
            f"the head of the request is too large; allowed: {MAX_HEAD} bytes and {MAX_HEADERS} headers",
        ),
        CloseReason.TARGET_TOO_LONG: (problems.TARGET_TOO_LONG, f"the target is too long; allowed: {MAX_TARGET} bytes"),
        CloseReason.BODY_TOO_LARGE: (_TOO_LARGE, f"the body takes more than {MAX_MESSAGE} bytes to send"),
        CloseReason.TOO_MUCH_HELD: (problems.TOO_MANY_CONNECTIONS, "too many requests are half sent; try again"),
        CloseReason.TOO_MANY: (problems.TOO_MANY_CONNECTIONS, "this node has as many connections as it may; try again"),
        CloseReason.TOO_MANY_OF_PEER: (
            problems.TOO_MANY_CONNECTIONS,
            "your address has as many connections as it may; try again",
        ),
    }
)


def excess_of_head(size: int, target: bytes, headers: RawHeaders) -> CloseReason | None:
    """Return what is too large of a head with so many bytes so far; None if nothing is."""
    if len(target) > MAX_TARGET:
        return CloseReason.TARGET_TOO_LONG
    return CloseReason.HEAD_TOO_LARGE if size > MAX_HEAD or len(headers) > MAX_HEADERS else None


def written(response: Response, default_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write a whole response, as it goes over the wire."""
    lines = (b"%b: %b\r\n" % header for header in (*default_headers, *response.raw_headers))
    return b"".join((STATUS_LINE[response.status_code], *lines, b"\r\n", response.body))
