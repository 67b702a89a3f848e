"""The MQTT sessions that dead nodes left."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from app.cluster.directory import NodeInfo


class Orphans(Protocol):
    """The orphans, and who may adopt which of them.

    Calls raise StoreUnavailableError when the cluster's memory does not answer.
    """

    async def orphans(self) -> Sequence[NodeInfo]:
        """Incarnations without a lease whose MQTT session may still hold responses."""

    async def note_forgotten(self, lost: NodeInfo) -> bool:
        """Note the session of an incarnation that is dead, so that it can be claimed.

        False, and nothing is noted, where it is known, or somebody adopts it or has just done so.
        """

    async def claim(self, orphan: NodeInfo, right: timedelta, *, lost: bool = False) -> bool:
        """Get the sole right to adopt a session for a while; the incarnation can never renew its lease again.

        An incarnation that holds its lease keeps its session, unless it is known to have `lost` its connection.
        """

    async def adopted(self, orphan: NodeInfo) -> None:
        """Forget a session: the broker has it no more."""
