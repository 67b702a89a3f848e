"""The contract of `EventLog` and `Generations`, over every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from app.core.errors import (
    DatabaseNotFoundError,
    FencedError,
    StoreUnavailableError,
    ValueChangedError,
)
from app.core.events.event import END, Database, Entry, Event, Shard
from app.core.events.generation import GenerationState
from app.core.events.reading import MOST_READ_BYTES, Reading, Slice
from app.core.events.transaction import Transaction, ValueCondition
from app.store.events import EventStore
from tests.contract.cold_places import ColdEvents
from tests.contract.event_places import EventPlace, MemoryEvents
from tests.waiting import PATIENCE, turns

SHARD = Shard("events", 2)


@pytest.fixture
def place(event_place: EventPlace) -> EventPlace:
    return event_place


@pytest.fixture
async def log(place: EventPlace) -> EventStore:
    return await place.open()


def said(topic: str, *values: bytes | str) -> list[Entry]:
    return [Entry(topic, value if isinstance(value, bytes) else value.encode()) for value in values]


def values_of(events: Sequence[Event]) -> list[str]:
    return [event.entry.value.decode() for event in events]


async def everything(log: EventStore, shard: Shard = SHARD, topic_filter: str = "#") -> list[Event]:
    """All events of the shard, read in steps of three."""
    found: list[Event] = []
    reading = Reading(topic_filter)
    while True:
        part = await log.read(shard, reading, 3)
        found += part.events
        if not part.more:
            return found
        reading = Reading(topic_filter, after=part.position)


async def test_what_is_appended_is_read_in_its_order_with_all_that_is_known_of_it(log: EventStore) -> None:
    entries = [
        Entry("a/b", b"\x00\xff", device="SN1", kind="dji:osd", id="7"),
        Entry("ä/☃", b"", device="", kind=""),
        Entry("/", b"x" * 100_000),
    ]
    last = await log.append(SHARD, entries)
    found = await log.read(SHARD, Reading(), 10)
    assert [event.entry for event in found.events] == entries
    assert [event.position for event in found.events] == [last - 2, last - 1, last]
    assert {event.shard for event in found.events} == {2}
    assert found == Slice(found.events, last, more=False)


async def test_names_that_are_too_long_are_cut_between_characters(log: EventStore) -> None:
    """A character that is cut in two cannot be read, nor can anything else in the same block."""
    await log.append(
        SHARD, [Entry("a", b"1"), Entry("a", b"2", "é" * 200, "ä" * 130, "x" + "☃" * 90), Entry("b", b"3")]
    )
    one, cut, other = (event.entry for event in (await log.read(SHARD, Reading(), 10)).events)
    assert (one.value, other.value) == (b"1", b"3")
    for name, whole in zip(cut[2:], ("é" * 200, "ä" * 130, "x" + "☃" * 90), strict=True):
        assert name
        assert whole.startswith(name)
    last = await log.value(SHARD, "a")
    assert last is not None
    assert last.entry.value == b"2"


async def test_positions_are_instants_and_grow(log: EventStore) -> None:
    first = await log.append(SHARD, said("a", "1"))
    second = await log.append(SHARD, said("a", *"23456"))
    assert second >= first + 5
    assert first > 1_700_000_000_000_000


async def test_shards_and_databases_are_apart(log: EventStore) -> None:
    await log.append(SHARD, said("a", "1"))
    await log.append(Shard("events", 0), said("a", "2"))
    await log.append(Shard("telemetry", 0), said("a", "3"))
    assert values_of(await everything(log)) == ["1"]
    assert values_of(await everything(log, Shard("telemetry", 0))) == ["3"]
    assert (await log.read(Shard("events", 1), Reading(), 10)).events == []


async def test_a_database_that_is_not_there_is_named(log: EventStore) -> None:
    with pytest.raises(DatabaseNotFoundError, match="'nowhere'; there are events, telemetry"):
        await log.append(Shard("nowhere", 0), said("a", "1"))
    with pytest.raises(DatabaseNotFoundError):
        await log.read(Shard("nowhere", 0), Reading(), 1)
    with pytest.raises(DatabaseNotFoundError):
        await log.generations("nowhere")
    with pytest.raises(DatabaseNotFoundError):
        await log.structures("nowhere")
    with pytest.raises(DatabaseNotFoundError):
        await log.wait("nowhere", [0])


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        ("#", "123457"),
        ("", "1234567"),
        ("thing/product/+/osd", "14"),
        ("thing/product/SN1/osd", "1"),
        ("thing/product/SN1/#", "12"),
        ("thing/product/SN1/+", "12"),
        ("thing/+/+/+", "124"),
        ("+", "37"),
        ("other/#", "35"),
        ("$sys/#", "6"),
        ("thing/product/SN9/osd", ""),
        ("thing/product/+", ""),
    ],
)
async def test_filters_choose_as_those_of_mqtt(log: EventStore, topic_filter: str, expected: str) -> None:
    first = ("thing/product/SN1/osd", "thing/product/SN1/events", "other", "thing/product/SN2/osd")
    for number, topic in enumerate((*first, "other/x", "$sys/a", "plain"), start=1):
        await log.append(SHARD, said(topic, str(number)))
    assert "".join(values_of(await everything(log, topic_filter=topic_filter))) == expected


async def test_a_reading_has_both_ends(log: EventStore) -> None:
    last = await log.append(SHARD, said("a", *"12345"))
    middle = Reading("#", after=last - 4, until=last - 1)
    assert values_of((await log.read(SHARD, middle, 10)).events) == ["2", "3", "4"]
    part = await log.read(SHARD, middle, 2)
    assert (values_of(part.events), part.position, part.more) == (["2", "3"], last - 2, True)
    rest = await log.read(SHARD, Reading("#", after=part.position, until=last - 1), 2)
    assert (values_of(rest.events), rest.position, rest.more) == (["4"], last - 1, False)


async def test_a_reading_that_finds_nothing_says_how_far_it_has_looked(log: EventStore) -> None:
    empty = await log.read(SHARD, Reading(), 10)
    assert (empty.events, empty.position, empty.more) == ([], 0, False)
    last = await log.append(SHARD, said("a", *"123"))
    nothing = await log.read(SHARD, Reading("b/#"), 10)
    assert (nothing.events, nothing.position, nothing.more) == ([], last, False)
    beyond = await log.read(SHARD, Reading("#", after=last + 100), 10)
    assert (beyond.events, beyond.position, beyond.more) == ([], last + 100, False)


async def test_many_topics_become_few_structures_and_none_is_lost(log: EventStore) -> None:
    for number in range(40):
        entries = [Entry(f"site/{number}/{kind}", str(number).encode()) for kind in ("up", "down")]
        await log.append(SHARD, entries)
    assert len(await log.structures("events")) < 30
    assert "thing/product/+/osd" in await log.structures("events")
    for number in (0, 9, 10, 11, 39):
        assert values_of(await everything(log, topic_filter=f"site/{number}/up")) == [str(number)]
    found = await everything(log, topic_filter="site/+/down")
    assert values_of(found) == [str(number) for number in range(40)]
    assert found == sorted(found)


async def test_of_a_topic_the_last_value_is_known(log: EventStore) -> None:
    assert await log.value(SHARD, "a") is None
    last = await log.append(SHARD, [*said("a", "1"), *said("b", "2"), *said("a", "3")])
    assert await log.value(SHARD, "a") == Event(last, 2, Entry("a", b"3"))
    assert await log.value(Shard("events", 1), "a") is None
    await log.append(SHARD, said("a", ""))
    assert await log.value(SHARD, "a") is None
    assert values_of(await everything(log, topic_filter="a")) == ["1", "3", ""]


async def test_last_values_are_listed_by_topic_in_pages(log: EventStore) -> None:
    await log.append(SHARD, [Entry(f"t/{one}/x", one.encode()) for one in ("b", "a", "ä", "c")] + said("u", "u"))
    first = await log.values(SHARD, "t/+/x", "", 2)
    assert values_of(first) == ["a", "b"]
    assert values_of(await log.values(SHARD, "t/+/x", first[-1].entry.topic, 10)) == ["c", "ä"]
    assert values_of(await log.values(SHARD, "#", "t/c/x", 10)) == ["ä", "u"]
    assert await log.values(SHARD, "v/#", "", 10) == []


async def test_a_transaction_is_all_or_nothing(log: EventStore) -> None:
    first = await log.append(SHARD, said("x", "1"))
    change = Transaction(
        SHARD, (ValueCondition("x", first), ValueCondition("y", None)), (*said("x", "2"), *said("y", "1"))
    )
    position = await log.commit(change)
    assert position >= first + 2
    with pytest.raises(ValueChangedError, match=f"topic 'x' has a value at position {position - 1}") as refused:
        await log.commit(change)
    assert (refused.value.topic, refused.value.expected, refused.value.found) == ("x", first, position - 1)
    with pytest.raises(ValueChangedError, match="topic 'z' has no value, and the change was made for a value at"):
        await log.commit(Transaction(SHARD, (ValueCondition("z", 17),), (*said("z", "1"),)))
    assert values_of(await everything(log)) == ["1", "2", "1"]


async def test_of_changes_made_at_once_for_the_same_value_one_wins(log: EventStore) -> None:
    first = await log.append(SHARD, said("x", "0"))
    changes = [Transaction(SHARD, (ValueCondition("x", first),), (*said("x", str(one)),)) for one in range(8)]
    ended = await asyncio.gather(*(log.commit(one) for one in changes), return_exceptions=True)
    assert sum(isinstance(one, ValueChangedError) for one in ended) == 7
    assert len(await everything(log)) == 2


async def test_who_appends_with_a_later_epoch_shuts_out_the_one_before(log: EventStore) -> None:
    await log.append(SHARD, said("a", "1"), epoch=1)
    await log.append(SHARD, said("a", "2"), epoch=3)
    with pytest.raises(FencedError):
        await log.append(SHARD, said("a", "never"), epoch=2)
    await log.append(SHARD, said("a", "3"), epoch=3)
    await log.append(Shard("events", 0), said("a", "other shard"), epoch=1)
    assert values_of(await everything(log)) == ["1", "2", "3"]


async def test_backends_append_beside_the_intake(log: EventStore) -> None:
    """An append over HTTP has no epoch, and is never shut out: only an intake may be outrun by its successor."""
    await log.append(SHARD, said("a", "1"), epoch=5)
    await log.append(SHARD, said("a", "2"))
    with pytest.raises(FencedError):
        await log.append(SHARD, said("a", "never"), epoch=4)
    assert values_of(await everything(log)) == ["1", "2"]


async def test_whoever_waits_is_woken_by_what_comes_and_by_nothing_else(log: EventStore) -> None:
    last = await log.append(SHARD, said("a", "1"))
    async with asyncio.timeout(PATIENCE):
        await log.wait("events", [0, 0, 0, 0])
        waiting = asyncio.create_task(log.wait("events", [0, 0, last, 0]))
        await log.append(Shard("telemetry", 0), said("a", "1"))
        await turns()
        assert not waiting.done()
        other = await log.append(Shard("events", 1), said("a", "1"))
        assert list(await waiting) == [0, other, last, 0]


async def test_whoever_waits_when_the_log_is_closed_is_told(log: EventStore) -> None:
    waiting = asyncio.create_task(log.wait("telemetry", [END]))
    await turns()
    await log.close()
    with pytest.raises(StoreUnavailableError):
        async with asyncio.timeout(PATIENCE):
            await waiting


class TestGenerations:
    async def test_there_is_one_at_the_beginning(self, log: EventStore) -> None:
        (only,) = await log.generations("events")
        assert (only.number, only.state, only.count) == (1, GenerationState.CURRENT, 0)

    async def test_each_knows_what_is_in_it(self, log: EventStore) -> None:
        first = await log.append(SHARD, said("a", "12345"))
        last = await log.append(Shard("events", 0), said("b", "1"))
        (only,) = await log.generations("events")
        assert (only.first, only.last, only.count) == (min(first, last), max(first, last), 2)
        assert only.size > 6

    async def test_readers_do_not_notice_where_one_ends(self, log: EventStore) -> None:
        for number in range(6):
            await log.append(SHARD, said("thing/product/SN1/osd", str(number)))
            await log.rotate("events", number + 1)
        for topic_filter in ("#", "thing/product/SN1/osd", "thing/product/+/osd"):
            found = await everything(log, topic_filter=topic_filter)
            assert values_of(found) == list("012345")
            assert found == sorted(found)

    async def test_the_next_one_begins_once(self, log: EventStore) -> None:
        await asyncio.gather(*(log.rotate("events", 1) for _ in range(4)))
        await log.rotate("events", 7)
        found = await log.generations("events")
        assert [one.number for one in found] == [1, 2]
        assert found[0].state in {GenerationState.SEALED, GenerationState.COLD}
        assert found[1].state is GenerationState.CURRENT
        assert len(await log.generations("telemetry")) == 1

    async def test_one_that_is_dropped_is_gone_with_its_events_and_not_their_last_values(self, log: EventStore) -> None:
        last = await log.append(SHARD, said("a", "1", "2"))
        await log.append(Shard("events", 0), said("b", "1"))
        await log.rotate("events", 1)
        await log.append(SHARD, said("c", "3"))
        await log.drop("events", 1)
        await log.drop("events", 1)
        await log.drop("events", 2)  # the current one stays
        assert [one.number for one in await log.generations("events")] == [2]
        assert values_of(await everything(log)) == ["3"]
        assert await everything(log, Shard("events", 0)) == []
        assert await log.value(SHARD, "a") == Event(last, 2, Entry("a", b"2"))

    async def test_positions_grow_over_all_of_them(self, log: EventStore) -> None:
        first = await log.append(SHARD, said("a", "1"))
        await log.rotate("events", 1)
        await log.drop("events", 1)
        assert await log.append(SHARD, said("a", "2")) > first


async def test_databases_may_have_one_shard_or_all(place: EventPlace) -> None:
    log = await place.open((Database("one", 1), Database("many", 256)))
    await log.append(Shard("many", 255), said("a", "1"))
    assert values_of(await everything(log, Shard("many", 255))) == ["1"]


HOSTILE = (
    "/",
    "//",
    "a//b",
    "/a/",
    "$own/a",
    "$/x",
    "/".join("x" * 200),
    "/".join("y" * 512),
    "/" * 1023,
    "t" * 1024,
    "ü" * 512,
    "a b/c\u3000d",
    "%00/%2F",
    *(f"{'/'.join('z' * 299)}/{number}" for number in range(14)),
)


async def test_topics_that_nobody_would_design_are_read_like_others(log: EventStore) -> None:
    await log.append(SHARD, [Entry(topic, b"%d" % number) for number, topic in enumerate(HOSTILE)])
    for number, topic in enumerate(HOSTILE):
        assert values_of(await everything(log, topic_filter=topic)) == [str(number)]
        assert await log.value(SHARD, topic) is not None
        front = topic.split("/")[0]
        if front:
            found = values_of(await everything(log, topic_filter=f"{front}/#"))
            assert str(number) in found
            assert all(HOSTILE[int(one)].split("/")[0] == front for one in found)
    wild = [number for number, topic in enumerate(HOSTILE) if not topic.startswith("$")]
    assert values_of(await everything(log)) == list(map(str, wild))
    assert len(await everything(log, topic_filter="")) == len(HOSTILE)


async def test_a_reading_ends_when_it_has_many_bytes(place: EventPlace, log: EventStore) -> None:
    if isinstance(place, ColdEvents):
        pytest.skip("what is cold is read file by file")
    size = 100_000
    for number in range(4):
        await log.append(SHARD, [Entry("a", b"%02d" % number + b"x" * size) for _ in range(64)])
    part = await log.read(SHARD, Reading(), 1000)
    assert part.more
    assert MOST_READ_BYTES <= sum(len(one.entry.value) for one in part.events) <= MOST_READ_BYTES + 64 * (size + 2)
    rest = await log.read(SHARD, Reading(after=part.position), 1000)
    assert (len(part.events) + len(rest.events), rest.more) == (4 * 64, False)


async def test_structures_are_forgotten_with_their_generation(place: EventPlace, log: EventStore) -> None:
    if isinstance(place, MemoryEvents | ColdEvents):
        pytest.skip("it has one set of structures, as long as it lives")
    await log.generations("events")
    await log.append(SHARD, [*said("once", "1"), *said("again", "1")])
    await log.rotate("events", 1)
    await log.append(SHARD, said("again", "2"))
    assert {"once", "again"} <= set(await log.structures("events"))
    await log.drop("events", 1)
    await log.generations("events")
    await log.append(SHARD, said("again", "3"))
    assert await log.structures("events") == ["again", "thing/product/+/osd"]
