"""The cluster port: leases of node ids, and wake-ups between nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.core.routing import Outcome

WakeUpHandler = Callable[[str, Outcome | None], None]
"""Called with a command id and, where the wake-up had room for it, its outcome."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A live node as its lease tells. `started_at` is in seconds since the Unix epoch."""

    node_id: str
    incarnation: str
    client_id: str
    started_at: float


class Cluster(Protocol):
    """Membership and wake-ups. A wake-up is a hint: it may be lost, so the store is read as well."""

    async def join(self, node: NodeInfo) -> None:
        """Take the lease of the node id and begin to listen; NodeIdTakenError when another incarnation holds it.

        From now on the lease is renewed in the background. When it turns out to belong to another incarnation, the
        node is told that it failed.
        """

    async def leave(self) -> None:
        """Give up the lease, if it is still ours, and stop listening."""

    async def nodes(self) -> Sequence[NodeInfo]:
        """The live nodes, by node id."""

    @property
    def listening(self) -> bool:
        """True while wake-ups can arrive, as far as the last heartbeat tells."""
