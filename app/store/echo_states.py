"""States that devices tell: who waits for one, and what was told last."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol

from app.core.commands.command import Command

MOST_EXPECTING: Final = 8
"""Among so many commands that wait on a topic, the oldest, is the one looked for that a state answers."""
MOST_STATE: Final = 4096
"""Bytes of the longest state that is remembered."""


class EchoStates(Protocol):
    """See `CommandReader` for what all ports of commands have in common."""

    async def expecting(self, device_id: str, topic: str, within: timedelta) -> Sequence[Command]:
        """Open commands of a device that wait on the topic since no longer than `within`, oldest first.

        A command that was held waits since its claim.
        """

    async def tell_state(self, device_id: str, topic: str, state: bytes, keep: timedelta) -> None:
        """Remember the state, a JSON text, that a device told on the topic; for so long, or until it tells another."""

    async def last_state(self, device_id: str, topic: str) -> bytes | None:
        """Return the device's last state on the topic, where that is remembered."""
