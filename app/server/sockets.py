"""Sockets to serve on. What a node is made of is imported later: whoever may not listen is told within a second."""

from __future__ import annotations

import socket
from typing import Any, NamedTuple

from app.core.addresses import is_loopback
from app.core.errors import ConfigurationError
from app.runtime.sockets import listen
from app.settings import Settings


class OpsListener(NamedTuple):
    """The application that answers on the port of operations, in place of the API."""

    port: int
    application: Any


def listen_for_operations(settings: Settings, place: int = 0) -> socket.socket | None:
    """The socket for health and metrics of the worker in this place, if there is to be one."""
    ops = settings.ops
    if ops.port is None:
        return None
    port = ops.port + place if ops.port else 0
    return listen(ops.host or settings.api.host, port, "HOMING_OPS_HOST, HOMING_OPS_PORT")


def refuse_strangers(settings: Settings, *listeners: socket.socket) -> None:
    """ConfigurationError when others than this machine could call, and nobody has said that they may."""
    for listener in listeners:
        address = listener.getsockname()[0]
        if not (settings.access.open or settings.access.url) and not is_loopback(address):
            listener.close()
            raise ConfigurationError(
                f"{address} can be reached from outside, and this node does not authenticate its callers. Run homing "
                "access init and set HOMING_ACCESS_URL, or set HOMING_ACCESS_OPEN=true to let everybody in"
            )


def url_of(listener: socket.socket) -> str:
    """The URL of what serves on this socket, from this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - a name for all addresses, not a bind
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
