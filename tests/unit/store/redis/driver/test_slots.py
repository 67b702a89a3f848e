"""Slots of keys, maps of slots, and commands whose keys are in several."""

from __future__ import annotations

import pytest
from redis.crc import key_slot

from app.core import keys
from app.core.identifiers import PARTITIONS
from app.store.redis.driver.scripts import EVENT_SCRIPTS, FINISH, QUEUE_SCRIPTS, ROLE, SCRIPTS, SWEEP
from app.store.redis.driver.slots import NO_SLOT, SLOTS, SlotMap, guard_of, parse_slots, slot_of
from app.store.redis.driver.spread import joined, parts_of, slot_of_command

A, B = ("10.0.0.1", 7001), ("10.0.0.2", 7002)


@pytest.mark.parametrize("key", ["mqtt:due:{017}", "mqtt:webhooks", "a{}b", "{x", "x}{y}z", "{a}{b}", "mqtt:cursors:ü"])
def test_a_key_has_the_slot_that_redis_gives_it_and_its_guard_the_same(key: str) -> None:
    assert slot_of(key) == slot_of(key.encode()) == key_slot(key.encode())
    if "}" not in key or "{}" not in key:
        assert key_slot(guard_of(key).encode()) == slot_of(key)


def test_partitions_are_spread_over_all_primaries() -> None:
    slots = {slot_of(keys.due(one)) for one in range(PARTITIONS)}
    assert len(slots) == PARTITIONS
    assert sorted(sum(slot * 3 // SLOTS == third for slot in slots) for third in range(3)) == [80, 83, 93]


def test_a_map_is_read_as_the_member_tells_it() -> None:
    told = [[0, 99, [b"", 7001, b"id"], [b"10.0.0.3", 7003, b"r"]], [100, SLOTS - 1, [B[0].encode(), B[1], b"id", []]]]
    found = parse_slots(told, A)
    assert (found.owners[0], found.owners[100]) == (A, B)
    assert (found.primaries, found.replicas, found.whole) == ((A, B), frozenset([("10.0.0.3", 7003)]), True)
    assert found.moved({0: B, 2: B}).owners[:4] == (B, A, B, A)
    unknown = parse_slots([[0, 99, [b"?", 7001]], [100, 200, [None, 7001]]], A)
    assert (unknown.owners[0], unknown.owners[100], unknown.covered, unknown.whole) == (None, A, 101, False)


@pytest.mark.parametrize("told", [[[0, 1]], [["x", 1, [b"h", 1]]], [[0, SLOTS, [b"h", 1]]], [[0, 1, None]]])
def test_a_map_that_cannot_be_read_is_none(told: list[object]) -> None:
    with pytest.raises(ValueError, match="CLUSTER SLOTS"):
        parse_slots(told, A)


def test_a_command_goes_in_parts_where_its_keys_do_and_the_replies_are_one() -> None:
    exists = ("EXISTS", "a{1}", "b{2}", "c{1}")
    assert [one.command for one in parts_of(exists)] == [("EXISTS", "a{1}", "c{1}"), ("EXISTS", "b{2}")]
    assert joined(exists, [2, 1]) == 3
    xread = ("XREAD", "COUNT", 5, "STREAMS", "a{1}", "b{2}", "c{1}", "1-0", "2-0", "3-0")
    assert [one.command for one in parts_of(xread)] == [
        ("XREAD", "COUNT", 5, "STREAMS", "a{1}", "c{1}", "1-0", "3-0"),
        ("XREAD", "COUNT", 5, "STREAMS", "b{2}", "2-0"),
    ]
    assert joined(xread, [None, [["b{2}", []]]]) == [["b{2}", []]]
    assert joined(xread, [None, None]) is None
    refused = ValueError("one of them")
    assert joined(exists, [1, refused]) is refused
    assert [one.slot for one in parts_of(("HGET", "a{1}", "b"))] == [slot_of("{1}")]
    assert slot_of_command(("PING",)) == slot_of_command(("PUBLISH", "c", "x")) == NO_SLOT


def test_scripts_of_a_cluster_do_not_see_their_guard_and_name_the_home_that_heard_nothing() -> None:
    for one in (*SCRIPTS, *EVENT_SCRIPTS, *QUEUE_SCRIPTS, ROLE):
        there = one.on_cluster()
        assert there.text.startswith("table.remove(KEYS)\n")
        assert there.writes == one.writes
        assert there.sha != one.sha
    for one in (FINISH, SWEEP):
        assert one.text.count("return heard\n") == 1
        assert one.on_cluster().text.count("'?' .. home or heard\n") == 1


def test_a_map_knows_its_primaries_once() -> None:
    assert SlotMap((A, B) * (SLOTS // 2)).primaries == (A, B)
