"""The loans of a channel of a connection: its credit, and when which loan is to be extended. Does no I/O.

A channel that is alive keeps its loans: they are extended before they run out, up to a bound, so that a consumer need
not say how long it takes. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from app.core.events.event import Shard
from app.core.queues.loans import LONGEST_LOAN_US, LoanToken, SettleHow

MOST_PREFETCHED: Final = 1000
"""Events that a channel may be lent at once."""
LOANS_KEPT: Final = 4
KEPT_SECONDS: Final = 600.0
"""A loan is kept for so many times its length, or for so long, whichever is longer. None lasts more than half a day."""


class _LoanKey(NamedTuple):
    """Tells a loan from all others of its queue."""

    life: str
    shard: str
    dead: bool
    number: int


@dataclass(slots=True)
class _LoanOnChannel:
    """A loan of which something is not settled."""

    shard: Shard
    runs_out: float
    extend_at: float
    kept_until: float
    indexes: set[int] = field(default_factory=set)


class ChannelLoans:
    """The loans of one channel of a queue that lends for `loan` seconds, up to `prefetch` events at once."""

    def __init__(self, loan: float, prefetch: int) -> None:
        self.prefetch = prefetch
        """None are lent while it is 0."""
        self.loan = loan
        """The queue lends for so many seconds, which can be changed: what was lent before stands as it was lent."""
        self._loans: dict[_LoanKey, _LoanOnChannel] = {}

    def __len__(self) -> int:
        return sum(len(one.indexes) for one in self._loans.values())

    @property
    def credit(self) -> int:
        """Return how many more may be lent now."""
        return max(0, self.prefetch - len(self))

    def lend(self, tokens: Iterable[LoanToken], now: float) -> None:
        """These were lent."""
        for token in tokens:
            loan = self._loans.setdefault(
                _key(token),
                _LoanOnChannel(
                    token.shard,
                    runs_out=now + self.loan,
                    extend_at=now + self.loan / 2,
                    kept_until=now + min(max(LOANS_KEPT * self.loan, KEPT_SECONDS), LONGEST_LOAN_US / 1_000_000),
                ),
            )
            loan.indexes.add(token.index)

    def settle(self, token: LoanToken, how: SettleHow, seconds: float, now: float) -> None:
        """One of these was settled, or extended by so many seconds. Loans of somebody else make no difference."""
        loan = self._loans.get(_key(token))
        if loan is None:
            return
        if how is SettleHow.EXTEND:
            loan.runs_out = max(loan.runs_out, now + seconds)
            return
        loan.indexes.discard(token.index)
        if not loan.indexes:
            del self._loans[_key(token)]

    def due(self, now: float) -> list[LoanToken]:
        """Return all that is not settled of the loans that are to be extended now; forget those that have run out."""
        found: list[LoanToken] = []
        for key, loan in list(self._loans.items()):
            if now >= loan.runs_out:
                del self._loans[key]
            elif now >= loan.extend_at:
                loan.extend_at = now + self.loan / 4  # again soon, unless it succeeds
                if now + self.loan <= loan.kept_until:
                    found += (_token(key, loan, index) for index in sorted(loan.indexes))
        return found

    def end(self, token: LoanToken) -> None:
        """One of these is over, though nobody on this channel has settled it: it is lent here no more."""
        self.settle(token, SettleHow.DONE, 0.0, 0.0)

    def extended(self, token: LoanToken, now: float) -> None:
        """A loan was extended from this moment on."""
        loan = self._loans.get(_key(token))
        if loan is not None:
            loan.runs_out = max(loan.runs_out, now + self.loan)
            loan.extend_at = now + self.loan / 2

    def next_due(self) -> float | None:
        """The moment at which `due` is to be asked again; None while nothing is lent."""
        return min((min(one.extend_at, one.runs_out) for one in self._loans.values()), default=None)

    def held(self) -> Iterator[LoanToken]:
        """Return all that is lent and not settled."""
        for key, loan in self._loans.items():
            for index in sorted(loan.indexes):
                yield _token(key, loan, index)

    def forget(self) -> None:
        """Nothing is lent any more."""
        self._loans.clear()


def _key(token: LoanToken) -> _LoanKey:
    return _LoanKey(token.life, str(token.shard), token.dead, token.number)


def _token(key: _LoanKey, loan: _LoanOnChannel, index: int) -> LoanToken:
    return LoanToken(key.life, loan.shard, key.dead, key.number, index)
