"""The port of the windows of queues: what was fed from a shard, is lent, and is not settled yet.

Each call is atomic. StoreUnavailableError when the engine does not answer. The engine's clock alone decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from app.core.events.event import Position, Shard
from app.core.queues.hints import QueueHint
from app.core.queues.loans import (
    DatedGroup,
    Dying,
    Fed,
    LendingRules,
    Loan,
    LoanWish,
    QueueSource,
    ReferenceGroup,
    Settled,
    Settlement,
    SourceState,
)
from app.runtime.telemetry import Fill


class TakeCall(NamedTuple):
    """By what a take is known when it comes again: the same node asks a source one call after the other."""

    node_id: str
    number: str


class Taken(NamedTuple):
    """The loans of a take: one for each wish, or None.

    HELD stands for a loan where one consumer takes at a time, and this is not the one; or nothing was fed yet.
    """

    loans: list[Loan | None]
    due: int | None = None
    """After so many µs the next loan runs out, or a retry comes back; None: nothing does, or each wish has a loan."""


class QueueStore(Protocol):
    """The windows of all queues."""

    async def start(self) -> None:
        """Begin. StoreUnavailableError; then it may be tried again."""

    async def close(self) -> None:
        """Let go of everything."""

    def fills(self) -> dict[str, Fill]:
        """Return how full the store's own buffers are."""

    async def now(self) -> Position:
        """The engine's clock."""

    def server_of(self, source: QueueSource) -> str:
        """The name of the server that has a source: while it is away others go on. Empty where one has all."""

    async def feed(
        self,
        source: QueueSource,
        start: Position,
        expected: Position,
        fed: Position,
        groups: Sequence[ReferenceGroup],
        most: int,
        missed: int = 0,
        dated: Sequence[DatedGroup] = (),
    ) -> Fed:
        """Append at most 8 groups and move the source on to `fed`; `missed` events that the log drops are counted.

        Nothing happens where it was fed up to another place than expected, or would have more than `most` references,
        or MOST_DATED of those that are dated. A source that is new begins at `start`. May be repeated.
        """

    async def take(self, source: QueueSource, rules: LendingRules, wishes: Sequence[LoanWish], call: TakeCall) -> Taken:
        """Lend for each wish what there is. The same call again has the same loans, for a minute.

        A source of dead letters begins with it: there is noted who asks for a queue in which nothing is.
        """

    async def settle(
        self, source: QueueSource, rules: LendingRules, life: str, said: Sequence[Settlement], jitter: int
    ) -> Settled:
        """Settle loans of this life; those that are not known are over. `jitter`: retries after so many thousandths."""

    async def dismiss(self, source: QueueSource, consumer: str) -> int:
        """Bring back all that a consumer was lent, and forget the consumer; return how many references."""

    async def dying(self, shard: Shard, most: int) -> Sequence[Dying]:
        """The first references on the way to become dead letters: the same ones until they are buried."""

    async def buried(self, shard: Shard, number: int) -> None:
        """Take them off up to this number."""

    async def seek(self, source: QueueSource, fed: Position) -> None:
        """Let it go on behind this position, with another life and an empty window."""

    async def redrive(self, source: QueueSource, until: Position) -> None:
        """Let a source of dead letters read them up to this position, or a later one that was said before."""

    async def states(self, sources: Sequence[QueueSource]) -> Sequence[SourceState | None]:
        """Return how each stands; None for one that was never fed."""

    async def lent_until(self, sources: Sequence[QueueSource]) -> Position:
        """Return when the last loan in these runs out, or ran out, if nobody has looked since; 0: nothing is lent."""

    async def forget(self, sources: Sequence[QueueSource]) -> None:
        """Forget all about them."""

    async def hint(self, sources: Iterable[QueueSource]) -> None:
        """Tell all nodes that something became ready in these. A hint may be lost."""

    def hear(self, heard: Callable[[QueueHint], None]) -> None:
        """Call this with each hint that somebody gives."""
