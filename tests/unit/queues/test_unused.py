"""Queues that end by themselves: not under the hands of those who use them, whatever the store's clock says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.queues.loans import SettleHow, Settlement
from app.queues.unused import UnusedQueues
from tests.unit.queues.stage import QueueStage

LOOK_SECONDS = 10


class UnusedStage(QueueStage):
    """A queue that ends after two minutes, and the node that looks at it."""

    def __init__(self) -> None:
        super().__init__(ends_after=timedelta(minutes=2), loan=timedelta(minutes=10))
        self.queue = replace(self.queue, created_us=round(self.clock.wall() * 1_000_000))
        self.unused = UnusedQueues(store=self.store, sources=self.sources, mine=lambda _: True, clock=self.clock)

    async def looks(self, seconds: int) -> Iterable[int]:
        """Look for so long, and return after how many seconds the queue was to end."""
        found = []
        for passed in range(LOOK_SECONDS, seconds + 1, LOOK_SECONDS):
            self.clock.advance(LOOK_SECONDS)
            if await self.unused.look([self.queue]):
                found.append(passed)
        return found


async def test_a_queue_that_nobody_takes_from_ends_in_its_time() -> None:
    stage = UnusedStage()
    assert await stage.looks(150) == [130, 140, 150]


async def test_a_queue_is_used_while_somebody_takes_from_it_though_nothing_is_there() -> None:
    stage = UnusedStage()
    await stage.feeder.round()
    for _ in range(20):
        await stage.take()
        assert not await stage.looks(60)
    assert await stage.looks(130) == [70, 80, 90, 100, 110, 120, 130]


async def test_a_queue_does_not_end_while_a_handler_is_slow() -> None:
    stage = UnusedStage()
    await stage.say()
    await stage.feeder.round()
    loan = await stage.take()
    assert loan is not None
    assert not await stage.looks(590)
    extended = [Settlement(loan.number, SettleHow.EXTEND, (), 600_000_000)]
    await stage.store.settle(stage.source, stage.queue.options.rules, loan.life, extended, 1000)
    assert not await stage.looks(590)
    assert await stage.looks(150) == [140, 150], "two minutes after the loan has run out"


async def test_a_queue_does_not_end_as_the_clock_was_set_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = UnusedStage()
    await stage.feeder.round()
    await stage.take()
    assert not await stage.looks(30)
    now = stage.store.now

    async def ahead() -> int:
        return await now() + 86_400_000_000  # as `TIME` of Redis says, while windows tell when somebody asked before

    monkeypatch.setattr(stage.store, "now", ahead)
    assert not await stage.looks(20)
    await stage.take()
    assert not await stage.looks(50)


async def test_consumers_have_time_to_come_back_when_nobody_could_take() -> None:
    stage = UnusedStage()
    await stage.feeder.round()
    await stage.take()
    assert not await stage.looks(60)
    stage.clock.advance(600)  # the store was away
    assert not await stage.looks(60)
    await stage.take()
    assert not await stage.looks(120)


async def test_another_node_is_asked_about_its_own_queues() -> None:
    stage = UnusedStage()
    stage.unused = UnusedQueues(store=stage.store, sources=stage.sources, mine=lambda _: False, clock=stage.clock)
    assert not await stage.looks(300)
