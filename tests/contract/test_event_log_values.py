"""Last values take no more bytes than they may, over every engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.errors import QuotaError
from app.core.events.event import Database, Entry, Shard
from app.core.events.reading import Reading
from app.core.events.record import value_size
from app.core.events.transaction import Transaction
from app.store.events import EventStore
from tests.contract.event_places import EventPlace, RocksEvents

SHARD = Shard("events", 1)
ROOM = 3 * value_size(Entry("a", b"x" * 1000))
DATABASES = (Database("events", 2, (), 1000, 2 * ROOM),)


def said(topic: str, size: int) -> Entry:
    return Entry(topic, b"x" * size)


@pytest.fixture
async def log(event_place: EventPlace) -> EventStore:
    return await event_place.fresh(DATABASES)


async def sizes(log: EventStore) -> dict[str, int]:
    return {one.entry.topic: len(one.entry.value) for one in await log.values(SHARD, "#", "", 100)}


async def test_what_has_no_room_is_in_the_log_alone(log: EventStore) -> None:
    for topic in "abcd":
        await log.append(SHARD, [said(topic, 1000)])
    assert await sizes(log) == {"a": 1000, "b": 1000, "c": 1000}
    assert len((await log.read(SHARD, Reading(), 10)).events) == 4
    await log.append(Shard("events", 0), [said("d", 1000)])
    assert await log.value(Shard("events", 0), "d") is not None, "each shard has its part"


async def test_a_value_that_grew_too_large_leaves_none_and_one_that_shrinks_makes_room(log: EventStore) -> None:
    await log.append(SHARD, [said("a", 1000), said("b", 1000), said("c", 1000)])
    await log.append(SHARD, [said("a", 1001)])
    assert await sizes(log) == {"b": 1000, "c": 1000}, "the one before is not the last any more"
    await log.append(SHARD, [said("a", 1000)])
    await log.append(SHARD, [said("b", 500), said("a", 1500)])
    assert await sizes(log) == {"a": 1500, "b": 500, "c": 1000}
    await log.append(SHARD, [said("c", 0), said("a", 2500)])
    assert await sizes(log) == {"a": 2500, "b": 500}


async def test_only_the_last_one_of_a_call_counts(log: EventStore) -> None:
    await log.append(SHARD, [said("a", 2 * ROOM), said("b", 1000), said("a", 1000)])
    assert await sizes(log) == {"a": 1000, "b": 1000}


async def test_topics_of_homing_have_room_that_others_lack(log: EventStore) -> None:
    await log.append(SHARD, [said(topic, 1000) for topic in "abc"])
    own = [f"$homing/{number}" for number in range(4)]
    for topic in own:
        await log.append(SHARD, [said(topic, 900)])
    assert [one.entry.topic for one in await log.values(SHARD, "$homing/#", "", 9)] == own[:3]


async def test_whoever_must_have_a_last_value_is_refused_and_nothing_is_written(log: EventStore) -> None:
    await log.append(SHARD, [said("a", 1000), said("b", 1000)])
    for entries in ((said("c", 500), said("d", 500)), (said("a", 2101),)):
        with pytest.raises(
            QuotaError, match=r"can have no last value: .* has as many bytes as HOMING_EVENTS_VALUES_BYTES"
        ):
            await log.commit(Transaction(SHARD, (), entries))
    assert await sizes(log) == {"a": 1000, "b": 1000}
    assert len((await log.read(SHARD, Reading(), 10)).events) == 2
    await log.commit(Transaction(SHARD, (), (said("a", 1900),)))
    await log.commit(Transaction(SHARD, (), (said("b", 0),)))
    await log.commit(Transaction(SHARD, (), (said("c", 1000),)))
    assert await sizes(log) == {"a": 1900, "c": 1000}


async def test_what_they_take_is_known_after_a_restart(tmp_path: Path) -> None:
    place = RocksEvents(tmp_path)
    log = await place.open(DATABASES)
    await log.append(SHARD, [said(topic, 1000) for topic in "abc"])
    await log.close()
    log = await place.open(DATABASES)
    await log.append(SHARD, [said("d", 1)])
    assert sorted(await sizes(log)) == ["a", "b", "c"]
    await log.append(SHARD, [said("c", 0), said("d", 1000)])
    assert sorted(await sizes(log)) == ["a", "b", "d"]
    await place.close()
