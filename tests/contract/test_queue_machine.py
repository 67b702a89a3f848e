"""Random histories of a queue's window, on the state machine without I/O, a real Redis and a folder: all must agree.

Beside them stands a ledger that knows only what consumers see, and says what must never happen.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from app.core.events.event import Shard
from app.core.queues.loans import (
    HELD,
    MOST_DATED,
    MOST_IN_GROUP,
    SUSPECTS,
    DatedGroup,
    Dying,
    LendingRules,
    Loan,
    LoanWish,
    QueueSource,
    Reference,
    ReferenceGroup,
    SettleHow,
    Settlement,
    grouped,
)
from app.store.memory.queues import MemoryQueues
from app.store.queues import TakeCall
from tests.contract.queue_places import BEGIN, QueuePlace, with_set_clock

T = TypeVar("T")
SECOND = 1_000_000
SHARD = Shard("events", 0)
SOURCE = QueueSource("01QUEUE", SHARD)
MOST = 300
RULES = (
    LendingRules(loan=10 * SECOND, retry=(SECOND, 5 * SECOND), max_deliveries=4),
    LendingRules(loan=10 * SECOND, retry=(SECOND,), max_deliveries=3, ordered=True),
    LendingRules(loan=5 * SECOND, max_deliveries=0, ttl=60 * SECOND),
    LendingRules(loan=10 * SECOND, ordered=True, ttl=60 * SECOND),
    LendingRules(loan=10 * SECOND, max_deliveries=1, single=True),
)


@dataclass
class Ledger:
    """The knowledge of consumers and the feeder."""

    fed: dict[int, int] = field(default_factory=dict)
    """Position -> key, of all that was fed in this life and has not ended."""
    dated: dict[int, int] = field(default_factory=dict)
    """Position -> the instant before which it must not be lent."""
    lent: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Position -> number of the loan, and until when nobody else may have it."""


@dataclass
class Side:
    place: QueuePlace
    loans: dict[int, Loan] = field(default_factory=dict)
    """The loans, by their number among all of the history."""


@dataclass
class Stage:
    runner: asyncio.Runner
    places: list[QueuePlace]

    def run(self, step: Awaitable[T]) -> T:
        async def outcome() -> T:
            return await step

        return self.runner.run(outcome())


@pytest.fixture
def stage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with_set_clock(monkeypatch)
    with asyncio.Runner() as runner:
        stage = Stage(runner, [QueuePlace(name, request) for name in ("memory", "redis", "rocks")])
        for place in stage.places:
            stage.run(place.start())
        yield stage
        for place in stage.places:
            stage.run(place.store.close())


def said_of(loan: Loan | None) -> tuple[object, ...] | None:
    """All but the life, which is random."""
    return None if loan is None else tuple(loan[1:])


