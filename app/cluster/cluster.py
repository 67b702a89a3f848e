"""All that the nodes of a cluster share besides their commands: what a node is put together with."""

from __future__ import annotations

from typing import Protocol

from app.cluster.demands import LimitGossip
from app.cluster.directory import ClusterDirectory
from app.cluster.membership import Membership
from app.cluster.orphans import Orphans
from app.cluster.wakeups import WakeUps
from app.store.copies import Copies


class Cluster(Membership, ClusterDirectory, Orphans, WakeUps, LimitGossip, Protocol):
    """Membership, sessions to adopt, wake-ups, demands and a copy of the access rules, which one adapter offers."""

    @property
    def copies(self) -> Copies:
        """The copy of the access rules, which all nodes share."""
