"""What nodes are asked for of what is limited: each tells the others, so that shares of a limit follow demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Demands(Protocol):
    """A text of each node, which the others forget when it is not told anew for some seconds."""

    async def exchange(self, told: str) -> Sequence[str]:
        """Tell the other live nodes, and give what they have told last; StoreUnavailableError."""
