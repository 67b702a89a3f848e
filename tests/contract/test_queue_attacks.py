"""Two who get in each other's way at one window, in each engine: late settlements, dismissals, dates, declarations."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from app.core.errors import QueueChangedError
from app.core.events.event import Shard
from app.core.queues.loans import (
    HELD,
    LONGEST_LOAN_US,
    MOST_DATED,
    DatedGroup,
    LendingRules,
    Loan,
    LoanWish,
    QueueSource,
    Reference,
    ReferenceGroup,
    Settled,
    SettleHow,
    Settlement,
    SourceState,
    grouped,
)
from app.core.queues.model import QueueOptions, TopicRoute
from app.queues.book import QueueBook
from app.store.queues import TakeCall
from tests.contract.queue_places import BEGIN, QueuePlace

SOURCE = QueueSource("01ATTACK", Shard("events", 0))
SECOND = 1_000_000
RULES = LendingRules(loan=10 * SECOND, retry=(5 * SECOND,), max_deliveries=0)
ORDERED = LendingRules(loan=10 * SECOND, retry=(5 * SECOND,), max_deliveries=0, ordered=True)
OPTIONS = QueueOptions(routes=(TopicRoute("events", "site/+/alarm"),))


class Window:
    """One window of an engine, and those who take from it."""

    def __init__(self, queue_place: QueuePlace) -> None:
        self.place = queue_place
        self.rules = RULES
        self._calls = count()

    async def feed(self, *references: Reference, dated: dict[int, int] | None = None) -> int:
        """Feed these, and what is dated by position; return up to where it is fed then."""
        (state,) = await self.place.store.states([SOURCE])
        fed = 0 if state is None else state.fed
        last = max((*(one.position for one in references), *(dated or ())), default=fed)
        waiting = [DatedGroup(at, ReferenceGroup(0, (Reference(one),))) for one, at in (dated or {}).items()]
        found = await self.place.store.feed(SOURCE, 0, fed, last, grouped(references), 5000, 0, waiting)
        return found.fed

    async def take(self, consumer: str = "w1", most: int = 10) -> Loan | None:
        call = TakeCall("n1", str(next(self._calls)))
        return (await self.place.store.take(SOURCE, self.rules, [LoanWish(most, consumer)], call)).loans[0]

    async def lent(self, consumer: str = "w1", most: int = 10) -> Loan:
        loan = await self.take(consumer, most)
        assert loan is not None
        assert loan is not HELD
        return loan

    async def settle(self, loan: Loan, *said: Settlement) -> Settled:
        return await self.place.store.settle(SOURCE, self.rules, loan.life, said, 1000)

    async def say(self, loan: Loan, how: SettleHow, amount: int = -1) -> Settled:
        return await self.settle(loan, Settlement(loan.number, how, (), amount))

    async def state(self) -> SourceState:
        (found,) = await self.place.store.states([SOURCE])
        assert found is not None
        return found


@pytest.fixture
def window(queue_place: QueuePlace) -> Window:
    return Window(queue_place)


def positions(loan: Loan | None) -> list[int]:
    return [] if loan is None else [one.position for one in loan.references]


@pytest.mark.parametrize("how", [one for one in SettleHow if one is not SettleHow.EXPIRED])
async def test_a_loan_that_is_over_settles_nothing_while_another_has_the_event(window: Window, how: SettleHow) -> None:
    await window.feed(Reference(1))
    late = await window.lent("w1")
    await window.place.pass_time(11 * SECOND)
    other = await window.lent("w2")
    before = await window.state()
    assert await window.say(late, how, 60 * SECOND) == Settled(0, ((late.number, -1),))
    assert await window.state() == before, "the other one has it still, until its own deadline"
    await window.place.pass_time(9 * SECOND)
    assert await window.take("w3") is None
    assert (await window.say(other, SettleHow.DONE)).count == 1


async def test_one_event_in_two_settlements_of_a_call_is_settled_by_the_first(window: Window) -> None:
    await window.feed(Reference(1), Reference(2))
    loan = await window.lent()
    said = (
        Settlement(loan.number, SettleHow.DONE, (0, 0)),
        Settlement(loan.number, SettleHow.RETRY, (0,)),
        Settlement(loan.number, SettleHow.DEAD, (0, 1), reason="poison"),
        Settlement(loan.number, SettleHow.RELEASE),
    )
    found = await window.settle(loan, *said)
    assert found == Settled(2, ((loan.number, 0), (loan.number, 0), (loan.number, -1)))
    state = await window.state()
    assert (state.done, state.retried, state.dead, state.size) == (1, 0, 1, 0)


async def test_who_extends_for_ever_loses_it_to_a_purge_and_to_half_a_day(window: Window) -> None:
    await window.feed(Reference(1), Reference(2))
    loan = await window.lent(most=1)
    await window.say(loan, SettleHow.EXTEND, 30 * SECOND)
    await window.place.store.seek(SOURCE, 2)
    assert (await window.say(loan, SettleHow.EXTEND, 30 * SECOND)).count == 0, "purged under its hands"
    assert (await window.state()).size == 0
    await window.feed(Reference(3))
    loan = await window.lent()
    for _ in range(13):
        await window.place.pass_time(3600 * SECOND)
        await window.say(loan, SettleHow.EXTEND, 2 * 3600 * SECOND)
    assert window.place.clock.micros > loan.number + LONGEST_LOAN_US
    assert positions(await window.take("w2")) == [3]
    assert (await window.say(loan, SettleHow.EXTEND, SECOND)).count == 0


async def test_who_asks_for_little_takes_no_time_from_the_others_of_a_loan(window: Window) -> None:
    """All events of a loan have one deadline, and a connection that keeps it counts on what it has."""
    await window.feed(Reference(1), Reference(2))
    loan = await window.lent()
    found = await window.settle(loan, Settlement(loan.number, SettleHow.EXTEND, (0,), SECOND))
    assert found == Settled(1, ())
    await window.place.pass_time(9 * SECOND)
    assert await window.take("w2") is None, "it was lent for ten seconds"
    assert (await window.say(loan, SettleHow.DONE)).count == 2


async def test_a_consumer_that_dies_behind_the_lock_of_a_device_lets_no_later_event_pass(window: Window) -> None:
    """The lock is held from the loan through its end and a retry of another consumer, until the event is settled."""
    window.rules = ORDERED
    await window.feed(Reference(1, 7), Reference(2, 7), Reference(3, 8))
    dead = await window.lent("dies", most=1)
    assert positions(dead) == [1]
    assert positions(await window.take("w2")) == [3], "another device is not held up"
    await window.place.pass_time(11 * SECOND)
    again = await window.lent("w2")
    assert (positions(again), again.deliveries) == ([1, 3], 1)
    assert (await window.say(dead, SettleHow.RETRY, 0)).count == 0, "a retry that comes too late opens nothing"
    await window.settle(again, Settlement(again.number, SettleHow.RETRY, (0,)))
    await window.settle(again, Settlement(again.number, SettleHow.DONE, (1,)))
    assert await window.take("w3") is None
    await window.place.pass_time(5 * SECOND)
    first = await window.lent("w3")
    assert positions(first) == [1]
    assert (await window.say(first, SettleHow.DONE)).count == 1
    assert positions(await window.take("w3")) == [2]


async def test_what_a_consumer_had_is_lent_to_others_when_it_is_sent_away(window: Window) -> None:
    await window.feed(*(Reference(1 + at) for at in range(6)))
    first, second = await window.lent("w1", 2), await window.lent("w1", 2)
    other = await window.lent("w2", 1)
    await window.settle(first, Settlement(first.number, SettleHow.DONE, (0,)))
    assert await window.place.store.dismiss(SOURCE, "w1") == 3
    assert await window.place.store.dismiss(SOURCE, "w1") == 0
    assert (await window.say(second, SettleHow.DONE)).count == 0
    state = await window.state()
    assert (state.lent, state.size, [name for name, _ in state.consumers]) == (1, 5, ["w2"])
    taken = await window.lent("w3")
    assert (positions(taken), taken.deliveries) == ([2, 3], 0), "in their order, and as if they had never been lent"
    assert (await window.say(other, SettleHow.DONE)).count == 1
    assert await window.place.store.dismiss(QueueSource("01NOBODY", SOURCE.shard), "w1") == 0


async def test_who_holds_a_queue_alone_is_sent_away_and_another_holds_it(window: Window) -> None:
    window.rules = LendingRules(loan=10 * SECOND, single=True)
    await window.feed(Reference(1))
    await window.lent("w1")
    assert await window.take("w2") is HELD
    assert await window.place.store.dismiss(SOURCE, "w1") == 1
    assert positions(await window.take("w2")) == [1]
    assert await window.take("w1") is HELD


async def test_a_device_keeps_its_order_when_its_consumer_is_sent_away(window: Window) -> None:
    window.rules = ORDERED
    await window.feed(Reference(1, 7), Reference(2, 7))
    await window.lent("w1", 1)
    await window.place.store.dismiss(SOURCE, "w1")
    assert positions(await window.take("w2")) == [1]
    assert await window.take("w2") is None


async def test_what_is_dated_waits_beside_the_window_and_is_lent_at_its_instant(window: Window) -> None:
    now = BEGIN
    await window.feed(Reference(1), Reference(2), dated={3: now + 20 * SECOND, 4: now + 5 * SECOND})
    state = await window.state()
    assert (state.size, state.later, state.dated, state.ready) == (4, 2, 2, 2)
    assert positions(await window.take()) == [1, 2]
    assert await window.take() is None
    await window.place.pass_time(5 * SECOND)
    first = await window.lent("w2")
    assert (positions(first), first.deliveries) == ([4], 0)
    await window.say(first, SettleHow.RETRY, 100 * SECOND)
    state = await window.state()
    assert (state.later, state.dated) == (2, 1), "what is retried is not dated any more"
    await window.place.restart()
    await window.place.pass_time(14 * SECOND + 999_999)
    assert 3 not in positions(await window.take())
    await window.place.pass_time(1)
    assert 3 in positions(await window.take())
    assert (await window.state()).dated == 0


async def test_what_is_dated_is_bounded_and_takes_no_room_of_the_window(window: Window) -> None:
    later = BEGIN + 3600 * SECOND
    full = {1 + at: later for at in range(MOST_DATED)}
    assert await window.feed(dated=full) == MOST_DATED
    one_more = await window.place.store.feed(
        SOURCE, 0, MOST_DATED, 2000, [], 5000, 0, [DatedGroup(later, ReferenceGroup(0, (Reference(2000),)))]
    )
    assert (one_more.fed, one_more.size, one_more.dated) == (MOST_DATED, 0, MOST_DATED)
    assert await window.feed(Reference(3000)) == 3000
    assert positions(await window.take()) == [3000]
    await window.place.store.seek(SOURCE, 3000)
    assert (await window.state()).dated == 0
    assert await window.feed(dated={4000: later}) == 4000


async def test_two_who_declare_and_delete_a_queue_leave_one_or_none(queue_place: QueuePlace) -> None:
    """A caller gets a queue that was there, and never the id of one that was deleted before."""
    ids = count()
    books = [QueueBook(queue_place.declared, ["events"], lambda: f"01ID{next(ids)}") for _ in range(2)]
    ended: list[str] = []

    async def declare(book: QueueBook) -> None:
        for _ in range(10):
            try:
                queue, new = await book.declare("", "alarms", OPTIONS, 0, BEGIN, lambda _: False)
            except QueueChangedError:
                continue
            assert new or queue.id in {one.id for one in book.all} | {*ended}

    async def delete(book: QueueBook) -> None:
        for _ in range(10):
            await book.refresh()
            for queue in book.all:
                try:
                    if await book.delete(queue):
                        assert queue.id not in ended, "deleted twice"
                        ended.append(queue.id)
                except QueueChangedError:
                    continue

    await asyncio.gather(*(declare(one) for one in books), *(delete(one) for one in books))
    for one in books:
        await one.refresh()
    assert books[0].all == books[1].all
    assert len(books[0].all) <= 1
    assert not {one.id for one in books[0].all} & {*ended}


async def test_who_asks_for_a_queue_in_which_nothing_is_is_known(queue_place: QueuePlace) -> None:
    """The source of its dead letters is one that each queue has."""
    dead, store = SOURCE._replace(dead=True), queue_place.store
    assert (await store.take(dead, RULES, [LoanWish(1, "w1")], TakeCall("n1", "1"))).loans == [None]
    (state,) = await store.states([dead])
    assert state is not None
    assert (state.fed, state.size, [name for name, _ in state.consumers]) == (0, 0, ["w1"])
    assert state.asked == queue_place.clock.micros
    await store.redrive(dead, 9)
    await store.redrive(dead, 4)
    (state,) = await store.states([dead])
    assert state is not None
    assert state.until == 9, "what was said before stands"
    assert (await store.feed(dead, 0, 0, 9, grouped([Reference(5)]), 100)).fed == 9
    (loan,) = (await store.take(dead, RULES, [LoanWish(1, "w1")], TakeCall("n1", "2"))).loans
    assert positions(loan) == [5]
    assert (await store.take(SOURCE, RULES, [LoanWish(1, "w1")], TakeCall("n1", "3"))).loans == [None]
    assert await store.states([SOURCE]) == [None], "another one begins when something is fed"


async def test_who_asks_until_when_the_last_loan_stands_is_told_so(window: Window) -> None:
    store, sources = window.place.store, [SOURCE, QueueSource("01NONE", SOURCE.shard)]
    assert await store.lent_until(sources) == 0
    await window.feed(Reference(1), Reference(2), Reference(3))
    first = await window.lent(most=1)
    await window.place.pass_time(SECOND)
    second = await window.lent(most=1)
    assert await store.lent_until(sources) == second.until
    await window.say(first, SettleHow.EXTEND, 30 * SECOND)
    assert await store.lent_until(sources) == second.until + 20 * SECOND
    await window.say(first, SettleHow.RETRY, 3600 * SECOND)
    assert await store.lent_until(sources) == second.until, "what is retried is lent to nobody"
    await window.say(second, SettleHow.DONE)
    assert await store.lent_until(sources) == 0


async def test_who_takes_letters_off_too_late_changes_nothing_for_those_that_are_being_buried(window: Window) -> None:
    """A node that was frozen says it once more, while another one has appended the next ones and not taken them off."""
    store, shard = window.place.store, SOURCE.shard

    async def die(*places: int) -> None:
        await window.feed(*map(Reference, places))
        await window.say(await window.lent(), SettleHow.DEAD)

    await die(1, 2)
    before = await store.dying(shard, 64)
    await store.buried(shard, before[-1].number)
    await die(3)
    buried = await store.dying(shard, 64)
    await store.buried(shard, before[-1].number)
    await die(4)
    assert await store.dying(shard, 64) == buried, "else the one that was appended comes twice, in another batch"
    await store.buried(shard, buried[-1].number)
    assert [one.reference.position for one in await store.dying(shard, 64)] == [4]
