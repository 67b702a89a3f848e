from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import DamagedEventsError, InvalidInputError, PayloadTooLargeError
from app.core.events.block import count_of, pack_block, unpack_block
from app.core.events.event import (
    MAX_VALUE_BYTES,
    OWN_BYTES,
    Database,
    Entry,
    Event,
    Shard,
    validate_database,
    validate_entry,
    validate_reading_filter,
)
from app.core.events.generation import Generation, GenerationState, is_full, over
from app.core.events.record import pack_entry, topic_of, unpack_entry
from app.core.events.transaction import Transaction, ValueCondition

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
entries = st.builds(Entry, names, st.binary(max_size=50), names, names, names)


@given(entries)
def test_a_record_gives_its_entry_back(entry: Entry) -> None:
    data = pack_entry(entry)
    assert unpack_entry(data) == entry
    assert topic_of(data) == entry.topic


@pytest.mark.parametrize(
    "data",
    [b"", b"\x01\x00", b"\x02\x00\x01\x00\x00\x00a", b"\x01\x00\x09\x00\x00\x00a", b"\x01\x00\x01\x00\x00\x00\xff"],
)
def test_what_is_no_record_is_damage(data: bytes) -> None:
    with pytest.raises(DamagedEventsError, match="a record"):
        unpack_entry(data)


def test_what_a_log_does_not_take_is_said_in_a_sentence() -> None:
    with pytest.raises(InvalidInputError, match="topic: '\\+' at index 2 is a wildcard"):
        validate_entry(Entry("a/+", b""))
    with pytest.raises(InvalidInputError, match="topic: has 1025 bytes in UTF-8; allowed are 1024"):
        validate_entry(Entry("a" * 1025, b""))
    with pytest.raises(PayloadTooLargeError, match="data: has 131073 bytes; allowed are 131072"):
        validate_entry(Entry("a", b"x" * 131_073))
    with pytest.raises(InvalidInputError, match="database: 'Events' is no name"):
        validate_database("Events")
    with pytest.raises(InvalidInputError, match="topic: is a shared subscription"):
        validate_reading_filter("$share/g/a")
    with pytest.raises(InvalidInputError, match="topic: level 2: '\\+' must be a whole level"):
        validate_reading_filter("a/b+")


def test_all_of_a_device_is_in_one_shard_and_all_shards_are_used() -> None:
    database = Database("events", 4)
    used = {database.shard(f"SN{number}") for number in range(100)}
    assert used == set(database.all_shards()) == {Shard("events", number) for number in range(4)}
    assert database.shard("SN1") == database.shard("SN1")
    assert str(Shard("events", 3)) == "events.3"


def test_a_transaction_is_bounded() -> None:
    shard = Shard("events", 0)
    with pytest.raises(InvalidInputError, match="write: has 0 entries; allowed are 1 to 64"):
        Transaction(shard, (), ())
    with pytest.raises(InvalidInputError, match="if: has 65 conditions"):
        Transaction(shard, (ValueCondition("a", None),) * 65, (Entry("a", b""),))


DAY = 86_400_000_000


def test_a_generation_is_full_after_a_part_of_the_retention_or_by_its_size() -> None:
    current = Generation(3, GenerationState.CURRENT, first=DAY, last=DAY + 1, count=2, size=100)
    assert not is_full(current, DAY + DAY // 24 - 1, DAY, 1000)
    assert is_full(current, DAY + DAY // 24, DAY, 1000)
    assert is_full(current, DAY + 1, DAY, 100)
    assert not is_full(Generation(3, GenerationState.CURRENT), 9 * DAY, DAY, 0), "there is nothing in it"


def test_a_generation_is_over_when_its_last_event_is_too_old() -> None:
    def sealed(number: int, last: int) -> Generation:
        return Generation(number, GenerationState.SEALED, first=1, last=last, count=1)

    current = Generation(4, GenerationState.CURRENT, first=1, last=2, count=1)
    assert over([sealed(1, DAY), sealed(2, 2 * DAY), sealed(3, 5 * DAY), current], 3 * DAY + 1, DAY) == [1, 2]


@given(st.lists(entries, min_size=1, max_size=20), st.sampled_from(["", "a"]))
def test_a_block_gives_its_entries_back(given_entries: list[Entry], letter: str) -> None:
    data = pack_block(given_entries)
    found = unpack_block(data, 1000, 3, lambda topic: letter in topic)
    first = 1000 - len(given_entries) + 1
    expected = [Event(first + n, 3, entry) for n, entry in enumerate(given_entries) if letter in entry.topic]
    assert found == expected
    assert count_of(data) == len(given_entries)


@pytest.mark.parametrize("size", [0, 1, 300, 511 - 24, 512 - 24, 600])
def test_a_bit_that_changes_in_a_block_is_noticed_whatever_its_size(size: int) -> None:
    entry = Entry("site/1/up", bytes(number % 251 for number in range(size)))
    data = pack_block([entry])
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            with suppress(DamagedEventsError):  # else it is one that nobody reads
                assert unpack_block(bytes(damaged), 7, 0, lambda _topic: True) == [Event(7, 0, entry)], place


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_what_is_no_block_is_damage_and_nothing_else(data: bytes, place: int, byte: int) -> None:
    whole = bytearray(pack_block([Entry("a/b", b"x" * 600), Entry("c", b"1", "d", "e", "f")]))
    whole[place % len(whole)] = byte
    for damaged in (data, bytes(whole), bytes(whole[: place % len(whole)])):
        with suppress(DamagedEventsError):
            unpack_block(damaged, 1000, 3, lambda _topic: True)


def test_homings_own_entries_have_room_for_an_envelope_around_what_a_device_said() -> None:
    full = b"x" * MAX_VALUE_BYTES
    validate_entry(Entry("a", full))
    validate_entry(Entry("$homing/dead/-/alarms", full + b"e" * OWN_BYTES))
    for topic, value in (("a", full + b"e"), ("$homing/dead/-/alarms", full + b"e" * (OWN_BYTES + 1))):
        with pytest.raises(PayloadTooLargeError, match=f"has {len(value)} bytes; allowed are {len(value) - 1}"):
            validate_entry(Entry(topic, value))
