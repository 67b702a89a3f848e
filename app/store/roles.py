"""The port of a role: what at most one node does at a time, such as to be the intake of events."""

from __future__ import annotations

import asyncio
from typing import Protocol


class RoleLease(Protocol):
    """Held by one node at a time, under a lease. StoreUnavailableError never comes out: who waits, waits."""

    async def hold(self) -> int | None:
        """Return once it is held, with an epoch that is later than all before; None where nobody else could hold it."""

    async def lost(self) -> None:
        """Return when it is not held any more."""

    async def still_held(self) -> None:
        """Return once it is known to be held at this moment; never when it is lost."""

    async def held(self) -> bool:
        """True if any node holds the role at this moment; False when nobody can say."""

    def outrun(self, epoch: int) -> None:
        """Somebody has had this epoch: the next one is later, and it is lost now if its own is not."""

    def gone(self, node_id: str) -> None:
        """This node is known to be dead: what it held is taken now, if `hold` waits for it."""

    async def release(self) -> None:
        """Let another node hold it."""

    async def close(self) -> None:
        """Release it, and let go of all connections."""


class OnlyOne:
    """The role of a node alone."""

    async def hold(self) -> int | None:
        """None, at once."""
        return None

    async def lost(self) -> None:
        """Never return."""
        await asyncio.Event().wait()

    async def still_held(self) -> None:
        """Return."""

    async def held(self) -> bool:
        """True: there is nobody else."""
        return True

    def outrun(self, epoch: int) -> None:
        """Return: there is nobody else."""

    def gone(self, node_id: str) -> None:
        """Return: there is nobody else."""

    async def release(self) -> None:
        """Return."""

    async def close(self) -> None:
        """Return."""
