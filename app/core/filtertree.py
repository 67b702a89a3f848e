"""Finds whose filters fit a topic: many filters in one tree of words, so that their number costs next to nothing.

MQTT's topic filters and AMQP's patterns are the same thing but for their separators and two characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Final, Generic, TypeVar


class Wildcard(Enum):
    """Stands for words: for exactly one, or for any number, also none."""

    ONE = "*"
    MANY = "#"


Pattern = tuple[str | Wildcard, ...]
"""The words of a filter from left to right."""

_MQTT: Final = {"+": Wildcard.ONE, "#": Wildcard.MANY}
_AMQP: Final = {"*": Wildcard.ONE, "#": Wildcard.MANY}

T = TypeVar("T", bound=Hashable)


def topic_pattern(topic_filter: str) -> Pattern:
    """The pattern of a valid topic filter of MQTT that is not shared; a topic's words are its levels."""
    return tuple([_MQTT.get(level, level) for level in topic_filter.split("/")])


def key_pattern(pattern: str) -> Pattern:
    """The pattern of AMQP's `*` and `#`, each a whole word and anywhere."""
    return tuple([_AMQP.get(word, word) for word in key_words(pattern)])


def key_words(key: str) -> Sequence[str]:
    """The words of an AMQP key; the empty key has none."""
    return key.split(".") if key else ()


class _FilterNode(Generic[T]):
    """A place in the tree, which some words have led to; `takes_rest` where any further words lead to it as well."""

    __slots__ = ("ends", "literals", "many", "one", "takes_rest")

    def __init__(self, *, takes_rest: bool) -> None:
        self.takes_rest = takes_rest
        self.literals: dict[str, _FilterNode[T]] = {}
        self.one: _FilterNode[T] | None = None
        self.many: _FilterNode[T] | None = None
        self.ends: Counter[T] = Counter()

    def below(self, word: str | Wildcard) -> _FilterNode[T] | None:
        if word is Wildcard.ONE:
            return self.one
        return self.many if word is Wildcard.MANY else self.literals.get(word)

    def put(self, word: str | Wildcard, node: _FilterNode[T] | None) -> None:
        if word is Wildcard.ONE:
            self.one = node
        elif word is Wildcard.MANY:
            self.many = node
        elif node is not None:
            self.literals[word] = node
        else:
            del self.literals[word]

    def needless(self) -> bool:
        return not (self.ends or self.literals or self.one or self.many)


class FilterTree(Generic[T]):
    """Things by patterns. A thing may have several, and two things the same one."""

    def __init__(self) -> None:
        self._root: _FilterNode[T] = _FilterNode(takes_rest=False)

    def add(self, pattern: Pattern, thing: T) -> None:
        """Add a thing. One that was added twice has to be removed twice."""
        node = self._root
        for word in _ordered(pattern):
            below = node.below(word)
            if below is None:
                below = _FilterNode(takes_rest=word is Wildcard.MANY)
                node.put(word, below)
            node = below
        node.ends[thing] += 1

    def remove(self, pattern: Pattern, thing: T) -> None:
        """Remove a thing's pattern. KeyError where the tree does not have it."""
        path: list[tuple[_FilterNode[T], str | Wildcard]] = []
        node = self._root
        for word in _ordered(pattern):
            path.append((node, word))
            below = node.below(word)
            if below is None:
                raise KeyError(pattern)
            node = below
        if thing not in node.ends:
            raise KeyError(thing)
        node.ends[thing] -= 1
        if not node.ends[thing]:
            del node.ends[thing]
        while path and node.needless():
            node, word = path.pop()
            node.put(word, None)

    def match(self, words: Sequence[str]) -> set[T]:
        """The things with a pattern that these words fit.

        A wildcard in the first place does not stand for a word that begins with `$` [MQTT-4.7.2-1].
        """
        found: set[T] = set()
        nodes: dict[_FilterNode[T], None] = {}  # as several ways may lead to one
        if words and words[0].startswith("$"):
            words, first = words[1:], self._root.literals.get(words[0])
            if first is not None:
                _enter(first, nodes, found)
        else:
            _enter(self._root, nodes, found)
        for word in words:
            below: dict[_FilterNode[T], None] = {}
            for node in nodes:
                if (literal := node.literals.get(word)) is not None:
                    _enter(literal, below, found)
                if node.one is not None:
                    _enter(node.one, below, found)
                if node.takes_rest:
                    below[node] = None
            nodes = below
            if not nodes:
                break
        for node in nodes:
            found.update(node.ends)
        return found


def _enter(node: _FilterNode[T], nodes: dict[_FilterNode[T], None], found: set[T]) -> None:
    """Go on at a node, and at the one below that takes any number of words: what ends there fits whatever comes."""
    nodes[node] = None
    many = node.many
    if many is not None:
        found.update(many.ends)
        if many.literals:
            nodes[many] = None


def _ordered(pattern: Pattern) -> Pattern:
    """The same pattern in one way of several: of wildcards side by side each `*` first, then one `#`."""
    ordered: list[str | Wildcard] = []
    many = False
    for word in pattern:
        if word is Wildcard.MANY:
            many = True
        elif word is Wildcard.ONE:
            ordered.append(word)
        else:
            if many:
                ordered.append(Wildcard.MANY)
                many = False
            ordered.append(word)
    return (*ordered, Wildcard.MANY) if many else tuple(ordered)
