"""The starts of the store's servers, and what a node tells one that may have forgotten its last second.

A server that was killed and started again, or a replica that took its place, may have forgotten what was written last.
Each start has an id, by which a node notices (docs/adr/0232).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from app.store.holds import Claimed


@dataclass(frozen=True, slots=True)
class KeptClaim:
    """A claim as the claimant keeps it for a while."""

    claimed: Claimed
    token: str


class Reclaimed(StrEnum):
    """The result of telling a store of a claim."""

    KEPT = "kept"
    """It knew."""
    ENDED = "ended"
    """It knew, and the command has its outcome, or the claim was undone."""
    AGAIN = "again"
    """It had forgotten the claim, and has it again."""
    RESTORED = "restored"
    """It had forgotten the command as well, and has it again."""
    TAKEN = "taken"
    """It had forgotten the claim, and another node has claimed the command since."""
    UNREADABLE = "unreadable"
    """It has something there that this version cannot read."""


class ServerStarts(Protocol):
    """StoreUnavailableError means that it may have happened; each call is safe to repeat."""

    async def starts(self) -> AbstractSet[str]:
        """The ids of the present starts of the servers that answer; none where nothing is forgotten."""

    async def reclaim(self, kept: KeptClaim, node_id: str) -> Reclaimed:
        """Have a claim of this node in place: its command is not held, and is at home there.

        A command that ended here, of whose end the store knows nothing any more, times out.
        """

    async def enter(self, node_id: str, starts: AbstractSet[str]) -> None:
        """Note that this node has told these starts of all that it had claimed."""

    async def entered(self, node_ids: AbstractSet[str]) -> Mapping[str, AbstractSet[str]]:
        """The starts that each of these nodes has told so."""


class OneStart:
    """The port of a store that forgets nothing that it has answered, or ends with its node."""

    async def starts(self) -> AbstractSet[str]:
        """See the port."""
        return frozenset()

    async def reclaim(self, kept: KeptClaim, node_id: str) -> Reclaimed:
        """See the port."""
        del kept, node_id
        return Reclaimed.KEPT

    async def enter(self, node_id: str, starts: AbstractSet[str]) -> None:
        """See the port."""
        del node_id, starts

    async def entered(self, node_ids: AbstractSet[str]) -> Mapping[str, AbstractSet[str]]:
        """See the port."""
        return dict.fromkeys(node_ids, frozenset())
