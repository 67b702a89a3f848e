"""Bounds in bytes hold whatever the shape of what is counted: `tracemalloc` tells what is really taken."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, product
from string import ascii_lowercase

import pytest

from app.core.broker.bounds import BrokerBounds
from app.core.broker.message import Message
from app.core.broker.packets import FilterOptions
from app.core.broker.properties import NO_PROPERTIES, Properties
from app.core.broker.retained import RetainedMessages
from app.core.broker.subscriptions import Subscribed, SubscriptionTable
from app.core.topictree import LONG_TOPIC
from tests.unit.core.broker.kept import KeptBench
from tests.unit.core.broker.peers import BrokerBench

BOUND = 1_000_000
WIDE = "\N{LEMON}"
"""A character of four bytes: a text with one of them takes four bytes for each of its characters."""


class Traced:
    """The bytes that were taken in a block."""

    taken = 0


@contextmanager
def traced() -> Iterator[Traced]:
    found = Traced()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield found
        found.taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def message(topic: str, properties: Properties = NO_PROPERTIES) -> Message:
    return Message(topic=topic, payload=b"x", qos=1, retain=True, publisher="p", properties=properties)


def plain(number: int) -> Message:
    return message(f"t{number}")


def deep(number: int) -> Message:
    """The topic has 32 levels, and shares none of them with others."""
    return message("/".join([f"t{number}", *ascii_lowercase, *"abcde"]))


def wide(number: int) -> Message:
    return message(f"{WIDE}{number:01000}")


def wide_property(number: int) -> Message:
    return message(f"t{number}", Properties({}, ((f"{number}", WIDE + "x" * 10_000),)))


shapes = pytest.mark.parametrize("shape", [plain, deep, wide, wide_property])


@shapes
def test_retained_messages_take_no_more_than_their_bound(shape: Callable[[int], Message]) -> None:
    retained = RetainedMessages(BrokerBounds(retained_bytes=BOUND))
    with traced() as found:
        numbers = count()
        while retained.keep(shape(next(numbers))):
            pass
    assert len(retained) > 10
    assert found.taken < 1.2 * BOUND


def test_the_room_of_deep_topics_comes_back() -> None:
    retained = RetainedMessages(BrokerBounds(retained_bytes=100_000))
    kept = [one for one in map(deep, range(20)) if retained.keep(one)]
    assert 2 < len(kept) < 10
    for _ in range(3):
        for one in kept:
            retained.remove(one.topic)
        assert all(map(retained.keep, kept))
        assert not retained.keep(deep(20))


@shapes
def test_what_waits_takes_no_more_than_its_bound(shape: Callable[[int], Message]) -> None:
    bench = BrokerBench(waiting_bytes=BOUND, retained_bytes=0)
    away(bench, "#")
    with traced() as found:
        fill(bench, shape)
    assert found.taken < 1.2 * BOUND


def test_a_thousand_identifiers_of_each_message_take_room() -> None:
    """A client may have a thousand filters that fit one topic, each with an identifier of its own."""
    bench = BrokerBench(waiting_bytes=BOUND, retained_bytes=0)
    filters = ["/".join(one) for one in product("a+", repeat=10)]
    away(bench, *filters)
    with traced() as found:
        fill(bench, lambda _number: message("/".join("a" * 10)))
    assert found.taken < 1.2 * BOUND


def test_what_came_by_one_share_or_several_filters_says_so_once_after_a_restart() -> None:
    bench = KeptBench()
    share = f"$share/{'g' * 900}/#"
    away(bench, share, "+/#", "t/#")
    for number in range(10):
        bench.connected("talker").publish(f"t/{number}", qos=1)
    bench.kill()
    held = bench.broker.sessions["away"].waiting
    assert sorted(len(one.identifiers) for one in held) == [1] * 10 + [2] * 10
    assert len({id(one.share) for one in held if one.share}) == 1
    assert len({id(one.identifiers) for one in held}) == 2


def test_filters_are_remembered_for_no_topics_that_are_made_up() -> None:
    table = SubscriptionTable(lambda ids, _topic: ids[0])
    with traced() as found:
        for number in range(2_000):
            assert list(table.receivers(message(f"{number:0{LONG_TOPIC + 1}}"))) == []
    assert found.taken < BOUND / 10


def test_filters_that_are_remembered_have_a_bound_of_their_own() -> None:
    table = SubscriptionTable(lambda ids, _topic: ids[0])
    for number in range(1_000):
        table.put("c", Subscribed(FilterOptions(f"$share/{number}/#")))
    with traced() as found:
        for number in range(1_000):
            assert next(table.receivers(plain(number))).client_id == "c"
    assert found.taken < 2 * BOUND


def away(bench: BrokerBench, *filters: str) -> None:
    """A session with subscriptions, whose client has left."""
    client = bench.connected("away", session_expiry_interval=60)
    for number, one in enumerate(filters, 1):
        client.subscribe(one, identifier=number)
    client.drop()


def fill(bench: BrokerBench, shape: Callable[[int], Message]) -> None:
    numbers = count()
    while not bench.counters["broker.dropped.memory_full"]:
        bench.broker.publish(shape(next(numbers)))
