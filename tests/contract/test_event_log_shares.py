"""Last values of one tenant leave room for those of the others, over every engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.core.errors import QuotaError
from app.core.events.event import MOST_VALUE_BYTES, Database, Entry, Shard, TenantShares
from app.core.events.record import value_size
from app.core.events.transaction import Transaction
from app.store.events import EventStore
from tests.contract.event_places import EventPlace, RedisEvents, RocksEvents
from tests.services import RedisProcess

SHARD = Shard("events", 1)
OWNERS = {"n": "north", "s": "south"}
TENANTS = TenantShares(lambda: len(OWNERS), lambda device: OWNERS.get(device[:1], ""))
MOST = 24
"""The events of a shard. Half of it is divided: 4 each for north, south, and what is nobody's."""
PART = 4


def database(most: int = 2 * MOST, most_bytes: int = MOST_VALUE_BYTES, tenants: TenantShares = TENANTS) -> Database:
    return Database("events", 2, (), most, most_bytes, tenants)


def said(device: str, value: bytes = b"1") -> Entry:
    return Entry(f"of/{device}", value, device)


@pytest.fixture
async def log(event_place: EventPlace) -> EventStore:
    return await event_place.fresh([database()])


async def values(log: EventStore) -> list[str]:
    return [one.entry.device for one in await log.values(SHARD, "#", "", 1000)]


async def number(log: EventStore, first: str) -> int:
    return sum(device.startswith(first) for device in await values(log))


async def fill(log: EventStore, first: str, count: int = 2 * MOST) -> None:
    await log.append(SHARD, [said(f"{first}{one:02}") for one in range(count)])


async def test_one_that_makes_topics_up_leaves_each_other_its_part(log: EventStore) -> None:
    await fill(log, "n")
    assert await number(log, "n") == MOST - 2 * PART
    await fill(log, "s")
    await fill(log, "-")
    assert [await number(log, one) for one in "ns-"] == [MOST - 2 * PART, PART, PART]
    await log.append(SHARD, [said("n00", b"2"), said("s00", b"2"), said("n90"), said("s90")])
    assert [await number(log, one) for one in "ns-"] == [MOST - 2 * PART, PART, PART], "those that had one go on"


@pytest.mark.parametrize("first", ["s", "-"])
async def test_two_that_do_so_leave_the_third_its_part(log: EventStore, first: str) -> None:
    for one in "ns-".replace(first, ""):
        await fill(log, one)
    assert len(await values(log)) == MOST - PART
    await fill(log, first)
    assert await number(log, first) == PART


async def test_room_comes_back_to_those_whose_values_go(log: EventStore) -> None:
    await fill(log, "n")
    await fill(log, "s")
    await log.append(SHARD, [said("n00", b""), said("n01", b""), said("s00", b"")])
    await log.append(SHARD, [said(f"s{one}") for one in range(50, 60)])
    assert await number(log, "s") == PART + 2, "what is no part of anybody is for all"
    await fill(log, "-")
    assert await number(log, "-") == PART
    assert len(await values(log)) == MOST


async def test_whoever_must_have_one_is_told_why_not(log: EventStore) -> None:
    await fill(log, "n")
    for entries in ((said("n90"),), (said("s90"), said("n90"))):
        with pytest.raises(QuotaError, match=r"'of/n90' .* left of HOMING_EVENTS_VALUES as is kept for other tenants"):
            await log.commit(Transaction(SHARD, (), entries))
    await log.commit(Transaction(SHARD, (), tuple(said(f"s{one}") for one in range(PART))))
    with pytest.raises(QuotaError, match="as many as HOMING_EVENTS_VALUES allows"):
        await log.commit(Transaction(SHARD, (), tuple(said(f"-{one}") for one in range(PART + 1))))
    await log.commit(Transaction(SHARD, (), tuple(said(f"-{one}") for one in range(PART))))
    with pytest.raises(QuotaError, match="as many as HOMING_EVENTS_VALUES allows"):
        await log.commit(Transaction(SHARD, (), (said("s90"),)))


