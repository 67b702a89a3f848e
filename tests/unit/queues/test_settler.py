"""Settlements that gather on a node while one is under way: each caller is told what became of what it said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from app.core.queues.loans import (
    LendingRules,
    Loan,
    LoanWish,
    QueueSource,
    Reference,
    Settled,
    SettleHow,
    Settlement,
    grouped,
)
from app.queues.settler import Settler
from app.store.memory.queues import MemoryQueues
from app.store.queues import TakeCall
from tests.unit.queues.stage import QueueStage
from tests.waiting import eventually

MINUTE = 60_000_000


class SlowQueues(MemoryQueues):
    """Settles when it may."""

    open: asyncio.Event
    flying = False

    async def settle(
        self, source: QueueSource, rules: LendingRules, life: str, said: Sequence[Settlement], jitter: int
    ) -> Settled:
        self.flying = True
        await self.open.wait()
        return await super().settle(source, rules, life, said, jitter)


class SettlerStage(QueueStage):
    """A loan of three events, and a settlement of the last one that is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = SlowQueues(self.clock, lambda: "00000001")
        self.slow.open = asyncio.Event()
        self.settler = Settler(self.slow, lambda *_: None, Random(1), self.counters)

    async def lend(self) -> Loan:
        references = [Reference(one) for one in (1, 2, 3)]
        await self.slow.feed(self.source, 0, 0, 3, grouped(references), 10)
        taken = await self.slow.take(self.source, self.queue.options.rules, [LoanWish(10, "w1")], TakeCall("n1", "1"))
        (loan,) = taken.loans
        assert loan is not None
        return loan

    async def together(self, loan: Loan, *said: tuple[SettleHow, int]) -> list[Settled]:
        """Let each of these be said by a caller of its own, in one call of the store."""
        say = self.settler.settle
        first = asyncio.create_task(
            say(self.queue, self.source, loan.life, [Settlement(loan.number, SettleHow.DONE, (2,))])
        )
        await eventually(lambda: self.slow.flying)
        others = [
            asyncio.create_task(
                say(self.queue, self.source, loan.life, [Settlement(loan.number, how, (index,), MINUTE)])
            )
            for how, index in said
        ]
        await asyncio.sleep(0)
        self.slow.open.set()
        assert (await first).count == 1
        return list(await asyncio.gather(*others))


@pytest.fixture
def stage() -> SettlerStage:
    return SettlerStage()


async def test_an_event_is_done_though_its_loan_was_made_longer_in_the_same_call(stage: SettlerStage) -> None:
    """A connection keeps a loan at the moment at which its consumer is done: the word of the consumer counts."""
    loan = await stage.lend()
    told = await stage.together(loan, (SettleHow.EXTEND, 0), (SettleHow.DONE, 0))
    assert told == [Settled(1, ())] * 2
    (state,) = await stage.slow.states([stage.source])
    assert state is not None
    assert (state.done, state.lent) == (2, 1)


async def test_who_is_done_is_not_told_of_a_longer_loan_that_came_too_late(stage: SettlerStage) -> None:
    loan = await stage.lend()
    said = [(SettleHow.DONE, 0), (SettleHow.EXTEND, 1), (SettleHow.DONE, 1), (SettleHow.EXTEND, 0)]
    told = await stage.together(loan, *said)
    assert told == [Settled(1, ()), Settled(1, ()), Settled(1, ()), Settled(0, ((loan.number, 0),))]


async def test_of_what_is_said_twice_the_first_counts(stage: SettlerStage) -> None:
    loan = await stage.lend()
    told = await stage.together(loan, (SettleHow.RETRY, 0), (SettleHow.DONE, 0))
    assert told == [Settled(1, ()), Settled(0, ((loan.number, 0),))]
