"""The standing of queues, for `/metrics`: each queue is shown by the one node to which it falls, up to a bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from app.core.events.event import Position
from app.core.queues.loans import SourceState, micros_of
from app.core.queues.model import DeclaredQueue
from app.queues.sources import QueueSources
from app.queues.stats import QueueStats, stats_of
from app.runtime.families import Family, Labels
from app.runtime.telemetry import Counters
from app.store.queues import QueueStore

MOST_SHOWN: Final = 200
"""Queues that are shown: the first ones by tenant and name, so that all nodes show the same ones."""

_LABELS: Final = ("tenant", "name")
EVENTS: Final = Family(
    "homing_log_queue_events", "gauge", "Events of a queue over the log that are not settled", (*_LABELS, "state")
)
OLDEST: Final = Family(
    "homing_log_queue_oldest_seconds", "gauge", "How long the first event of a queue that is ready waits", _LABELS
)
RETENTION: Final = Family(
    "homing_log_queue_retention_ratio",
    "gauge",
    "Share of the retention of its database that the first event of a queue that is ready has waited",
    _LABELS,
)
DEAD: Final = Family("homing_log_queue_dead", "gauge", "Events of a queue that have become dead letters", _LABELS)
FAMILIES: Final = (EVENTS, OLDEST, RETENTION, DEAD)


class QueueGauges:
    """`mine` tells whether a queue falls to this node."""

    def __init__(
        self, store: QueueStore, sources: QueueSources, mine: Callable[[DeclaredQueue], bool], counters: Counters
    ) -> None:
        self._store = store
        self._sources = sources
        self._mine = mine
        self._counters = counters
        self._shown: Mapping[Family, Mapping[Labels, float]] = {}

    def __iter__(self) -> Iterator[tuple[Family, Mapping[Labels, float]]]:
        """Return what was seen last."""
        return iter(self._shown.items())

    async def look(self, queues: Sequence[DeclaredQueue], now: Position) -> None:
        """Ask how those stand that fall to this node. StoreUnavailableError: nothing is shown then."""
        self._shown = {}
        shown: dict[Family, dict[Labels, float]] = {family: {} for family in FAMILIES}
        for queue, stats in await self._stats([one for one in queues[:MOST_SHOWN] if self._mine(one)]):
            name = (queue.tenant, queue.name)
            for state in ("ready", "lent", "later", "held_back"):
                shown[EVENTS][*name, state] = getattr(stats, state)
            since = stats.oldest + micros_of(queue.options.delay)  # before that nobody could have it
            shown[OLDEST][name] = max(0, now - since) / 1_000_000 if stats.oldest else 0
            kept = self._sources.retention_us(queue)
            shown[RETENTION][name] = max(0, now - stats.oldest) / kept if stats.oldest and kept else 0
            shown[DEAD][name] = stats.dead
        self._counters["queues.not_shown"] += sum(map(self._mine, queues[MOST_SHOWN:]))
        self._shown = shown

    async def _stats(self, queues: Sequence[DeclaredQueue]) -> list[tuple[DeclaredQueue, QueueStats]]:
        """Return how each stands, asked for all of them at once."""
        places = [(queue, source) for queue in queues for source in self._sources.of(queue)]
        states = await self._store.states([source for _, source in places])
        found: defaultdict[str, list[SourceState]] = defaultdict(list)
        for (queue, _), state in zip(places, states, strict=True):
            if state is not None:
                found[queue.id].append(state)
        return [(queue, stats_of(found[queue.id])) for queue in queues]
