"""A feeder asks the log for little while nothing comes, however many queues there are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final

from app.core.events.event import Entry, Position, Shard
from app.core.events.plan import NamedDatabase, Plan
from app.core.events.reading import Reading, Slice
from app.queues import feeder
from app.queues.sources import QueueSources
from app.store.memory.events import MemoryEventLog
from tests.unit.queues.stage import SHARD, QueueStage
from tests.waiting import eventually

SHARDS: Final = 4


class CountingLog(MemoryEventLog):
    """Counts what it is asked for, and wakes nobody: a log of others gives hints."""

    reads = 0
    waits = 0

    async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        self.reads += 1
        return await super().read(shard, reading, limit)

    async def wait(self, database: str, after: Sequence[Position]) -> Sequence[Position]:
        self.waits += 1
        await asyncio.Event().wait()
        return await super().wait(database, after)


class SharedStage(QueueStage):
    """The log is one that nodes share."""

    hinted = True

    def __init__(self) -> None:
        super().__init__()
        self.plan = Plan([NamedDatabase("events", timedelta(days=1))], [], SHARDS)
        self.counting = CountingLog(self.plan.databases, self.clock)
        self.log = self.counting
        self.sources = QueueSources(self.plan, lambda _: "")
        self.feeder = self.new_feeder()


async def test_queues_that_begin_one_after_the_other_are_read_for_together_though_nothing_comes() -> None:
    stage = SharedStage()
    for number in range(100):
        starts = {"events": 1000 + number}
        stage.queues.append(replace(stage.queue, id=f"02{number:03}", name=f"o{number}", starts=starts))
    assert not await stage.feeder.round()
    assert stage.counting.reads == SHARDS


async def test_a_log_that_gives_hints_is_watched_only_for_a_while_after_something_came() -> None:
    stage = SharedStage()
    running = asyncio.create_task(stage.feeder.run())
    try:
        await eventually(lambda: stage.counting.reads > SHARDS)  # it has looked once more, as hints may be lost
        assert stage.counting.waits == 0
        await stage.log.append(SHARD, [Entry("alarm", b"1")])
        stage.feeder.appended({str(SHARD)})
        await eventually(lambda: stage.counting.waits > 0)
        watched = stage.counting.waits
        stage.clock.advance(feeder.BUSY_SECONDS)
        reads = stage.counting.reads
        await eventually(lambda: stage.counting.reads > reads)
        assert stage.counting.waits <= watched + 1, "the one that was under way"
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
