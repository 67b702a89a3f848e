"""Turns to ask devices for their state: one a second and device, whichever node asks."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Protocol

ASKED_EVERY: Final = timedelta(seconds=1)
"""A device is asked so often at most, by the store's clock."""


class QuestionTurns(Protocol):
    """The turns of all nodes together. Only who asks takes a step here."""

    async def turn_to_ask(self, device_id: str, command_id: str) -> str:
        """Return the id of the question that has the turn: `command_id`, unless another was given it within the second.

        Safe to repeat with the same id. StoreUnavailableError.
        """
