"""The directory of the nodes that are alive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One incarnation of a node: one start of it, or one life between two losses of its lease.

    `client_id` names its MQTT session, `filters` what that is subscribed to. `started_at`: seconds since the epoch.
    Who knows the client id can take the session over (MQTT 5, section 3.1.4), so it is shown to nobody.
    """

    node_id: str
    incarnation: str
    client_id: str
    started_at: float
    filters: tuple[str, ...] = ()


class ClusterDirectory(Protocol):
    """The members of the cluster. Calls raise StoreUnavailableError when the cluster's memory does not answer."""

    async def nodes(self) -> Sequence[NodeInfo]:
        """The live nodes, by node id; those that drain are not among them."""

    async def all_know(self, feature: str) -> bool:
        """Return whether all live nodes, those that drain too, know a feature that came with a later version."""

    async def knowing(self, feature: str) -> Sequence[str]:
        """The ids of the live nodes that know such a feature, apart from those that drain."""

    @property
    def leased(self) -> frozenset[str] | None:
        """The ids of all live nodes, those that drain too, when `nodes` was called last; None before that."""

    @property
    def strained(self) -> bool:
        """True if some live node had not shown a sign of life lately when `nodes` was called last."""
