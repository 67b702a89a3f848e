"""Queues in the memory of a process that never ends: nothing is left of those that were deleted."""

from __future__ import annotations

from app.core.events.event import Shard
from app.core.queues.loans import LendingRules, LoanWish, QueueSource, Reference, grouped
from app.store.memory.queues import MemoryQueues
from app.store.queues import TakeCall
from tests.unit.assembly import ManualClock


async def test_nothing_is_left_of_a_queue_that_consumers_declare_anew_whenever_they_come() -> None:
    queues = MemoryQueues(ManualClock(), lambda: "00000001")
    for number in range(3):
        source = QueueSource(f"01QUEUE{number}", Shard("events", 0))
        await queues.feed(source, 0, 0, 1, grouped([Reference(1)]), 10)
        assert (await queues.take(source, LendingRules(), [LoanWish(1, "w1")], TakeCall("n1", "7"))).loans != [None]
        await queues.forget([source])
    assert (queues.windows, queues._calls) == ({}, {})
