"""Finds what has a topic: many templates in one tree of levels, so that their number costs next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from app.core.topics import TopicTemplate

MOST_TOPICS: Final = 16_384
"""Topics for which a reader keeps what it has found: devices say most of what they say on the same ones."""
LONG_TOPIC: Final = 256
"""Characters; what was found for longer ones is not kept, as a device may make many of them up."""

T = TypeVar("T")


class _TreeNode(Generic[T]):
    """A level of topics: what follows by literal, by any level, and what ends here or begins to take several levels."""

    __slots__ = ("any", "ends", "literals", "takes_rest")

    def __init__(self) -> None:
        self.literals: dict[str, _TreeNode[T]] = {}
        self.any: _TreeNode[T] | None = None
        self.ends: list[tuple[int, T]] = []
        self.takes_rest: list[tuple[int, T]] = []


class TopicTree(Generic[T]):
    """Things by the topics that they are about. A thing that is found may still not have the topic: ask its template.

    (Patterns inside of a level are not looked at here.)
    """

    def __init__(self) -> None:
        self._root: _TreeNode[T] = _TreeNode()
        self._size = 0

    def enter(self, template: TopicTemplate, thing: T) -> None:
        """Add a thing."""
        node = self._root
        for level in template.levels[: template.before_several]:
            if level is None:
                node.any = node = node.any or _TreeNode()
            else:
                node = node.literals.setdefault(level, _TreeNode())
        (node.ends if template.before_several is None else node.takes_rest).append((self._size, thing))
        self._size += 1

    def find(self, levels: Sequence[str]) -> list[T]:
        """Return the entries that may have the topic, in the order in which they were entered."""
        found: list[tuple[int, T]] = []
        nodes = [self._root]
        for level in levels:
            below: list[_TreeNode[T]] = []
            for node in nodes:
                if node.takes_rest:
                    found += node.takes_rest
                if (one := node.literals.get(level)) is not None:
                    below.append(one)
                if node.any is not None:
                    below.append(node.any)
            nodes = below
            if not nodes:
                break
        for node in nodes:
            found += node.ends
        if len(found) > 1:
            found.sort(key=_number)
        return [thing for _, thing in found]


def _number(entry: tuple[int, object]) -> int:
    return entry[0]