async def test_bytes_are_divided_as_well(event_place: EventPlace) -> None:
    size = value_size(said("n00", bytes(1000)))
    log = await event_place.fresh([database(most_bytes=2 * MOST * size)])
    await log.append(SHARD, [said(f"n{one}", bytes(1000)) for one in range(10, 10 + MOST)])
    assert await number(log, "n") == MOST - 2 * PART
    with pytest.raises(QuotaError, match="left of HOMING_EVENTS_VALUES_BYTES as is kept for other tenants"):
        await log.commit(Transaction(SHARD, (), (said("n10", bytes(1001)),)))
    await log.append(SHARD, [said(f"s{one}", bytes(1000)) for one in range(10, 20)])
    assert await number(log, "s") == PART
    await log.append(SHARD, [said("s10", bytes(500))])
    await log.append(SHARD, [said("s11", bytes(1500))])
    assert await number(log, "s") == PART
    await log.append(SHARD, [said("n10", bytes(500)), said("n11", bytes(1501))])
    assert await number(log, "n") == MOST - 2 * PART - 1, "it grew into what is kept for others"


async def test_a_device_that_changes_hands_counts_to_the_new_one_with_its_next_value(event_place: EventPlace) -> None:
    sold: set[str] = set()
    tenants = TenantShares(TENANTS.known, lambda device: "south" if device in sold else TENANTS.owner(device))
    log = await event_place.fresh([database(tenants=tenants)])
    await fill(log, "n")
    sold |= {"n00", "n01", "n02"}
    await log.append(SHARD, [said("n00", b""), said("n01", b"2")])
    await fill(log, "s", PART)
    assert await number(log, "s") == PART
    await fill(log, "-", PART)
    assert await number(log, "-") == PART
    assert len(await values(log)) == MOST - 1
    await log.append(SHARD, [said("n90"), said("s90")])
    assert len(await values(log)) == MOST


async def test_where_nobody_or_one_alone_is_on_record_nothing_is_divided(event_place: EventPlace) -> None:
    for known in (0, 1):
        log = await event_place.fresh([database(tenants=TenantShares(known.__int__, TENANTS.owner))])
        await fill(log, "n")
        assert await number(log, "n") == MOST


async def test_what_each_has_is_known_after_a_restart(tmp_path: Path) -> None:
    place = RocksEvents(tmp_path)
    log = await place.open([database()])
    await fill(log, "n")
    await log.close()
    log = await place.open([database()])
    for first in "nns-":
        await fill(log, first)
    assert [await number(log, one) for one in "ns-"] == [MOST - 2 * PART, PART, PART]
    await place.close()


class TestBesideOthers:
    """0.2.0 divides nothing: it neither reads nor writes what says whose a value is."""

    @pytest.fixture
    async def logs(self, redis_server: RedisProcess) -> Sequence[EventStore]:
        place = RedisEvents(redis_server.url, redis_server.node_url)
        return await place.fresh([database()]), await place.open([database(tenants=TenantShares())])

    async def test_what_they_add_is_nobodys_until_its_next_value(self, logs: Sequence[EventStore]) -> None:
        log, other = logs
        await fill(other, "n")
        assert await number(log, "n") == MOST
        await log.append(SHARD, [said(f"n{one:02}", b"2") for one in range(MOST - 2)])
        await log.append(SHARD, [said(f"n{one:02}", b"") for one in range(MOST - 6, MOST)])
        await fill(log, "s")
        await fill(log, "-")
        assert [await number(log, one) for one in "ns-"] == [MOST - 6, 2, 2], "north has more than its share"

    async def test_what_they_delete_gives_its_room_back_with_the_next_generation(
        self, logs: Sequence[EventStore]
    ) -> None:
        log, other = logs
        await fill(log, "n")
        await other.append(SHARD, [said(f"n{one:02}", b"") for one in range(MOST - 2 * PART)])
        assert await values(log) == []
        await log.rotate("events", 1)
        await fill(log, "n")
        await fill(log, "s")
        await fill(log, "-")
        assert [await number(log, one) for one in "ns-"] == [MOST - 2 * PART, PART, PART]
        for device in await values(log):
            await log.append(SHARD, [said(device, b"")])
        await fill(log, "s")
        assert await number(log, "s") == MOST - 2 * PART
