"""A cluster of one, for the in-memory store."""

from __future__ import annotations

from collections.abc import Sequence

from app.cluster.base import NodeInfo
from app.core.errors import NodeIdTakenError


class LocalCluster:
    """Knows itself only; there is nobody to wake."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}

    @property
    def listening(self) -> bool:
        """True after `join`."""
        return bool(self._nodes)

    async def join(self, node: NodeInfo) -> None:
        """Take the node id."""
        held = self._nodes.get(node.node_id)
        if held is not None and held.incarnation != node.incarnation:
            raise NodeIdTakenError(node.node_id)
        self._nodes[node.node_id] = node

    async def leave(self) -> None:
        """Give it up."""
        self._nodes.clear()

    async def nodes(self) -> Sequence[NodeInfo]:
        """The one node."""
        return sorted(self._nodes.values(), key=lambda node: node.node_id)
