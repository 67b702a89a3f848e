"""Single steps of the window of a queue, which random histories seldom meet, in each engine."""

from __future__ import annotations

from app.core.events.event import Shard
from app.core.queues.loans import (
    SUSPECTS,
    LendingRules,
    LoanWish,
    QueueSource,
    Reference,
    SettleHow,
    Settlement,
    grouped,
)
from app.store.queues import TakeCall, Taken
from tests.contract.queue_places import QueuePlace

SOURCE = QueueSource("01DUE", Shard("events", 0))
SECOND = 1_000_000
RULES = LendingRules(loan=30 * SECOND, retry=(10 * SECOND,))


async def take(queue_place: QueuePlace, call: int, most: int = 10) -> Taken:
    return await queue_place.store.take(SOURCE, RULES, [LoanWish(most, "w1")], TakeCall("n1", f"{call}"))


async def test_a_take_says_when_the_next_one_comes_back(queue_place: QueuePlace) -> None:
    assert await take(queue_place, 1) == Taken([None]), "nothing was ever fed"
    await queue_place.store.feed(SOURCE, 0, 0, 3, grouped([Reference(1), Reference(2), Reference(3)]), 100)
    first = await take(queue_place, 2, most=1)
    assert first.due is None, "there was what was asked for, and there may be more"
    (loan,) = first.loans
    assert loan is not None
    assert (await take(queue_place, 3)).due is None
    assert await take(queue_place, 4) == Taken([None], 30 * SECOND)
    await queue_place.pass_time(5 * SECOND)
    await queue_place.store.settle(SOURCE, RULES, loan.life, [Settlement(loan.number, SettleHow.RETRY)], 1000)
    assert await take(queue_place, 5) == Taken([None], 10 * SECOND)
    await queue_place.pass_time(9 * SECOND + 999_999)
    assert await take(queue_place, 6) == Taken([None], 1)
    await queue_place.pass_time(1)
    again = await take(queue_place, 7)
    assert [one and one.deliveries for one in again.loans] == [1]
    assert (await take(queue_place, 8)).due == 15 * SECOND, "the other loan runs out"
    await queue_place.store.forget([SOURCE])
    assert (await take(queue_place, 9)).due is None


async def test_a_token_of_a_window_that_began_anew_settles_nothing(queue_place: QueuePlace) -> None:
    """Numbers of loans are instants, and a window that was forgotten may give one again within an instant."""
    await queue_place.store.feed(SOURCE, 0, 0, 1, grouped([Reference(1)]), 100)
    (before,) = (await take(queue_place, 1)).loans
    await queue_place.store.forget([SOURCE])
    await queue_place.store.feed(SOURCE, 0, 0, 1, grouped([Reference(1)]), 100)
    (after,) = (await take(queue_place, 2)).loans
    assert before is not None
    assert after is not None
    assert before.number == after.number
    said = [Settlement(before.number, SettleHow.DONE)]
    assert (await queue_place.store.settle(SOURCE, RULES, before.life, said, 1000)).count == 0
    assert (await queue_place.store.settle(SOURCE, RULES, after.life, said, 1000)).count == 1


async def test_what_failed_is_lent_with_few_others_and_then_alone(queue_place: QueuePlace) -> None:
    await queue_place.store.feed(SOURCE, 0, 0, 20, grouped([Reference(1 + at) for at in range(20)]), 100)
    for call, count in enumerate((20, SUSPECTS, 1)):
        (loan,) = (await take(queue_place, call, most=20)).loans
        assert loan is not None
        assert (loan.deliveries, len(loan.references)) == (call, count)
        await queue_place.store.settle(
            SOURCE, RULES, loan.life, [Settlement(loan.number, SettleHow.RETRY, amount=0)], 1000
        )
