"""Many filters in one tree find what each of them alone would find."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.filtertree import FilterTree, Pattern, Wildcard, key_pattern, key_words, topic_pattern
from app.core.topics import matches
from tests.unit.core.amqp_topic_rules import cases

PATTERNS = st.lists(
    st.lists(st.sampled_from(["a", "b", "", Wildcard.ONE, Wildcard.MANY]), max_size=7).map(tuple), max_size=8
)


def takes(pattern: Pattern, words: tuple[str, ...]) -> bool:
    """The rule as one would say it."""
    if not pattern:
        return not words
    first, rest = pattern[0], pattern[1:]
    if first is Wildcard.MANY:
        return any(takes(rest, words[count:]) for count in range(len(words) + 1))
    return bool(words) and first in (Wildcard.ONE, words[0]) and takes(rest, words[1:])


def test_two_hundred_cases_of_amqps_rules() -> None:
    written = cases()
    assert len(written) == len(set(written)) >= 200
    tree: FilterTree[str] = FilterTree()
    for pattern in {pattern for pattern, _, _ in written}:
        tree.add(key_pattern(pattern), pattern)
    wrong = [case for case in written if (case[0] in tree.match(key_words(case[1]))) is not case[2]]
    assert wrong == []


def test_each_case_alone() -> None:
    """As neighbours in a tree might lend each other a place."""
    for pattern, key, expected in cases():
        tree: FilterTree[str] = FilterTree()
        tree.add(key_pattern(pattern), "it")
        assert (tree.match(key_words(key)) == {"it"}) is expected, (pattern, key)
        assert takes(key_pattern(pattern), tuple(key_words(key))) is expected, (pattern, key)


@given(PATTERNS, st.lists(st.sampled_from(["a", "b", "", "c"]), max_size=8).map(tuple))
def test_the_tree_finds_what_the_rule_says(patterns: list[Pattern], words: tuple[str, ...]) -> None:
    tree: FilterTree[Pattern] = FilterTree()
    for pattern in patterns:
        tree.add(pattern, pattern)
    assert tree.match(words) == {pattern for pattern in patterns if takes(pattern, words)}


LEVELS = st.sampled_from(["a", "b", "", "$a", "+"])
FILTERS = st.lists(
    st.tuples(st.lists(LEVELS, min_size=1, max_size=4), st.booleans()).map(
        lambda made: "/".join([*made[0], "#"] if made[1] else made[0])
    )
    | st.just("#"),
    max_size=8,
)


@given(FILTERS, st.lists(st.sampled_from(["a", "b", "", "$a", "c", "*"]), min_size=1, max_size=6).map("/".join))
def test_mqtts_filters_are_as_the_specification_has_them(filters: list[str], topic: str) -> None:
    tree: FilterTree[str] = FilterTree()
    for one in filters:
        tree.add(topic_pattern(one), one)
    assert tree.match(topic.split("/")) == {one for one in filters if matches(one, topic)}


@given(PATTERNS, st.data())
def test_what_was_removed_is_not_found(patterns: list[Pattern], data: st.DataObject) -> None:
    tree: FilterTree[int] = FilterTree()
    for number, pattern in enumerate(patterns):
        tree.add(pattern, number)
    gone = data.draw(st.sets(st.sampled_from(range(len(patterns))))) if patterns else set()
    for number in gone:
        tree.remove(patterns[number], number)
    words = tuple(data.draw(st.lists(st.sampled_from(["a", "b", ""]), max_size=6)))
    left = [number for number in range(len(patterns)) if number not in gone]
    assert tree.match(words) == {number for number in left if takes(patterns[number], words)}


def test_what_was_removed_leaves_nothing_behind() -> None:
    tree: FilterTree[str] = FilterTree()
    tree.add(key_pattern("a.#"), "stays")
    before = places()
    patterns = [key_pattern(pattern) for pattern in {pattern for pattern, _, _ in cases()}]
    for pattern in patterns:
        tree.add(pattern, "goes")
    assert places() > before
    for pattern in patterns:
        tree.remove(pattern, "goes")
    assert places() == before
    assert tree.match(("a", "b")) == {"stays"}


def places() -> int:
    """Return how many there are in memory, of all trees."""
    gc.collect()
    return sum(type(one).__name__ == "_FilterNode" for one in gc.get_objects())


@pytest.mark.parametrize("pattern", ["a.b", "a", "a.#", "*", ""])
def test_what_is_not_there_cannot_be_removed(pattern: str) -> None:
    tree: FilterTree[str] = FilterTree()
    tree.add(key_pattern("a.b.c"), "it")
    tree.add(key_pattern("a.b"), "other")
    with pytest.raises(KeyError):
        tree.remove(key_pattern(pattern), "it")
    assert tree.match(("a", "b")) == {"other"}


def test_one_thing_with_several_patterns_is_found_once_and_stays_until_the_last_is_removed() -> None:
    tree: FilterTree[str] = FilterTree()
    for pattern in ("a.#", "#.b", "a.b"):
        tree.add(key_pattern(pattern), "it")
    assert tree.match(("a", "b")) == {"it"}
    tree.remove(key_pattern("a.#"), "it")
    assert tree.match(("a", "b")) == {"it"}
    assert tree.match(("a", "c")) == set()


def test_patterns_that_mean_the_same_share_their_place() -> None:
    """`#.*` is `*.#`: what was added as one may be removed as the other."""
    tree: FilterTree[str] = FilterTree()
    tree.add(key_pattern("#.*.#"), "it")
    tree.add(key_pattern("*.#"), "it")
    tree.remove(key_pattern("*.#"), "it")
    assert tree.match(("a",)) == {"it"}
    tree.remove(key_pattern("*.#"), "it")
    assert tree.match(("a",)) == set()


def test_hostile_patterns_take_no_longer_than_their_places() -> None:
    """`#.a` twenty times over a key of a hundred `a` would be more ways than there is time for, were each tried."""
    tree: FilterTree[str] = FilterTree()
    tree.add(key_pattern(".".join(["#.a"] * 20)), "it")
    assert tree.match(("a",) * 100) == {"it"}
    assert tree.match((*("a",) * 100, "b")) == set()


def test_a_topic_of_as_many_levels_as_there_may_be() -> None:
    tree: FilterTree[str] = FilterTree()
    tree.add(topic_pattern("/" * 60_000), "long")
    tree.add(topic_pattern("+/#"), "any")
    assert tree.match([""] * 60_001) == {"long", "any"}
    tree.remove(topic_pattern("/" * 60_000), "long")
    assert tree.match([""] * 60_001) == {"any"}
