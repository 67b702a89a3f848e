"""A node's right to its id: a lease that is renewed, lost, handed on or given up."""

from __future__ import annotations

from typing import Protocol

from app.cluster.directory import NodeInfo
from app.core.cluster.charter import Charter


class Membership(Protocol):
    """The membership of this node. Calls raise StoreUnavailableError when the cluster's memory does not answer."""

    async def charter(self) -> Charter:
        """The charter that the nodes of this cluster share; made now when the cluster's memory has none."""

    async def found_anew(self, copied: Charter) -> Charter:
        """Found this cluster with another charter, as its memory turned out to be a copy of that of another cluster.

        What the copy knows of sessions is forgotten: they are those of the other cluster, which lives.
        """

    async def directory(self, own: str) -> str:
        """The id of the access directory that all nodes of this cluster have: `own`, where nobody has said so."""

    async def join(self, node: NodeInfo, *, replaces: NodeInfo | None = None) -> None:
        """Take the lease of the node id, renew it in the background, and begin to listen.

        A lease that another incarnation holds is waited for as long as a crashed one could still hold it, and then
        NodeIdTakenError is raised; one that `replaces` holds is taken over at once, and the session of `replaces`
        becomes an orphan, if it is not one already.
        """

    async def fenced(self) -> None:
        """Return when this incarnation must not act any more: another one may `join`.

        So when its lease is lost for good, and when the charter is another one than at the last call of `charter`.
        """

    async def still_member(self, client_id: str) -> None:
        """Return once the lease is known to be that of the node with this MQTT session at this moment.

        Waits for ever when it is lost for good: also when it has gone to the next incarnation of this node, as the
        session of the one before is adopted, and opened again it would collect responses that nobody looks for.
        """

    async def drain(self) -> None:
        """Let the others know that this node is about to stop."""

    async def leave(self, *, session_kept: bool = False) -> None:
        """Give up the lease, if it is still ours, and stop listening."""

    @property
    def remembers(self) -> bool:
        """True if anybody can adopt a session that is kept when the last node leaves."""
