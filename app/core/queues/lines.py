"""Groups that wait to be lent, one behind the other: each keeps its place while others come and go at both ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from app.core.queues.loans import ReferenceGroup


class GroupLine:
    """A deque that knows the place of each group: the first one has one, and each behind it one more."""

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
