"""Schedules in every engine that keeps them: one step changes one, and refuses who has not seen the last change."""

from __future__ import annotations

import pytest

from app.core.errors import CapacityError
from app.store import schedules as port
from app.store.memory import schedules as in_memory
from app.store.redis import schedules as in_redis
from app.store.schedules import ScheduleStore
from app.store.state import StateStore

NIGHTLY = "- nightly"


@pytest.fixture
def schedules(store: StateStore) -> ScheduleStore:
    return store.schedules


async def test_where_nothing_was_ever_written_nothing_has_changed(schedules: ScheduleStore) -> None:
    assert await schedules.changes() == 0
    assert await schedules.read() == (0, {})


async def test_what_is_written_is_read(schedules: ScheduleStore) -> None:
    assert await schedules.write(NIGHTLY, "{ü}".encode(), None)
    assert await schedules.write("acme nightly", b"{}", None)
    changes, documents = await schedules.read()
    assert documents == {NIGHTLY: "{ü}".encode(), "acme nightly": b"{}"}
    assert changes == await schedules.changes() == 2


async def test_a_change_is_made_by_who_has_read_the_last_one(schedules: ScheduleStore) -> None:
    await schedules.write(NIGHTLY, b"1", None)
    assert await schedules.write(NIGHTLY, b"2", b"1")
    assert not await schedules.write(NIGHTLY, b"3", b"1")
    assert not await schedules.write(NIGHTLY, b"3", None)
    assert not await schedules.write(NIGHTLY, None, b"1")
    assert not await schedules.write("- other", b"3", b"2"), "there is none to change"
    assert (await schedules.read()).documents == {NIGHTLY: b"2"}


async def test_a_repeated_change_changes_nothing(schedules: ScheduleStore) -> None:
    await schedules.write(NIGHTLY, b"1", None)
    before = await schedules.changes()
    assert await schedules.write(NIGHTLY, b"1", None)
    assert await schedules.changes() == before
    assert await schedules.write(NIGHTLY, None, b"1")
    after = await schedules.changes()
    assert after > before
    assert await schedules.write(NIGHTLY, None, b"1")
    assert await schedules.read() == (after, {})


async def test_there_are_no_more_than_may_be(schedules: ScheduleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (port, in_memory, in_redis):
        monkeypatch.setattr(module, "MOST_SCHEDULES", 2)
    await schedules.write("- a", b"1", None)
    await schedules.write("- b", b"1", None)
    with pytest.raises(CapacityError, match="2 schedules"):
        await schedules.write("- c", b"1", None)
    assert await schedules.write("- a", b"2", b"1"), "those that are there can be changed"
    assert await schedules.write("- b", None, b"1")
    assert await schedules.write("- c", b"1", None)
