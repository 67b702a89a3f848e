"""The state of a queue, over all its shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.core.events.event import BEGINNING, END, Position
from app.core.queues.loans import QueueSource, SourceState
from app.store.queues import QueueStore


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The state of a queue. `oldest`: the position of the first event that is ready; 0: none is."""

    ready: int
    lent: int
    later: int
    held_back: int
    done: int
    retried: int
    dead: int
    expired: int
    missed: int
    delivered: int
    again: int
    oldest: Position
    asked: Position
    consumers: tuple[tuple[str, Position], ...]

    @property
    def unsettled(self) -> int:
        """Return how many events wait, are lent, or come back later."""
        return self.ready + self.lent + self.later + self.held_back


async def stats_in(store: QueueStore, sources: Sequence[QueueSource]) -> QueueStats:
    """Return how a queue with these sources stands. StoreUnavailableError."""
    return stats_of([one for one in await store.states(sources) if one is not None])


def stats_of(states: Sequence[SourceState]) -> QueueStats:
    """All states of its sources together."""
    consumers: dict[str, Position] = {}
    for state in states:
        for name, at in state.consumers:
            consumers[name] = max(at, consumers.get(name, BEGINNING))

    def total(of: Callable[[SourceState], int]) -> int:
        return sum(map(of, states))

    oldest = min((one.oldest for one in states if one.oldest), default=END)
    return QueueStats(
        ready=total(lambda one: one.ready),
        lent=total(lambda one: one.lent),
        later=total(lambda one: one.later),
        held_back=total(lambda one: one.held_back),
        done=total(lambda one: one.done),
        retried=total(lambda one: one.retried),
        dead=total(lambda one: one.dead),
        expired=total(lambda one: one.expired),
        missed=total(lambda one: one.missed),
        delivered=total(lambda one: one.delivered),
        again=total(lambda one: one.again),
        oldest=0 if oldest == END else oldest,
        asked=max((one.asked for one in states), default=BEGINNING),
        consumers=tuple(sorted(consumers.items())),
    )
