"""Structures of topics: taught by profiles first, then learned from what comes.

A structure is written as a topic filter without `#`: `thing/product/+/osd` is what all topics have in common that vary
in one level. Events of one structure are a stream: they lie together, in the order of their positions. A level that has
had more than so many values varies from then on; values seen before keep their own streams, so that their order does
not break. (The idea is that of the learned topic structure of EMQX Durable Storage.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

FIRST_LEVEL: Final = 100
"""Values that the first level may have before it varies."""
OTHER_LEVELS: Final = 10
"""Likewise of each level below."""
MOST: Final = 10_000
"""Structures of one database; topics that would make more share one stream."""
OTHERS: Final = "#"
"""The structure of those."""
_MOST_CACHED: Final = 65_536


def stream_id(structure: str) -> bytes:
    """Four bytes that name the stream of a structure, the same on every node."""
    return blake2b(structure.encode(), digest_size=4).digest()


class _Node(dict[str, "_Node"]):
    """A level of topics, with what may follow."""


class Structures:
    """Those of one database. Not safe to change from two threads."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known` are structures that were taught or learned before."""
        self._root = _Node()
        self._all: dict[str, tuple[int, ...]] = {}
        self._ids: set[bytes] = set()
        self._cache: dict[str, str] = {}
        for structure in known:
            self.teach(structure)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, structure: str) -> bool:
        return structure in self._all

    def teach(self, structure: str) -> None:
        """Know a structure before its first topic comes. One whose stream would have another one's name is left out."""
        identity = stream_id(structure)
        if identity in self._ids:
            return
        self._ids.add(identity)
        self._all[structure] = () if structure == OTHERS else varying_levels(structure)
        self._cache.clear()
        if structure != OTHERS:
            node = self._root
            for level in structure.split("/"):
                node = node.setdefault(level, _Node())

    def of(self, topic: str) -> str:
        """The structure of a topic, which may be a new one."""
        found = self._cache.get(topic)
        if found is None:
            found = self._learn(topic)
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            self._cache[topic] = found
        return found

    def varying(self, structure: str) -> tuple[int, ...]:
        """Which levels of a known structure vary, from 0."""
        return self._all[structure]

    def meeting(self, topic_filter: str) -> list[str]:
        """The structures that have, or may have, topics that fit the filter; all of them without one."""
        if not topic_filter:
            return list(self._all)
        return [one for one in self._all if meets(one, topic_filter)]

    def _learn(self, topic: str) -> str:
        structure = "/".join(self._walk(topic.split("/")))
        if structure in self._all:
            return structure
        if len(self._all) < MOST:
            self.teach(structure)
        if structure in self._all:
            return structure
        self.teach(OTHERS)
        return OTHERS

    def _walk(self, levels: list[str]) -> Iterator[str]:
        node: _Node | None = self._root
        for depth, level in enumerate(levels):
            if node is None:
                yield level
                continue
            name = level if level in node or not self._varies(node, depth, level) else "+"
            yield name
            node = node.get(name)

    def _varies(self, node: _Node, depth: int, level: str) -> bool:
        if depth == 0 and level.startswith("$"):
            return False  # MQTT 5, section 4.7.2: no wildcard of the first level means those
        return "+" in node or len(node) >= (FIRST_LEVEL if depth == 0 else OTHER_LEVELS)


def varying_levels(structure: str) -> tuple[int, ...]:
    """Where the structure has a `+`, from 0."""
    return tuple(place for place, level in enumerate(structure.split("/")) if level == "+")


def meets(structure: str, topic_filter: str) -> bool:
    """Whether some topic of the structure fits the filter."""
    if structure == OTHERS:
        return True
    if structure.startswith("$") and topic_filter[0] in "+#":
        return False
    wanted, levels = topic_filter.split("/"), structure.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        want in (level, "+") or level == "+" for want, level in zip(wanted, levels, strict=True)
    )
