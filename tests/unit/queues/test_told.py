"""A node that is told that somebody has changed what is declared: it reads it, and does not wait for its next look."""

from __future__ import annotations

import asyncio
from typing import Any

from app.core.errors import StoreUnavailableError
from app.core.queues.hints import CHANGED_DECLARATIONS
from app.queues.plane import QueuePlane
from app.store.declared import Declared
from tests.unit.queues.stage import QueueStage
from tests.waiting import eventually, turns


class FailingOnce:
    """Declarations that cannot be read the first time."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self.asked = 0

    async def version(self) -> int:
        self.asked += 1
        if self.asked == 1:
            raise StoreUnavailableError("away")
        return await self._declared.version()

    def __getattr__(self, name: str) -> object:
        return getattr(self._declared, name)


async def test_a_node_reads_what_is_declared_each_time_when_it_is_told_of_a_change() -> None:
    stage = QueueStage()
    failing: Any = FailingOnce(stage.declared)
    stage.declared = failing
    book = stage.new_book()
    untouched: Any = None
    plane = QueuePlane(
        store=stage.store,
        book=book,
        sources=stage.sources,
        feeders=[stage.feeder],
        taker=stage.new_taker(),
        settler=untouched,
        shares=untouched,
        publisher=untouched,
        moves=untouched,
        chores=untouched,
    )
    learning = asyncio.create_task(plane._learn())
    try:
        plane._heard(CHANGED_DECLARATIONS)
        await eventually(lambda: failing.asked == 1)
        await turns()
        assert not book.all
        await stage.write()
        plane._heard(CHANGED_DECLARATIONS)
        await eventually(lambda: book.by_id(stage.queue.id) == stage.queue)
    finally:
        learning.cancel()
