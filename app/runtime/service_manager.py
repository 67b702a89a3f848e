"""Words to the process that has started this one, as systemd wants them: one datagram each (sd_notify(3))."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

TIMES: Final = 3
"""The number of times that a manager that watches is told within its time that this process lives."""


class ServiceManager:
    """Is told what it has asked for in the environment of the process `pid`; nothing, if it has not."""

    def __init__(self, environ: Mapping[str, str], pid: int) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address: Final = f"\0{address[1:]}" if address.startswith("@") else address
        watched = environ.get("WATCHDOG_PID", str(pid)) == str(pid)
        within = environ.get("WATCHDOG_USEC", "")
        self._pause: Final = int(within) / 1_000_000 / TIMES if watched and within.isdecimal() else 0.0

    def begin(self) -> None:
        """Say that this process is ready, and from now on that its event loop goes round."""
        self._say(b"READY=1")
        if self._address and self._pause:
            self._live()

    def _live(self) -> None:
        self._say(b"WATCHDOG=1")
        asyncio.get_running_loop().call_later(self._pause, self._live)

    def _say(self, word: bytes) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as said:  # nobody has to listen
            said.setblocking(False)
            said.sendto(word, self._address)
