"""The cluster port: leases of node ids, the MQTT sessions that dead nodes left, and wake-ups between nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from app.core.routing import Outcome

WakeUpHandler = Callable[[str, Outcome | None], None]
"""Called with a command id and, where the wake-up had room for it, its outcome."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One incarnation of a node: one start of it, or one life between two losses of its lease.

    `client_id` names its MQTT session, `filters` what that is subscribed to. `started_at`: seconds since the epoch.
    """

    node_id: str
    incarnation: str
    client_id: str
    started_at: float
    filters: tuple[str, ...] = ()


class Cluster(Protocol):
    """Membership and wake-ups. A wake-up is a hint: it may be lost, so the store is read as well.

    All calls raise StoreUnavailableError when the cluster's memory does not answer.
    """

    async def join(self, node: NodeInfo, *, replaces: NodeInfo | None = None) -> None:
        """Take the lease of the node id, renew it in the background, and begin to listen.

        A lease that another incarnation holds is waited for as long as a crashed one could still hold it, and then
        NodeIdTakenError is raised; one that `replaces` holds is taken over at once.
        """

    async def fenced(self) -> None:
        """Return when the lease is lost for good: this incarnation must not act any more, another may `join`."""

    async def still_member(self, client_id: str) -> None:
        """Return once the lease is known to be that of the node with this MQTT session at this moment.

        Waits for ever when it is lost for good: also when it has gone to the next incarnation of this node, as the
        session of the one before is adopted, and opened again it would collect responses that nobody looks for.
        """

    async def drain(self) -> None:
        """Let the others know that this node is about to stop."""

    async def leave(self, *, session_kept: bool = False) -> None:
        """Give up the lease, if it is still ours, and stop listening."""

    async def nodes(self) -> Sequence[NodeInfo]:
        """The live nodes, by node id; those that drain are not among them."""

    async def orphans(self) -> Sequence[NodeInfo]:
        """Incarnations without a lease whose MQTT session may still hold responses."""

    async def claim(self, orphan: NodeInfo, right: timedelta) -> bool:
        """Get the sole right to adopt a session for a while; the incarnation can never renew its lease again."""

    async def adopted(self, orphan: NodeInfo) -> None:
        """Forget a session: the broker has it no more."""

    @property
    def leased(self) -> frozenset[str] | None:
        """The ids of all live nodes, those that drain too, when `nodes` was called last; None before that."""

    @property
    def remembers(self) -> bool:
        """Whether anybody can adopt a session that is kept when the last node leaves."""

    @property
    def listening(self) -> bool:
        """True while wake-ups can arrive and the lease is being renewed, as far as the last heartbeat tells."""
