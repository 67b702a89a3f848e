"""Cursors under a name, over every engine: two readers, answers that were lost, as many as there may be."""

from __future__ import annotations

import asyncio

import pytest

from app.core.errors import CapacityError
from app.core.events.named_cursors import MOST_OF_OWNER
from app.store.events import EventStore
from tests.contract.event_places import EventPlace


@pytest.fixture
async def log(event_place: EventPlace) -> EventStore:
    return await event_place.open()


async def test_a_cursor_is_written_where_nobody_else_has_written(log: EventStore) -> None:
    cursors = log.cursors
    assert await cursors.read("ops") == {}
    assert await cursors.swap("ops", "archive", None, b"1")
    assert await cursors.swap("ops", "archive", b"1", b"2")
    assert not await cursors.swap("ops", "archive", b"1", b"3"), "somebody was faster"
    assert not await cursors.swap("ops", "archive", None, b"3")
    assert await cursors.read("ops") == {"archive": b"2"}


async def test_what_is_repeated_as_its_answer_was_lost_is_done_once(log: EventStore) -> None:
    for _ in range(2):
        assert await log.cursors.swap("ops", "archive", None, b"1")
    for _ in range(2):
        assert await log.cursors.swap("ops", "archive", b"1", b"2")
    for _ in range(2):
        assert await log.cursors.swap("ops", "archive", b"2", None)
    assert await log.cursors.read("ops") == {}


async def test_owners_and_names_do_not_meet(log: EventStore) -> None:
    places = [("", "a"), ("a", "a"), ("a", "b"), ("ab", "a"), ("a/b", "a"), ("-x", "a")]
    for number, (owner, name) in enumerate(places):
        assert await log.cursors.swap(owner, name, None, b"%d" % number)
    assert await log.cursors.read("a") == {"a": b"1", "b": b"2"}
    assert await log.cursors.read("") == {"a": b"0"}
    assert await log.cursors.swap("a", "a", b"1", None)
    assert await log.cursors.read("a") == {"b": b"2"}
    assert await log.cursors.read("ab") == {"a": b"3"}


@pytest.mark.parametrize("owner", ["oidc:https://x#a}b", "oidc:https://x#{}", "{a}", "}{", "a{", "%7D", "\0", "é\n"])
async def test_an_owner_may_be_called_what_their_issuer_likes(log: EventStore, owner: str) -> None:
    assert await log.cursors.swap(owner, "archive", None, b"1")
    assert await log.cursors.swap(owner, "archive", b"1", b"2")
    assert await log.cursors.read(owner) == {"archive": b"2"}
    assert await log.cursors.read(owner.replace("}", "%7D") + "x") == {}


async def test_of_two_at_once_one_wins(log: EventStore) -> None:
    assert await log.cursors.swap("ops", "archive", None, b"0")
    both = await asyncio.gather(*(log.cursors.swap("ops", "archive", b"0", b"%d" % one) for one in (1, 2)))
    assert sorted(both) == [False, True]


async def test_a_caller_has_so_many(log: EventStore) -> None:
    for number in range(MOST_OF_OWNER):
        assert await log.cursors.swap("ops", f"r{number}", None, b"1")
    with pytest.raises(CapacityError, match="256 cursors"):
        await log.cursors.swap("ops", "more", None, b"1")
    assert await log.cursors.swap("ops", "r0", b"1", b"2"), "those that are there go on"
    assert await log.cursors.swap("other", "more", None, b"1")
    assert await log.cursors.swap("ops", "r0", b"2", None)
    assert await log.cursors.swap("ops", "more", None, b"1")


async def test_cursors_are_there_when_the_log_is_opened_again(
    log: EventStore, event_place: EventPlace, request: pytest.FixtureRequest
) -> None:
    assert await log.cursors.swap("ops", "archive", None, b"1")
    await log.close()
    again = await event_place.open()
    assert await again.cursors.read("ops") == ({} if "[memory" in request.node.name else {"archive": b"1"})
