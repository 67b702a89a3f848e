from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidInputError
from app.core.eventlog.event import END, Entry, Event
from app.core.eventlog.reading import Cursor, Slice, merged, parse_cursor

ENTRY = Entry("a", b"1")

positions = st.sets(st.integers(1, 60), max_size=20)


@given(shards=st.lists(positions, min_size=1, max_size=4), per_shard=st.integers(1, 5), limit=st.integers(1, 7))
def test_all_shards_read_in_steps_give_every_event_once(shards: list[set[int]], per_shard: int, limit: int) -> None:
    cursor = dict.fromkeys(range(len(shards)), 0)
    read: list[tuple[int, int]] = []
    more = True
    while more:
        slices = {}
        for number, all_of_it in enumerate(shards):
            left = [Event(one, number, ENTRY) for one in sorted(all_of_it) if one > cursor[number]]
            cut = len(left) > per_shard
            slices[number] = Slice(left[:per_shard], left[per_shard - 1].position if cut else 100, more=cut)
        given_out, cursor, more = merged(slices, limit)
        page = [(event.position, event.shard) for event in given_out]
        assert len(page) <= limit
        assert page == sorted(page)
        read += page
    assert read == sorted((one, number) for number, all_of_it in enumerate(shards) for one in all_of_it)


def test_a_cursor_survives_being_written_down() -> None:
    cursor = Cursor((0, 1_772_352_000_000_000, END))
    assert str(cursor) == "1-0-hg8v9o0zk0-z1ci99jj7474"
    assert parse_cursor(str(cursor), 3) == cursor


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is none"),
        ("2-0", "is none"),
        ("1-", "is none"),
        ("1-0-Z", "is none"),
        ("1-zzzzzzzzzzzzz", "is none"),
        ("1-0-0", "is of a database with 2 shards; allowed: one of this one, with 1"),
    ],
)
def test_what_is_no_cursor_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        parse_cursor(text, 1)
