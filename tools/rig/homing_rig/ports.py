"""TCP ports for the servers that a rig starts."""

from __future__ import annotations

import atexit
import random
import socket
from collections import deque
from contextlib import suppress
from typing import Final

from app.core.errors import HomingError

PORTS: Final = range(15_000, 32_000)
"""Below the ports that systems give to outgoing connections: one of those must not take the port of a dead server."""
MOST_RESERVED: Final = 256

_reserved: Final[deque[socket.socket]] = deque()


class NoFreePortError(HomingError):
    """A hundred ports at random were taken."""


def lasting_port(ports: range = PORTS) -> int:
    """A TCP port of 127.0.0.1 that is free, and stays free until its server begins, or while it is down.

    The UDP port of the same number is held meanwhile, until this process has asked for 256 more: so no other process
    that asks here gets the port. Without that, two rigs side by side happened to talk to each other's servers.
    """
    for port in random.SystemRandom().sample(ports, min(100, len(ports))):
        sign = socket.socket(type=socket.SOCK_DGRAM)
        with suppress(OSError), socket.socket() as probe:
            sign.bind(("127.0.0.1", port))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            _reserved.append(sign)
            if len(_reserved) > MOST_RESERVED:
                _reserved.popleft().close()
            return port
        sign.close()
    raise NoFreePortError(f"no free port between {ports.start} and {ports.stop}")


@atexit.register
def _let_go() -> None:
    while _reserved:
        _reserved.pop().close()
