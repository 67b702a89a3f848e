"""Structures of topics: taught by profiles first, then learned from what comes.

A structure is written as a topic filter without `#`: `thing/product/+/osd` is what all topics have in common that vary
in one level. Events of one structure are a stream: they lie together, in the order of their positions. A level that has
had more than so many values varies from then on; values seen before keep their own streams, so that their order does
not break. (The idea is that of the learned topic structure of EMQX Durable Storage.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

FIRST_LEVEL: Final = 100
"""Values that the first level may have before it varies."""
OTHER_LEVELS: Final = 10
"""The same number for each level below."""
MOST: Final = 2_000
"""Structures that are learned in one generation; topics that would make more share one stream."""
MOST_NODES: Final = 10_000
"""Levels that these have together, those that several begin with counted once: who makes topics up fills no memory."""
DEEPEST: Final = 64
"""Levels of a structure; topics with more share that stream as well."""
MOST_INHERITED: Final = 256
"""Structures that a generation is taught by the one before: of those that vary, the ones that were met most often."""
OTHERS: Final = "#"
"""The structure of topics that have none of their own."""
_MOST_CACHED: Final = 65_536
_MOST_MEETINGS: Final = 16
"""Filters whose structures are remembered."""


def stream_id(structure: str) -> bytes:
    """Four bytes that name the stream of a structure, the same on every node."""
    return blake2b(structure.encode(), digest_size=4).digest()


class Meeting(NamedTuple):
    """Structures that may have topics that fit a filter, and their streams as numbers."""

    structures: tuple[str, ...]
    streams: frozenset[int]


NOBODY: Final = Meeting((), frozenset())


class _StructureNode(dict[str, "_StructureNode"]):
    """A level of topics, with what may follow."""

    __slots__ = ("structure",)

    def __init__(self) -> None:
        self.structure: str | None = None
        """The one that ends here."""


class Structures:
    """The structures of one generation. Not safe to change from two threads; they may be read in another one."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known` are structures that were taught or learned before."""
        self._root = _StructureNode()
        self._nodes = 0
        self._all: dict[str, tuple[int, ...]] = {}
        self._streams: dict[str, bytes] = {}
        self._taken = {stream_id(OTHERS)}
        self._cache: dict[str, str] = {}
        self._meetings: dict[str, tuple[int, Meeting]] = {}
        """The meetings by filter, each with the number of structures that there were then: meetings only grow."""
        self._met: Counter[str] = Counter()
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
        stream = stream_id(structure)
        if structure in self._all or (stream in self._taken and structure != OTHERS):
            return
        self._taken.add(stream)
        self._streams[structure] = stream
        self._all[structure] = varying_levels(structure)
        self._cache.clear()
        if structure != OTHERS:
            self._enter(structure)

    def of(self, topic: str) -> str:
        """The structure of a topic, which may be a new one."""
        found = self._cache.get(topic)
        if found is None:
            found = self._learn(topic)
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            self._cache[topic] = found
        self._met[found] += 1
        return found

    def varying(self, structure: str) -> tuple[int, ...]:
        """The levels of a known structure that vary, from 0."""
        return self._all[structure]

    def stream(self, structure: str) -> bytes:
        """Four bytes that name the stream of a known structure."""
        return self._streams[structure]

    def inherited(self) -> list[str]:
        """The structures that the next generation is taught, so that it need not learn them."""
        return [one for one, _ in self._met.most_common() if "+" in one][:MOST_INHERITED]

    def meeting(self, topic_filter: str) -> Meeting:
        """The structures that have, or may have, topics that fit the filter; all of them without one."""
        known, found = self._meetings.get(topic_filter, (0, NOBODY))
        if known != len(self._all):
            known, names = len(self._all), tuple(self._find(topic_filter))
            found = Meeting(names, frozenset(int.from_bytes(self._streams[one]) for one in names))
            if len(self._meetings) >= _MOST_MEETINGS:
                self._meetings.clear()
            self._meetings[topic_filter] = known, found
        return found

    def _find(self, topic_filter: str) -> Iterator[str]:
        if not topic_filter:
            yield from tuple(self._all)
            return
        if OTHERS in self._all:
            yield OTHERS
        wanted = topic_filter.split("/")
        below = wanted[-1] == "#"
        yield from _meeting(self._root, wanted[:-1] if below else wanted, below=below)

    def _learn(self, topic: str) -> str:
        levels = topic.split("/")
        if len(levels) > DEEPEST:
            return self._others()
        node: _StructureNode | None = self._root
        for depth, level in enumerate(levels):
            if node is None:
                break
            child = node.get(level)
            if child is None and self._varies(node, depth, level):
                levels[depth] = "+"
                child = node.get("+")
            node = child
        if node is not None and node.structure is not None:
            return node.structure
        structure = "/".join(levels)
        if len(self._all) < MOST and self._nodes + len(levels) <= MOST_NODES:
            self.teach(structure)
            if structure in self._all:
                return structure
        return self._others()

    def _enter(self, structure: str) -> None:
        node = self._root
        for level in structure.split("/"):
            child = node.get(level)
            if child is None:
                child = node[level] = _StructureNode()
                self._nodes += 1
            node = child
        node.structure = structure

    def _others(self) -> str:
        self.teach(OTHERS)
        return OTHERS

    def _varies(self, node: _StructureNode, depth: int, level: str) -> bool:
        if depth == 0 and level.startswith("$"):
            return False  # MQTT 5, section 4.7.2: no wildcard of the first level means those
        return "+" in node or len(node) >= (FIRST_LEVEL if depth == 0 else OTHER_LEVELS)


def _meeting(node: _StructureNode, wanted: Sequence[str], depth: int = 0, *, below: bool) -> Iterator[str]:
    """Yield structures under a node that fit what is wanted from this depth on, and with `below` whatever follows."""
    if depth == len(wanted):
        if below:
            yield from _below(node, first=depth == 0)
        elif node.structure is not None:
            yield node.structure
        return
    if wanted[depth] == "+":
        children = [child for name, child in node.copy().items() if depth or not name.startswith("$")]
    else:
        children = [node[name] for name in (wanted[depth], "+") if name in node]
    for child in children:
        yield from _meeting(child, wanted, depth + 1, below=below)


def _below(node: _StructureNode, *, first: bool) -> Iterator[str]:
    """All from a node on; under the first one no topics that begin with `$`, as no wildcard means those."""
    left = [child for name, child in node.copy().items() if not (first and name.startswith("$"))]
    if node.structure is not None:
        yield node.structure
    while left:
        one = left.pop()
        if one.structure is not None:
            yield one.structure
        left += one.copy().values()


def varying_levels(structure: str) -> tuple[int, ...]:
    """The places where the structure has a `+`, from 0; keys have room for 255 of these places."""
    return tuple(place for place, level in enumerate(structure.split("/")[:255]) if level == "+")
