"""Nodes exchange their demand for limited actions, so that each gets its share of a limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class LimitGossip(Protocol):
    """A text of each node, which the others forget when it is not told anew for some seconds."""

    async def exchange(self, told: str) -> Sequence[str]:
        """Tell the other live nodes, and give what they have told last; StoreUnavailableError."""
