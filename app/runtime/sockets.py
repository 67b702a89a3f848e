"""Sockets that listen."""

from __future__ import annotations

import os
import socket
from typing import Final

from app.core.errors import ConfigurationError

BACKLOG: Final = 2048
"""Connections that the system keeps for us while we are busy."""


def listen(host: str, port: int, variables: str = "HOMING_API_HOST, HOMING_API_PORT") -> socket.socket:
    """The socket to serve on; ConfigurationError, which names the variables, when it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ConfigurationError(f"{variables}: cannot listen on {host} port {port}: {reason}") from None
