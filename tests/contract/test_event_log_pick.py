"""Events by their positions, over every engine: what is there, what is gone, and what cannot be read."""

from __future__ import annotations

import pytest

from app.core.errors import DatabaseNotFoundError
from app.core.events.event import BEGINNING, END, Entry, Position, Shard
from app.core.events.reading import MOST_PICKED
from app.store.events import EventStore
from app.store.redis.events.log import RedisEventLog
from app.store.redis.events.scan import MOST_BESIDE
from tests.contract.event_places import EventPlace

SHARD = Shard("events", 2)


@pytest.fixture
async def log(event_place: EventPlace) -> EventStore:
    return await event_place.open()


async def say(log: EventStore, first: int, count: int, size: int = 0) -> list[Position]:
    """Append so many events at once, on several topics; return their positions."""
    entries = [
        Entry(f"thing/product/SN{number % 3}/osd" if number % 2 else f"$made/{number}", b"%d " % number + b"x" * size)
        for number in range(first, first + count)
    ]
    last = await log.append(SHARD, entries)
    return list(range(last - count + 1, last + 1))


async def numbers(log: EventStore, positions: list[Position]) -> list[int]:
    """The numbers of those events that are there, in the order asked for."""
    picked = await log.pick(SHARD, positions)
    assert not picked.damaged
    assert set(picked.events) <= set(positions)
    return [int(picked.events[one].entry.value.split()[0]) for one in positions if one in picked.events]


async def test_events_come_by_position_from_all_appends_and_generations(log: EventStore) -> None:
    places = await say(log, 0, 5) + await say(log, 5, 1) + await say(log, 6, 200)
    await log.rotate("events", 1)
    places += await say(log, 206, 40)
    await log.rotate("events", 2)
    places += await say(log, 246, 3)
    for asked in ([0], [248], [100, 3, 5, 210, 247], [7, 7, 7], list(range(80, 80 + MOST_PICKED))):
        assert await numbers(log, [places[one] for one in asked]) == asked
    (found,) = (await log.pick(SHARD, [places[7]])).events.values()
    assert (found.position, found.shard) == (places[7], SHARD.number)
    assert found.entry == Entry("thing/product/SN1/osd", b"7 ")


async def test_where_nothing_is_nothing_is_found(log: EventStore) -> None:
    places = await say(log, 0, 3)
    between = await say(log, 3, 2)
    assert await numbers(log, [BEGINNING, 1, places[0] - 1, between[-1] + 1, END]) == []
    assert await numbers(log, [places[0] - 1, places[2], between[0] - 1, between[1]]) in ([2, 4], [2, 2, 4])
    assert (await log.pick(Shard("events", 1), places)).events == {}
    assert (await log.pick(Shard("telemetry", 0), places)).events == {}


async def test_what_was_dropped_is_gone_and_the_rest_is_there(log: EventStore) -> None:
    first = await say(log, 0, 3)
    await log.rotate("events", 1)
    second = await say(log, 3, 3)
    await log.rotate("events", 2)
    third = await say(log, 6, 3)
    await log.drop("events", 1)
    assert await numbers(log, first + second + third) == [3, 4, 5, 6, 7, 8]
    assert (await log.pick(SHARD, first)).archived == 0, "gone, and not elsewhere"


async def test_large_events_come_all_however_many_bytes_they_have(log: EventStore) -> None:
    """More than what one round trip to Redis brings."""
    places = [(await say(log, number, 1, 120_000))[0] for number in range(60)]
    assert await numbers(log, places) == list(range(60))


async def test_a_database_that_is_not_there_is_named(log: EventStore) -> None:
    with pytest.raises(DatabaseNotFoundError, match="'nowhere'; there are events, telemetry"):
        await log.pick(Shard("nowhere", 0), [1])


async def test_what_is_beside_those_that_were_picked_is_not_among_them(log: EventStore) -> None:
    places = await say(log, 0, 100)
    for asked in (places[3:20], places[7:8]):
        picked = await log.pick(SHARD, asked)
        assert list(picked.events) == asked
        around = {one.position: one for one in picked.beside}
        assert set(around) <= set(places) - set(asked)
        later = (await log.pick(SHARD, list(around))).events if around else {}
        assert later == around, "they are the events of their positions"
        if isinstance(log, RedisEventLog):
            opened = 100 if MOST_BESIDE * len(asked) >= 100 else len(asked)
            assert len(around) == opened - len(asked), "a block is opened as a whole where much of it is picked"
