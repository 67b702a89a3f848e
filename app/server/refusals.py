"""The bounds of a request, and what a caller is told who is beyond one."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from app.api import problems
from app.api.problems import BY_ERROR, ProblemType
from app.core.errors import PayloadTooLargeError
from app.server.limiter import CloseReason

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
