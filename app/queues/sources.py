"""The shards that a queue reads, and the events of them that it may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from app.core.events.event import EXCHANGES, Entry, Shard
from app.core.events.plan import Plan
from app.core.filtertree import FilterTree, Pattern
from app.core.queues.letters import DEAD
from app.core.queues.loans import QueueSource
from app.core.queues.model import DeclaredQueue
from app.core.tenants import tenant_level


def tree_of(database: str, queues: Iterable[DeclaredQueue]) -> FilterTree[str]:
    """The ids of queues by what they get of a database."""
    tree: FilterTree[str] = FilterTree()
    for queue in queues:
        for pattern in patterns_of(database, queue):
            tree.add(pattern, queue.id)
    return tree


def patterns_of(database: str, queue: DeclaredQueue) -> list[Pattern]:
    """The patterns of all that a queue gets of a database."""
    return [one.pattern(queue.tenant) for one in queue.options.routes if one.database == database]


TenantOf = Callable[[str], str]
"""Returns the tenant of a device; "" where nobody is asked, or nobody owns it."""


class QueueSources:
    """Knows the databases."""

    def __init__(self, plan: Plan, tenant_of: TenantOf) -> None:
        self._plan = plan
        self._tenant_of = tenant_of

    def of(self, queue: DeclaredQueue) -> list[QueueSource]:
        """The shards that it reads, and at last that of its dead letters."""
        found = [
            QueueSource(queue.id, shard)
            for name in queue.databases
            if (database := self._plan.database(name)) is not None
            for shard in database.all_shards()
        ]
        return [*found, self.dead(queue)]

    def retention_us(self, queue: DeclaredQueue) -> int:
        """The shortest time for which its events stay in the log, in microseconds; 0 if it reads no database."""
        return min((one.retention_us for one in self._plan.kept if one.name in queue.databases), default=0)

    def dead(self, queue: DeclaredQueue) -> QueueSource:
        """The source from which it reads its dead letters again."""
        return QueueSource(queue.id, self.dead_shard(queue), dead=True)

    def dead_shard(self, queue: DeclaredQueue) -> Shard:
        """Return where its dead letters are: in the first database."""
        return self._plan.shard(self._plan.kept[0].name, queue.dead_topic)

    def may_have(self, queue: DeclaredQueue, entry: Entry) -> bool:
        """True if an event is of the queue's tenant. A queue of no tenant has those of all."""
        if not queue.tenant or (entry.device and self._tenant_of(entry.device) == queue.tenant):
            return True
        level = tenant_level(queue.tenant)
        return entry.topic.startswith((f"{DEAD}{level}/", f"{EXCHANGES}{level}/"))

    def shards(self, database: str) -> Sequence[Shard]:
        """Return those of a database."""
        found = self._plan.database(database)
        return () if found is None else found.all_shards()
