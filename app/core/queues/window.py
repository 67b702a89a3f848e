"""The window of a queue over one shard: what was fed and is not settled. A state machine without I/O.

The scripts in `store/redis/lua/queues` are its twin; the same histories are run on both. Every call is given the
time of the store: what is in a window goes by the clock that no step moves, and what it tells by the one on the wall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from app.core.events.event import Position
from app.core.queues.lines import GroupLine, LaterGroups
from app.core.queues.loans import (
    CONSUMER_US,
    HELD,
    LATELY_US,
    LONGEST_LOAN_US,
    MOST_CONSUMERS,
    MOST_DATED,
    MOST_DUE,
    MOST_IN_GROUP,
    MOST_LOOKED_AT,
    NOTED_US,
    SUSPECTS,
    DatedGroup,
    Fed,
    LendingRules,
    Loan,
    LoanWish,
    Reference,
    ReferenceGroup,
    Settled,
    SettleHow,
    Settlement,
    SourceState,
)
from app.core.queues.memoir import KeptLoan, WindowFacts, WindowMemoir
from app.core.queues.orders import DeviceOrders
from app.core.queues.times import QueueStoreTime

Bury = Callable[[int, str, str, Reference], bool]
"""Takes a reference that is to be a dead letter: deliveries, reason, consumer, reference. False: there is no room."""


@dataclass(slots=True)
class _Lent:
    consumer: str
    deliveries: int
    deadline: Position
    references: tuple[Reference, ...]
    outstanding: set[int]


class QueueWindow:
    """`life` is given anew whenever the window begins anew."""

    def __init__(self, life: str, fed: Position, until: Position = 0) -> None:
        self.life = life
        self.fed = fed
        self.until = until
        self._serial = 0
        self._size = self._lent = 0
        self._ready: Final = GroupLine()
        self._loans: dict[int, _Lent] = {}
        self._later: Final = LaterGroups()
        self._orders: Final = DeviceOrders()
        self._consumers: dict[str, Position] = {}
        self._holder = ""
        self._held_at: Position = 0
        self._asked: Position = 0
        self._done = self._retried = self._dead = self._expired = self._missed = self._delivered = self._again = 0

    def feed(
        self,
        time: QueueStoreTime,
        expected: Position,
        fed: Position,
        groups: Sequence[ReferenceGroup],
        most: int,
        missed: int = 0,
        dated: Sequence[DatedGroup] = (),
    ) -> Fed:
        """Append groups behind all others if the source was fed up to what is expected, and has room for them.

        `missed` events were passed over, as the log drops them. What is dated waits beside the window until it is due.
        """
        count, waiting = _count(groups), _count(one.group for one in dated)
        has_room = self._size - self._later.dated + count <= most and self._later.dated + waiting <= MOST_DATED
        if self.fed == expected and has_room:
            self.fed = fed
            self._ready.extend(groups)
            for one in dated:
                self._later.put(self._next_number(time.now), one)
            self._size += count + waiting
            self._missed += missed
            self._expired += missed
        return Fed(self.fed, self._size - self._later.dated, time.shown(self._asked), self._later.dated)

    def seek(self, life: str, fed: Position) -> None:
        """Begin anew elsewhere: what is lent is not known any more."""
        self.life, self.fed = life, fed
        self._size = self._lent = 0
        self._ready.clear()
        self._loans.clear()
        self._later.clear()
        self._orders.clear()
        self._holder, self._held_at = "", 0

    def dismiss(self, consumer: str) -> int:
        """Bring back all that a consumer was lent, as if it had given it back, and forget it; how many references."""
        numbers = sorted(number for number, one in self._loans.items() if one.consumer == consumer)
        back = [self._loans.pop(number) for number in numbers]
        groups = [
            ReferenceGroup(one.deliveries, tuple(one.references[place] for place in sorted(one.outstanding)))
            for one in back
        ]
        self._ready.extendleft(reversed(groups))
        self._lent -= _count(groups)
        self._consumers.pop(consumer, None)
        if self._holder == consumer:
            self._holder, self._held_at = "", 0
        return _count(groups)

    def take(
        self, time: QueueStoreTime, rules: LendingRules, wishes: Sequence[LoanWish], bury: Bury
    ) -> list[Loan | None]:
        """Bring back what is due, then lend: a loan for each wish, or None."""
        self._return_due(time, rules, bury)
        if time.now - self._asked >= NOTED_US:
            self._asked = time.now
        loans: list[Loan | None] = []
        looked = 0
        for wish in wishes:
            self._announce(time.now, wish)
            if rules.single and not self._may_hold(time.now, wish, rules.loan):
                loans.append(HELD)
                continue
            loan, looked = self._lend(time, rules, wish, looked)
            loans.append(loan)
        return loans

    def due(self, time: QueueStoreTime) -> int | None:
        """Return after how many µs the next loan runs out, or a retry comes back; None: there is neither."""
        instants = [one.deadline for one in self._loans.values()] + [at for at, _ in self._later.due(time)]
        return max(0, min(instants) - time.now) if instants else None

    def settle(
        self, now: Position, life: str, rules: LendingRules, said: Sequence[Settlement], jitter: int, bury: Bury
    ) -> Settled:
        """Settle loans of this life. `jitter`: times between retries take so many thousandths."""
        if life != self.life:
            return Settled(0, tuple((one.number, index) for one in said for index in one.indexes or (-1,)))
        count, over = 0, list[tuple[int, int]]()
        freed: list[Reference] = []
        for one in said:
            count += self._settle_one(now, rules, one, jitter, bury, over, freed)
        if freed:
            self._ready.append(ReferenceGroup(0, tuple(freed)))
        return Settled(count, tuple(over))

    def lent_until(self, time: QueueStoreTime) -> Position:
        """Return until when the last loan stands, or stood; 0: nothing is lent."""
        return time.shown(max((one.deadline for one in self._loans.values()), default=0))

    def state(self, time: QueueStoreTime) -> SourceState:
        """Return how it stands."""
        lately = {name: time.shown(at) for name, at in self._consumers.items() if at > time.now - CONSUMER_US}
        return SourceState(
            fed=self.fed,
            until=self.until,
            size=self._size,
            lent=self._lent,
            later=self._later.count,
            dated=self._later.dated,
            held_back=self._orders.parked,
            asked=time.shown(self._asked),
            done=self._done,
            retried=self._retried,
            dead=self._dead,
            expired=self._expired,
            missed=self._missed,
            delivered=self._delivered,
            again=self._again,
            oldest=self._ready.first.references[0].position if self._ready else 0,
            consumers=tuple(sorted(lately.items())),
        )

    def memoir(self) -> WindowMemoir:
        """All that another window has to be told to go on as this one does."""
        facts = WindowFacts(
            life=self.life,
            fed=self.fed,
            until=self.until,
            serial=self._serial,
            done=self._done,
            retried=self._retried,
            dead=self._dead,
            expired=self._expired,
            missed=self._missed,
            delivered=self._delivered,
            again=self._again,
            holder=self._holder,
            held_at=self._held_at,
            asked=self._asked,
            consumers=tuple(self._consumers.items()),
        )
        return WindowMemoir(
            facts,
            self._ready.placed(),
            {
                number: KeptLoan(one.consumer, one.deliveries, one.deadline, one.references, frozenset(one.outstanding))
                for number, one in self._loans.items()
            },
            dict(self._later.groups),
            self._orders.kept(),
        )

    @classmethod
    def of(cls, memoir: WindowMemoir) -> QueueWindow:
        """The window that has told this of itself."""
        facts = memoir.facts
        made = cls(facts.life, facts.fed, facts.until)
        made._serial, made._asked = facts.serial, facts.asked
        made._holder, made._held_at = facts.holder, facts.held_at
        made._done, made._retried, made._dead, made._expired = facts.done, facts.retried, facts.dead, facts.expired
        made._missed, made._delivered, made._again = facts.missed, facts.delivered, facts.again
        made._consumers.update(facts.consumers)
        made._ready.restore(memoir.ready)
        for number, loan in memoir.loans.items():
            made._loans[number] = _Lent(
                loan.consumer, loan.deliveries, loan.deadline, loan.references, set(loan.outstanding)
            )
        for number, group in memoir.later.items():
            made._later.put(number, group)
        made._orders.restore(memoir.orders)
        made._lent = sum(len(one.outstanding) for one in memoir.loans.values())
        made._size = made._lent + made._orders.parked + made._later.count + _count(memoir.ready.values())
        return made

    def _return_due(self, time: QueueStoreTime, rules: LendingRules, bury: Bury) -> None:
        due = [(one.deadline, f"l{number}", number) for number, one in self._loans.items() if one.deadline <= time.now]
        due += [(at, f"r{number}", number) for at, number in self._later.due(time) if at <= time.now]
        front: list[ReferenceGroup] = []
        freed: list[Reference] = []
        for _, name, number in sorted(due)[:MOST_DUE]:
            if name.startswith("r"):
                front.append(self._later.pop(number))
                continue
            lent = self._loans.pop(number)
            self._lent -= len(lent.outstanding)
            deliveries, kept = lent.deliveries + 1, list[Reference]()
            for index in sorted(lent.outstanding):
                reference = lent.references[index]
                if 0 < rules.max_deliveries <= deliveries and bury(deliveries, "deadline", lent.consumer, reference):
                    self._dead += 1
                    self._leave(reference, freed)
                else:
                    kept.append(reference)
            if kept:
                front.append(ReferenceGroup(min(deliveries, 255), tuple(kept)))
        self._ready.extendleft(reversed(front))
        if freed:
            self._ready.append(ReferenceGroup(0, tuple(freed)))

    def _announce(self, now: Position, wish: LoanWish) -> None:
        if not wish.announce:
            return
        for name in [name for name, at in self._consumers.items() if at <= now - CONSUMER_US]:
            del self._consumers[name]
        if wish.consumer in self._consumers or len(self._consumers) < MOST_CONSUMERS:
            self._consumers[wish.consumer] = now

    def _may_hold(self, now: Position, wish: LoanWish, loan: int) -> bool:
        if self._held_at and self._holder != wish.consumer and now - self._held_at < loan:
            return False
        self._holder, self._held_at = wish.consumer, now
        return True

    def _lend(self, time: QueueStoreTime, rules: LendingRules, wish: LoanWish, looked: int) -> tuple[Loan | None, int]:
        lately = sum(at > time.now - LATELY_US for at in self._consumers.values())
        waits = self._later.count + self._orders.parked
        share = ceil((self._size - self._lent - waits) / max(1, lately))
        cap = limit = min(wish.most, MOST_IN_GROUP, share)
        lent: list[Reference] = []
        freed: list[Reference] = []
        deliveries = 0
        while self._ready and len(lent) < limit and looked < MOST_LOOKED_AT:
            group = self._ready.popleft()
            if lent and group.deliveries != deliveries:
                self._ready.appendleft(group)
                break
            deliveries = group.deliveries
            limit = cap if deliveries == 0 else min(cap, SUSPECTS) if deliveries == 1 else min(cap, 1)
            at = 0
            while at < len(group.references) and len(lent) < limit and looked < MOST_LOOKED_AT:
                reference = group.references[at]
                at += 1
                looked += 1
                if rules.ttl and reference.position <= time.date - rules.ttl:
                    self._expired += 1
                    self._leave(reference, freed)
                elif not rules.ordered or self._orders.is_next(reference):
                    lent.append(reference)
            if at < len(group.references):
                self._ready.appendleft(ReferenceGroup(deliveries, group.references[at:]))
        if freed:
            self._ready.append(ReferenceGroup(0, tuple(freed)))
        if not lent:
            return None, looked
        number, deadline = self._next_number(time.now), time.now + rules.loan
        self._loans[number] = _Lent(wish.consumer, deliveries, deadline, tuple(lent), set(range(len(lent))))
        self._lent += len(lent)
        self._delivered += len(lent)
        self._again += len(lent) if deliveries else 0
        return Loan(self.life, number, wish.consumer, deliveries, time.shown(deadline), tuple(lent)), looked

    def _settle_one(
        self,
        now: Position,
        rules: LendingRules,
        one: Settlement,
        jitter: int,
        bury: Bury,
        over: list[tuple[int, int]],
        freed: list[Reference],
    ) -> int:
        lent = self._loans.get(one.number)
        if lent is None:
            over += ((one.number, index) for index in one.indexes or (-1,))
            return 0
        named = list(dict.fromkeys(one.indexes)) or sorted(lent.outstanding)
        over += ((one.number, index) for index in named if index not in lent.outstanding)
        indexes = [index for index in named if index in lent.outstanding]
        if one.how is SettleHow.EXTEND:
            if indexes:
                lent.deadline = max(lent.deadline, min(now + one.amount, one.number + LONGEST_LOAN_US))
            return len(indexes)
        back: list[Reference] = []
        for index in indexes:
            lent.outstanding.discard(index)
            reference = lent.references[index]
            if self._stays(one, rules, lent, reference, bury, freed):
                back.append(reference)
        self._lent -= len(indexes)
        if not lent.outstanding:
            del self._loans[one.number]
        if back and one.how is SettleHow.RELEASE:
            self._ready.appendleft(ReferenceGroup(lent.deliveries, tuple(back)))
        elif back:
            after = one.amount
            if after < 0:
                after = rules.retry[min(lent.deliveries, len(rules.retry) - 1)] * jitter // 1000
            group = ReferenceGroup(min(lent.deliveries + 1, 255), tuple(back))
            self._later.put(self._next_number(now), DatedGroup(now + after, group))
            self._retried += len(back)
        return len(indexes)

    def _stays(
        self,
        one: Settlement,
        rules: LendingRules,
        lent: _Lent,
        reference: Reference,
        bury: Bury,
        freed: list[Reference],
    ) -> bool:
        """True if the reference is to be lent again."""
        deliveries = lent.deliveries + 1
        if one.how is SettleHow.RELEASE:
            return True
        if one.how is SettleHow.DONE:
            self._done += 1
        elif one.how is SettleHow.EXPIRED:
            self._expired += 1
            self._missed += 1
        else:
            ends = one.how is SettleHow.DEAD or 0 < rules.max_deliveries <= deliveries
            if not ends or not bury(deliveries, one.reason or one.how.value, lent.consumer, reference):
                return True
            self._dead += 1
        self._leave(reference, freed)
        return False

    def _leave(self, reference: Reference, freed: list[Reference]) -> None:
        """It is in the window no more; what waited behind it is free."""
        self._size -= 1
        following = self._orders.leave(reference)
        if following is not None:
            freed.append(following)

    def _next_number(self, now: Position) -> int:
        self._serial = max(self._serial + 1, now)
        return self._serial


def _count(groups: Iterable[ReferenceGroup]) -> int:
    return sum(len(one.references) for one in groups)
