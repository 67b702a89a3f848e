"""Marks of a block rule nothing out that may be in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events.marks import FEWEST_BITS, MOST_BITS, MarkFilter, pack_marks
from app.core.events.reading import EVERYTHING
from app.core.topics import matches

levels = st.lists(st.sampled_from(["a", "b", "SN1", "$x", "", "ü"]), min_size=1, max_size=9)
topics = levels.map("/".join).filter(bool)


@given(
    said=st.lists(topics, min_size=1, max_size=200, unique=True),
    wild=st.lists(st.booleans(), min_size=9, max_size=9),
    chosen=st.integers(0, 199),
    cut=st.integers(0, 9),
)
def test_a_topic_that_is_there_is_never_ruled_out(said: list[str], wild: list[bool], chosen: int, cut: int) -> None:
    marks = pack_marks(said)
    topic = said[chosen % len(said)].split("/")
    pattern = ["+" if one else level for one, level in zip(wild, topic, strict=False)]
    for topic_filter in ("/".join(pattern), "/".join([*pattern[:cut], "#"]), "/".join(topic), EVERYTHING):
        if topic_filter == EVERYTHING or any(matches(topic_filter, one) for one in said):
            assert MarkFilter(topic_filter).may_be_in(marks), (topic_filter, said)


def test_most_blocks_without_a_topic_are_ruled_out() -> None:
    blocks = [pack_marks([f"thing/product/SN{64 * block + n}/osd" for n in range(64)]) for block in range(200)]
    for topic_filter in ("thing/product/SN77/osd", "thing/product/SN77/#", "+/+/SN77/osd"):
        held = [number for number, marks in enumerate(blocks) if MarkFilter(topic_filter).may_be_in(marks)]
        assert 1 in held
        assert len(held) < 60, topic_filter
    assert sum(MarkFilter("fleet/7/#").may_be_in(marks) for marks in blocks) < 60


@pytest.mark.parametrize("count", [1, 3, 64, 512])
def test_few_topics_have_small_marks(count: int) -> None:
    size = 8 * len(pack_marks([f"a/{n}" for n in range(count)])) - 32
    assert FEWEST_BITS <= size <= MOST_BITS
    assert size <= max(FEWEST_BITS, 32 * count)


def test_marks_that_are_damaged_rule_nothing_out() -> None:
    marks = pack_marks(["a/b"])
    assert not MarkFilter("c/d").may_be_in(marks)
    for damaged in (b"", marks[:-1], marks[1:], b"\0" + marks[1:], bytes(8) + marks[8:], marks + b"\0", bytes(300)):
        assert damaged == marks or MarkFilter("a/b").may_be_in(damaged)
    assert MarkFilter("c/d").may_be_in(bytes(8) + marks[8:])
