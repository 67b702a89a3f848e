from __future__ import annotations

import pytest

from app.core.errors import InvalidInputError
from app.core.events.cursors import Scope, parsed, room, written
from app.core.events.event import BEGINNING, END, Database
from app.core.events.reading import Cursor, parse_cursor

DATABASES = {"events": Database("events", 2), "tele-metry_1": Database("tele-metry_1", 1)}
EVERY = Scope(tuple(DATABASES), "a/+", every=True)


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


def test_a_cursor_names_what_was_read() -> None:
    cursor = Cursor((1, END, 1_772_352_000_000_000))
    text = written(cursor, EVERY, DATABASES)
    assert text.partition(".a.")[2] == "events.1.4000000000000000~tele-metry_1.64bf1db608000"
    assert parsed(text, EVERY, DATABASES) == (EVERY, cursor)
    assert len(text) <= room(tuple(DATABASES.values()))


def test_the_cursor_says_which_databases_are_read_on() -> None:
    one = Scope(("tele-metry_1",), "a/+", every=False)
    text = written(Cursor((7,)), one, DATABASES)
    assert parsed(text, EVERY, DATABASES) == (one, Cursor((7,)))
    # 0.2.0 gave positions alone, and meant the first database where none was named
    assert parsed("1-3-4", EVERY, DATABASES) == (Scope(("events",), "a/+", every=False), Cursor((3, 4)))
    assert parsed("1-3", one, DATABASES) == (one, Cursor((3,)))


def test_a_database_that_is_new_is_read_from_its_beginning() -> None:
    before = written(Cursor((3, 4)), Scope(("events",), "a/+", every=True), DATABASES)
    assert parsed(before, EVERY, DATABASES) == (EVERY, Cursor((3, 4, BEGINNING)))


@pytest.mark.parametrize(
    ("scope", "sentence"),
    [
        (Scope(("events", "tele-metry_1"), "a/#", every=True), "is of another topic filter; allowed: the `topic`"),
        (Scope(("events",), "a/+", every=False), "is of database tele-metry_1; allowed: one of events"),
    ],
)
def test_a_cursor_of_something_else_is_refused(scope: Scope, sentence: str) -> None:
    text = written(Cursor((7,)), Scope(("tele-metry_1",), "a/+", every=False), DATABASES)
    with pytest.raises(InvalidInputError, match=sentence):
        parsed(text, scope, DATABASES)


@pytest.mark.parametrize(
    "rest", ["", ".a.", ".x.events.0.0", ".s.events", ".s.events.A", ".s.events.ffffffffffffffff.0"]
)
def test_what_is_written_wrong_is_no_cursor(rest: str) -> None:
    digest = written(Cursor((7,)), Scope(("tele-metry_1",), "a/+", every=False), DATABASES)[:10]
    with pytest.raises(InvalidInputError, match="is none"):
        parsed(f"{digest}{rest}", EVERY, DATABASES)


def test_a_cursor_of_other_shards_or_of_no_database_is_refused() -> None:
    digest = written(Cursor((7,)), Scope(("tele-metry_1",), "a/+", every=False), DATABASES)[:10]
    with pytest.raises(InvalidInputError, match="has 1 shards of events; allowed: one of this database, with 2"):
        parsed(f"{digest}.s.events.0", EVERY, DATABASES)
    with pytest.raises(InvalidInputError, match="is of database 'gone', which is not there any more"):
        parsed(f"{digest}.s.gone.0", EVERY, DATABASES)
