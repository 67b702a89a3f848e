"""The bounds of what an engine keeps for a queue: letters that wait to be written, and consumers that are known."""

from __future__ import annotations

from itertools import count

from app.core.events.event import Shard
from app.core.queues.loans import (
    MOST_CONSUMERS,
    MOST_DYING,
    MOST_IN_GROUP,
    WINDOW,
    LendingRules,
    LoanWish,
    QueueSource,
    Reference,
    SettleHow,
    Settlement,
    SourceState,
    grouped,
)
from app.store.queues import TakeCall
from tests.contract.queue_places import QueuePlace

SOURCE = QueueSource("01BOUND", Shard("events", 0))
SECOND = 1_000_000
RULES = LendingRules(loan=60 * SECOND, retry=(SECOND,), max_deliveries=0)


async def test_what_dies_while_too_much_is_dying_is_tried_again(queue_place: QueuePlace) -> None:
    store, calls, fed, dead = queue_place.store, count(), 0, 0
    while dead < MOST_DYING:
        events = [Reference(fed + 1 + place) for place in range(WINDOW)]
        found = await store.feed(SOURCE, 0, fed, fed + WINDOW, grouped(events), WINDOW)
        fed = found.fed
        for _ in range(WINDOW // MOST_IN_GROUP):
            taken = await store.take(SOURCE, RULES, [LoanWish(WINDOW, "w1")], TakeCall("n1", str(next(calls))))
            (loan,) = taken.loans
            assert loan is not None
            said = Settlement(loan.number, SettleHow.DEAD, reason="poison")
            settled = await store.settle(SOURCE, RULES, loan.life, [said], 1000)
            assert (settled.count, settled.over) == (len(loan.references), ())
            dead += len(loan.references)
    state = await state_of(queue_place)
    assert (state.dead, state.retried) == (MOST_DYING, dead - MOST_DYING)
    assert state.size == state.later == dead - MOST_DYING, "what has no room is in the window still, and comes again"
    (first, *_) = await store.dying(SOURCE.shard, 1)
    await store.buried(SOURCE.shard, first.number)
    await queue_place.pass_time(SECOND)
    taken = await store.take(SOURCE, RULES, [LoanWish(2, "w1")], TakeCall("n1", str(next(calls))))
    (loan,) = taken.loans
    assert loan is not None
    assert (loan.deliveries, len(loan.references)) == (1, 2)
    await store.settle(SOURCE, RULES, loan.life, [Settlement(loan.number, SettleHow.DEAD)], 1000)
    state = await state_of(queue_place)
    assert (state.dead, state.later) == (MOST_DYING + 1, 1), "there is room for one again"


async def state_of(place: QueuePlace) -> SourceState:
    (found,) = await place.store.states([SOURCE])
    assert found is not None
    return found


async def test_so_many_consumers_are_known_and_others_are_lent_all_the_same(queue_place: QueuePlace) -> None:
    store = queue_place.store
    names = [f"w{number}" for number in range(MOST_CONSUMERS + 2)]
    await store.feed(SOURCE, 0, 0, len(names), grouped([Reference(1 + place) for place in range(len(names))]), WINDOW)
    taken = await store.take(SOURCE, RULES, [LoanWish(1, name) for name in names], TakeCall("n1", "1"))
    assert None not in taken.loans
    state = await state_of(queue_place)
    assert [name for name, _ in state.consumers] == sorted(names[:MOST_CONSUMERS])
    assert state.lent == len(names)
