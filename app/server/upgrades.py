"""Requests for another protocol than HTTP/1.1: the one that is taken, WebSocket, and how the others are read."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from wsproto.utilities import generate_accept_token

from app.api.http import RawHeaders
from app.api.websockets import PATHS, VERSION

_UPGRADING: Final = (b"upgrade", b"http2-settings")
_WEBSOCKET: Final = b"websocket"
_KEY_BYTES: Final = 16
_FRAMING: Final = frozenset((b"content-length", b"transfer-encoding"))


class Handshake(NamedTuple):
    """The opening of a WebSocket (RFC 6455, 4.2.1), as far as it is not in the scope of its request."""

    path: str
    query: bytes
    accept: bytes
    subprotocols: tuple[str, ...]


def handshake_of(method: bytes, target: bytes, version: str, headers: RawHeaders) -> Handshake | None:
    """Return the opening of a WebSocket; None if there is none at this target, or if the request is not a right one.

    Such a request is answered by the route of the same path, which says what is wrong.
    """
    path, _, query = target.partition(b"?")
    by_name = dict(headers)
    right = (
        method == b"GET"
        and version == "1.1"
        and path.decode("latin-1") in PATHS
        and _FRAMING.isdisjoint(by_name)
        and _listed(by_name.get(b"upgrade")) == [_WEBSOCKET]
        and b"upgrade" in _listed(by_name.get(b"connection"))
        and by_name.get(b"sec-websocket-version") == VERSION
    )
    key = by_name.get(b"sec-websocket-key", b"")
    if not right or not _is_key(key):
        return None
    offered = [one for name, value in headers if name == b"sec-websocket-protocol" for one in value.split(b",")]
    names = tuple(one.strip().decode("latin-1") for one in offered)
    return Handshake(path.decode(), query, generate_accept_token(key), names)


def as_plain(method: bytes, target: bytes, version: str, headers: RawHeaders) -> bytes:
    """Write the head of a request once more, without its wish to speak something else."""
    head = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    head += [b"%b: %b" % header for header in _without_upgrade(headers)]
    return b"\r\n".join((*head, b"", b""))


def _is_key(key: bytes) -> bool:
    try:
        return len(b64decode(key, validate=True)) == _KEY_BYTES
    except binascii.Error:
        return False


def _listed(value: bytes | None) -> list[bytes]:
    return [] if value is None else [one.strip().lower() for one in value.split(b",")]


def _without_upgrade(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers:
        if name == b"connection":
            options = [one.strip() for one in value.split(b",")]
            yield name, b", ".join(one for one in options if one.lower() not in _UPGRADING)
        elif name not in _UPGRADING:
            yield name, value
