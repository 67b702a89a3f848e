"""The shards of the event log that a node feeds queues from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from app.cluster.shares import falls_to
from app.core.events.event import Shard
from app.core.events.plan import Plan


class QueueShares:
    """The shards that fall to this node; `live` tells the nodes of the cluster."""

    def __init__(self, plan: Plan, node_id: str, live: Callable[[], Awaitable[Sequence[str]]]) -> None:
        self._plan = plan
        self._node_id = node_id
        self._live = live
        self._known: tuple[str, ...] = ()
        self._mine = self._fallen()

    async def refresh(self) -> None:
        """Look who lives; StoreUnavailableError."""
        live = tuple(await self._live())
        if live != self._known:
            self._known = live
            self._mine = self._fallen()

    def mine(self, shard: Shard) -> bool:
        """True if the shard falls to this node."""
        return shard in self._mine

    def mine_by_name(self, name: str) -> bool:
        """True if something of this name does."""
        return falls_to(self._node_id, self._known, name)

    def shards(self) -> Sequence[Shard]:
        """Return those that do."""
        return sorted(self._mine)

    def _fallen(self) -> frozenset[Shard]:
        shards = (shard for database in self._plan.databases for shard in database.all_shards())
        return frozenset(one for one in shards if self.mine_by_name(f"queues {one}"))