class Histories(RuleBasedStateMachine):
    """Every rule is one step on all sides."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.ledger = Ledger()
        self.sides: list[Side] = []
        self.numbers: list[int] = []
        self.lives: list[dict[int, str]] = []
        self.at = BEGIN
        self.call = 0
        self.last: tuple[list[LoanWish], TakeCall] | None = None

    @initialize(rules=st.sampled_from(RULES))
    def empty(self, rules: LendingRules) -> None:
        self.lending = rules
        for place in self.stage.places:
            self.stage.run(place.empty())
            self.sides.append(Side(place))
        self.fed = self.at

    @property
    def now(self) -> int:
        return self.sides[0].place.clock.micros

    def every(self, steps: list[Awaitable[T]]) -> T:
        """The one thing that all sides say."""
        found = [self.stage.run(step) for step in steps]
        assert all(one == found[0] for one in found), found
        return found[0]

    @rule(
        count=st.integers(0, 40),
        keys=st.integers(1, 5),
        missed=st.sampled_from([0, 0, 3]),
        stale=st.sampled_from([False, False, False, True]),
        ahead=st.lists(st.sampled_from([0, 2 * SECOND, 15 * SECOND]), max_size=4),
    )
    def feed(self, count: int, keys: int, missed: int, stale: bool, ahead: list[int]) -> None:  # noqa: FBT001 - hypothesis names it
        begin = max(self.now, self.fed) + 1
        every = [
            Reference(begin + at, 1 + at % keys if self.lending.ordered else 0) for at in range(count + len(ahead))
        ]
        references, waiting = every[:count], every[count:]
        dated = [
            DatedGroup(self.now + after, ReferenceGroup(0, (one,))) for after, one in zip(ahead, waiting, strict=True)
        ]
        target, expected = begin + len(every), self.fed - 1 if stale else self.fed
        found = self.every(
            [
                one.place.store.feed(SOURCE, self.at, expected, target, grouped(references), MOST, missed, dated)
                for one in self.sides
            ]
        )
        if found.fed == target:
            assert not stale
            self.fed = target
            self.ledger.fed |= {one.position: one.key for one in every}
            self.ledger.dated |= {one.position: self.now + after for after, one in zip(ahead, waiting, strict=True)}
        assert found.fed == self.fed
        assert found.size <= MOST
        assert found.dated <= MOST_DATED

    @rule(consumer=st.sampled_from("abc"))
    def dismiss(self, consumer: str) -> None:
        count = self.every([one.place.store.dismiss(SOURCE, consumer) for one in self.sides])
        mine = {number for number in self.numbers if self.sides[0].loans[number].consumer == consumer}
        back = [at for at, (number, _) in self.ledger.lent.items() if number in mine]
        for at in back:
            del self.ledger.lent[at]
        assert count <= len(back)

    @rule(
        wishes=st.lists(
            st.builds(LoanWish, st.integers(1, 30), st.sampled_from("abc"), st.booleans()), min_size=1, max_size=3
        ),
        node=st.sampled_from(["n1", "n2"]),
    )
    def take(self, wishes: list[LoanWish], node: str) -> None:
        self.call += 1
        call = TakeCall(node, f"{self.call:08x}")
        taken = [self.stage.run(one.place.store.take(SOURCE, self.lending, wishes, call)) for one in self.sides]
        assert len({one.due for one in taken}) == 1, "when the next one comes back"
        found = [one.loans for one in taken]
        assert all([said_of(one) for one in other] == [said_of(one) for one in found[0]] for other in found)
        self.last = (
            (wishes, call) if any(one and one.references for one in found[0]) else None
        )  # who was lent nothing is not remembered
        for place, loan in enumerate(found[0]):
            if loan is None or loan is HELD:
                continue
            assert loan.number not in self.numbers
            self.numbers.append(loan.number)
            self.lives.append({side: loans[place].life for side, loans in enumerate(found)})  # type: ignore[union-attr] # as the others have one
            for side, loans in zip(self.sides, found, strict=True):
                one = loans[place]
                assert one is not None
                side.loans[loan.number] = one
            self._lent(loan, wishes[place].most)

    def _lent(self, loan: Loan, most: int) -> None:
        """Nothing is lent to two, and no device has two events out, or a later one before an earlier one."""
        bound = MOST_IN_GROUP if loan.deliveries == 0 else SUSPECTS if loan.deliveries == 1 else 1
        assert 0 < len(loan.references) <= min(most, bound)
        for reference in loan.references:
            assert self.ledger.fed.get(reference.position) == reference.key, "lent though it was settled, or never fed"
            assert self.ledger.dated.get(reference.position, 0) <= self.now, "lent before its instant"
            held = self.ledger.lent.get(reference.position)
            assert held is None or held[1] <= self.now, "lent to two"
            self.ledger.lent[reference.position] = loan.number, loan.until
        if self.lending.ordered:
            for reference in loan.references:
                earlier = [
                    at
                    for at, key in self.ledger.fed.items()
                    if key == reference.key and at < reference.position and at not in self.ledger.dated
                ]
                if reference.position in self.ledger.dated:  # its place in the order is that of its instant
                    earlier = [at for at in self.ledger.lent if self.ledger.fed.get(at) == reference.key]
                    earlier = [at for at in earlier if self.ledger.lent[at][1] > self.now and at != reference.position]
                assert all(self._is_gone(at) for at in earlier), "a later event of a device before an earlier one"

    def _is_gone(self, position: int) -> bool:
        """True if it may have ended without a word to the ledger: as a dead letter, or too old."""
        if self.lending.ttl and position <= self.now - self.lending.ttl:
            return True
        return position in self.buried()

    def buried(self) -> set[int]:
        store = self.sides[0].place.store
        assert isinstance(store, MemoryQueues)
        entries = store.cemeteries[SHARD].entries
        return {one.reference.position for one in entries}

    @rule()
    def take_again(self) -> None:
        """The answer was lost, and the call comes again."""
        if self.last is None:
            return
        found = [self.stage.run(one.place.store.take(SOURCE, self.lending, *self.last)).loans for one in self.sides]
        assert all([said_of(one) for one in other] == [said_of(one) for one in found[0]] for other in found)
        assert all(one is None or one is HELD or one.number in self.numbers for one in found[0]), "lent anew"

    @rule(
        data=st.data(),
        how=st.sampled_from(list(SettleHow)),
        amount=st.sampled_from([-1, 0, 3 * SECOND]),
        old_life=st.sampled_from([False, False, False, True]),
    )
    def settle(self, data: st.DataObject, how: SettleHow, amount: int, old_life: bool) -> None:  # noqa: FBT001 - hypothesis names it
        if not self.numbers:
            return
        number = data.draw(st.sampled_from(self.numbers[-6:]))
        loan = self.sides[0].loans[number]
        indexes = tuple(data.draw(st.lists(st.integers(0, len(loan.references)), max_size=5)))
        if how is SettleHow.EXTEND:
            amount = 20 * SECOND
        one = Settlement(number, how, indexes, -1 if how is SettleHow.DEAD else amount, "poison")
        before = self.buried()
        found = self.every(
            [
                side.place.store.settle(
                    SOURCE, self.lending, "00000000" if old_life else side.loans[number].life, [one], 1000
                )
                for side in self.sides
            ]
        )
        over = {index for _, index in found.over}
        if -1 in over or old_life:
            assert found.count == 0
            return
        for index in (index for index in dict.fromkeys(indexes) or range(len(loan.references)) if index not in over):
            self._settled(loan.references[index].position, one, before)

    def _settled(self, position: int, one: Settlement, before: set[int]) -> None:
        mine = self.ledger.lent.get(position, (0, 0))[0] == one.number
        if not one.indexes and not mine:
            return  # it was settled before the rest was
        assert mine, "settled by a loan that was over"
        if one.how is SettleHow.EXTEND:
            for at, (number, _) in list(self.ledger.lent.items()):
                if number == one.number:
                    self.ledger.lent[at] = number, self.now + one.amount
            return
        del self.ledger.lent[position]
        if one.how in (SettleHow.DONE, SettleHow.EXPIRED) or position in self.buried() - before:
            del self.ledger.fed[position]

    @rule(seconds=st.sampled_from([0, 1, 4, 11, 70]))
    def wait(self, seconds: int) -> None:
        for side in self.sides:
            self.stage.run(side.place.pass_time(seconds * SECOND + 1))

    @rule(most=st.integers(1, 5), taken=st.booleans())
    def bury(self, most: int, taken: bool) -> None:  # noqa: FBT001 - hypothesis names it
        found = self.every([self._dying(side, most) for side in self.sides])
        for one in found:
            self.ledger.fed.pop(one.reference.position, None)
            self.ledger.lent.pop(one.reference.position, None)
        assert self.every([self._dying(side, 5) for side in self.sides]) == found, (
            "not the same ones until they are off"
        )
        if taken and found:
            for side in self.sides:
                self.stage.run(side.place.store.buried(SHARD, found[-1].number))

    @staticmethod
    async def _dying(side: Side, most: int) -> list[Dying]:
        return list(await side.place.store.dying(SHARD, most))

    @rule()
    def restart(self) -> None:
        """The content of a folder survives; that a call was answered does not."""
        self.last = None
        for side in self.sides:
            self.stage.run(side.place.restart())

    @rule(back=st.sampled_from([False, True]))
    def rewind(self, back: bool) -> None:  # noqa: FBT001 - hypothesis names it
        self.fed = BEGIN if back else self.fed
        for side in self.sides:
            self.stage.run(side.place.store.seek(SOURCE, self.fed))
        self.ledger = Ledger()

    @invariant()
    def nothing_is_lost(self) -> None:
        if not self.sides:
            return
        states = [self.stage.run(side.place.store.states([SOURCE]))[0] for side in self.sides]
        assert all(one == states[0] for one in states), states
        state = states[0]
        if state is None:
            return
        there = {at for at in self.ledger.fed if at not in self.buried()}
        if not self.lending.ttl:
            assert state.size == len(there), "an event is neither settled nor in the window"
        assert min(state.ready, state.lent, state.later, state.held_back) >= 0
        assert replace(state, oldest=0).size == state.ready + state.lent + state.later + state.held_back


def test_random_histories_of_a_window(stage: Stage) -> None:
    run_state_machine_as_test(
        partial(Histories, stage),  # type: ignore[arg-type] # any factory will do
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )


def test_keys_that_the_ledger_uses_are_grouped() -> None:
    groups = defaultdict(list)
    for group in grouped([Reference(at) for at in range(300)]):
        groups[len(group.references)].append(group)
    assert {size: len(found) for size, found in groups.items()} == {128: 2, 44: 1}
