"""The events of all commands: the port for those who follow them together."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from app.core.commands.stream import Marks, StreamPage


class CommandChanges(Protocol):
    """Errors are those of `CommandReader`. What nobody follows is not written, so commands pay nothing for this."""

    async def keep(self, duration: timedelta, told_ms: int = 0) -> int:
        """Have it be written what happens to commands, all nodes, from now on and for so long.

        About the latest thousand of each partition are kept. Since when (ms on the store's clock) none is missing.
        Where the clock stands before `told_ms`, of which readers were told already, all begins anew behind it: what
        happens until the clock has come there bears the millisecond behind it.
        """

    async def after(self, marks: Marks) -> StreamPage:
        """Return what has happened after `marks`, which stay as they are; a part of it where it is much.

        The page says where some may have been dropped before they were read, and where all began anew.
        """
