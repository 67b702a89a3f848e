"""Mistakes of the event log: `mutants.py` has the table of all."""

from __future__ import annotations

from itertools import count
from typing import Any

from app.core.events.batches import CallId
from tests.rig.planting import product_class


def events_without_a_fence() -> None:
    """A node that has lost the role goes on writing."""
    log = product_class("app.store.memory.events.MemoryEventLog")
    append = log.append

    async def unfenced(self: Any, shard: Any, entries: Any, _epoch: Any = None, batch: Any = None) -> Any:
        return await append(self, shard, entries, None, batch)

    log.append = unfenced


def events_of_the_dead_are_left() -> None:
    """Nobody takes in what the session of a dead node holds of shared events."""

    async def nothing(_self: Any, _client_id: str, _filters: Any, _idle: Any) -> int:
        return 0

    product_class("app.events.known.KnownFromEvents").adopt = nothing


def publications_without_a_name() -> None:
    """A publication that is repeated with its key is taken for another one."""
    publisher = product_class("app.events.publisher.EventPublisher")
    publish, names = publisher.publish, map(str, count())

    async def anew(self: Any, database: str, entries: Any, _call: Any = None) -> Any:
        return await publish(self, database, entries, CallId(next(names), next(names)))

    publisher.publish = anew


def cursors_run_ahead() -> None:
    """A cursor stands behind all that was looked at, also what was not given out."""
    product_class("app.events.merge._ShardSource").place = property(lambda self: self._position)
