from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events import structures
from app.core.events.structures import OTHERS, Structures, stream_id
from app.core.topics import matches

levels = st.lists(st.sampled_from(["a", "b", "c", "$x", ""]), min_size=1, max_size=4)


def test_a_level_varies_once_it_has_had_too_many_values() -> None:
    known = Structures()
    learned = [known.of(f"site/{number}/up") for number in range(20)]
    assert learned[:10] == [f"site/{number}/up" for number in range(10)]
    assert set(learned[10:]) == {"site/+/up"}
    assert known.of("site/3/up") == "site/3/up", "its events would be in two streams"
    assert known.of("site/3/down") == "site/3/down"
    assert known.of("site/99/down") == "site/+/down"


def test_the_first_level_may_have_more_values() -> None:
    known = Structures()
    learned = [known.of(f"{number}/up") for number in range(101)]
    assert learned[99] == "99/up"
    assert learned[100] == "+/up"


def test_what_is_taught_is_known_from_the_first_topic_on() -> None:
    known = Structures(["thing/product/+/osd"])
    assert [known.of(f"thing/product/SN{number}/osd") for number in range(50)] == ["thing/product/+/osd"] * 50
    assert known.of("thing/product/SN1/events") == "thing/product/+/events"
    assert sorted(known) == ["thing/product/+/events", "thing/product/+/osd"]


def test_topics_of_the_broker_are_no_values_of_the_first_level() -> None:
    known = Structures(["+/status"])
    assert known.of("$sys/status") == "$sys/status"
    assert known.of("x/status") == "+/status"


def test_who_is_told_what_was_learned_learns_on_as_before() -> None:
    first = Structures()
    topics = [f"a/{number % 15}/{number % 3}" for number in range(60)]
    for topic in topics:
        first.of(topic)
    second = Structures(first)
    assert [second.of(topic) for topic in topics] == [first.of(topic) for topic in topics]
    assert sorted(second) == sorted(first)


def test_the_number_of_structures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structures, "MOST", 5)
    known = Structures()
    assert {known.of(f"{number}/x") for number in range(9)} == {OTHERS, *(f"{number}/x" for number in range(5))}
    assert known.meeting("7/x").structures == (OTHERS,)
    assert known.varying(OTHERS) == ()


@given(topics=st.lists(levels, max_size=60), wanted=levels, wild=st.lists(st.sampled_from(["+", ""]), max_size=4))
def test_the_stream_of_a_topic_is_read_by_every_filter_that_fits_it(
    topics: list[list[str]], wanted: list[str], wild: list[str]
) -> None:
    known = Structures(["a/+/b"])
    pattern = [one or level for one, level in zip(wild + [""] * 4, wanted, strict=False)]
    for levels_of_topic in topics:
        topic = "/".join(levels_of_topic)
        structure = known.of(topic)
        assert matches(structure, topic)
        for topic_filter in ("/".join(pattern), "/".join([*pattern[:-1], "#"])):
            if topic and topic_filter and matches(topic_filter, topic):
                assert structure in known.meeting(topic_filter).structures, (structure, topic_filter, topic)


def test_names_of_streams_are_the_same_in_every_process() -> None:
    assert stream_id("thing/product/+/osd").hex() == "c6ba660a"
