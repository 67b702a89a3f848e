"""Groups that wait to be lent: one behind the other, or for an instant."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from app.core.events.event import Position
from app.core.queues.loans import DatedGroup, ReferenceGroup
from app.core.queues.times import QueueStoreTime


class GroupLine:
    """A deque that knows the place of each group: the first one has one, and each behind it one more.

    So each keeps its place while others come and go at both ends.
    """

    def __init__(self) -> None:
        self._groups: deque[ReferenceGroup] = deque()
        self._first = 0

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def first(self) -> ReferenceGroup:
        """The group that is lent next; IndexError where there is none."""
        return self._groups[0]

    def append(self, group: ReferenceGroup) -> None:
        """Let a group wait behind all others."""
        self._groups.append(group)

    def extend(self, groups: Iterable[ReferenceGroup]) -> None:
        """Let groups wait behind all others."""
        self._groups.extend(groups)

    def appendleft(self, group: ReferenceGroup) -> None:
        """Let a group be the first one."""
        self._first -= 1
        self._groups.appendleft(group)

    def extendleft(self, groups: Iterable[ReferenceGroup]) -> None:
        """Let groups come before all others, the last one of them first."""
        for one in groups:
            self.appendleft(one)

    def popleft(self) -> ReferenceGroup:
        """Take the first group away; IndexError where there is none."""
        group = self._groups.popleft()
        self._first += 1
        return group

    def clear(self) -> None:
        """Take all away."""
        self._groups.clear()

    def placed(self) -> dict[int, ReferenceGroup]:
        """All groups by their places."""
        return dict(enumerate(self._groups, self._first))

    def restore(self, placed: Mapping[int, ReferenceGroup]) -> None:
        """Let these groups wait at their places, which follow one another."""
        self._first = min(placed, default=0)
        self._groups = deque(placed[place] for place in sorted(placed))


class LaterGroups:
    """Groups that wait for an instant, by their numbers, with how many references they have."""

    def __init__(self) -> None:
        self.groups: dict[int, DatedGroup] = {}
        self.count = 0
        self.dated = 0
        """The references, among these, that were never lent; a retried one was."""

    def put(self, number: int, one: DatedGroup) -> None:
        """Let a group wait."""
        self.groups[number] = one
        self._count(one, 1)

    def pop(self, number: int) -> ReferenceGroup:
        """Take a group away."""
        one = self.groups.pop(number)
        self._count(one, -1)
        return one.group

    def due(self, time: QueueStoreTime) -> list[tuple[Position, int]]:
        """Return when each comes back, on the clock that no step moves, and its number. Dates are on the wall."""
        ahead = time.date - time.now
        return [(one.at if one.group.deliveries else one.at - ahead, number) for number, one in self.groups.items()]

    def clear(self) -> None:
        """Take all away."""
        self.groups.clear()
        self.count = self.dated = 0

    def _count(self, one: DatedGroup, sign: int) -> None:
        self.count += sign * len(one.group.references)
        if not one.group.deliveries:
            self.dated += sign * len(one.group.references)
