"""The portion of events that fits into a window: as many as there is room for, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.core.events.event import Event, Position
from app.core.queues.dated import not_before_of
from app.core.queues.loans import DatedGroup, Reference, ReferenceGroup, grouped, key_of


class Portion(NamedTuple):
    """Groups that may be lent at once, and those that wait for an instant. `last`: the position of the last event."""

    groups: list[ReferenceGroup]
    dated: list[DatedGroup]
    last: Position
    complete: bool
    """Nothing was left out."""

    @property
    def references(self) -> int:
        """Return how many references there are."""
        return sum(len(one.references) for one in self.groups) + len(self.dated)


def portion_of(events: Sequence[Event], now: Position, most: int, most_dated: int, *, ordered: bool) -> Portion:
    """The first of these events, up to so many, and so many that are dated; one of either kind too many ends it."""
    ready: list[Reference] = []
    dated: list[DatedGroup] = []
    last: Position = 0
    for event in events:
        reference = Reference(event.position, key_of(event.entry) if ordered else 0)
        instant = not_before_of(event.entry)
        if len(dated) >= most_dated if instant > now else len(ready) >= most:
            return Portion(grouped(ready), dated, last, complete=False)
        if instant > now:
            dated.append(DatedGroup(instant, ReferenceGroup(0, (reference,))))
        else:
            ready.append(reference)
        last = event.position
    return Portion(grouped(ready), dated, last, complete=True)
