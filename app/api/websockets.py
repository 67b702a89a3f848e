"""WebSockets of the API (RFC 6455): where they are, and what a request is told there that does not open one."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from app.api.http import BytesResponse
from app.api.problems import ProblemType, problem

CONNECT: Final = "/v1/connect"
MQTT: Final = "/mqtt"
PATHS: Final = frozenset((CONNECT, MQTT))
VERSION: Final = b"13"

UPGRADE_REQUIRED: Final = ProblemType("upgrade-required", "This resource is a WebSocket", 426)
_HEADERS: Final = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"), (b"sec-websocket-version", VERSION))


class WebSocketClose(IntEnum):
    """The codes with which a node closes a WebSocket (RFC 6455, 7.4.1, and the registry that it made)."""

    NORMAL = 1000
    AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED = 1003
    POLICY = 1008
    TOO_LARGE = 1009
    FAILED = 1011
    TRY_LATER = 1013


def upgrade_required() -> BytesResponse:
    """The answer to a request at the path of a WebSocket that does not open one, or not rightly."""
    return problem(
        UPGRADE_REQUIRED,
        "send GET over HTTP/1.1 with Upgrade: websocket, Connection: Upgrade, Sec-WebSocket-Version: 13 and a "
        "Sec-WebSocket-Key, without a body, and nothing behind it until the answer is there (RFC 6455, 4.1)",
        _HEADERS,
    )
