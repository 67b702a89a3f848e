"""Section 3.3.2.3.4: topic aliases, of clients and for clients."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Bench
from tests.conformance.raw import PUBACK, PUBLISH, Pairs, ack, exactly, publish

ALIAS, ALIAS_MAXIMUM, MAXIMUM_PACKET_SIZE = 0x23, 0x22, 0x27


def test_an_alias_stands_for_its_topic(bench: Bench, name: str) -> None:
    client = bench.join()
    client.subscribe(f"{name}/#")
    for topic, alias, expected in (
        *((f"{name}/a", 1, "a"), ("", 1, "a"), (f"{name}/b", 64, "b"), ("", 64, "b"), ("", 1, "a")),
        *((f"{name}/c", 1, "c"), ("", 1, "c"), ("", 64, "b")),
    ):
        client.send(publish(topic, properties=[(ALIAS, alias)]))
        message = client.next(PUBLISH)
        assert (message.topic, message.properties) == (f"{name}/{expected}", ())


@pytest.mark.parametrize("qos", [1, 2])
def test_an_alias_counts_for_all_qos(bench: Bench, name: str, qos: int) -> None:
    client = bench.join()
    client.publish(name, qos=qos, properties=[(ALIAS, 5)])
    client.publish("", qos=qos, properties=[(ALIAS, 5)])


@pytest.mark.parametrize("alias", [0, 65, 65_535])
def test_an_alias_out_of_bounds_ends_the_connection(bench: Bench, name: str, alias: int) -> None:
    client = bench.join()
    client.send(publish(name, properties=[(ALIAS, alias)]))
    client.refused(0x94)


def test_an_alias_that_stands_for_nothing_ends_the_connection(bench: Bench) -> None:
    client = bench.join()
    client.send(publish("", properties=[(ALIAS, 3)]))
    client.refused(0x82)


def test_aliases_end_with_their_connection(bench: Bench, name: str) -> None:
    first = bench.join(name, properties=[(0x11, 600)])
    first.publish(name, properties=[(ALIAS, 1)])
    first.leave()
    second = bench.join(name, clean=False, properties=[(0x11, 600)])
    second.send(publish("", properties=[(ALIAS, 1)]))
    second.refused(0x82)


@pytest.mark.parametrize("maximum", [(), [(ALIAS_MAXIMUM, 0)]])
def test_the_broker_sends_whole_topics_and_no_alias(bench: Bench, name: str, maximum: Pairs) -> None:
    reader = bench.join(properties=maximum)
    reader.subscribe(name)
    writer = bench.join()
    for _ in range(3):
        writer.publish(name, properties=[(ALIAS, 2)])
        message = reader.next(PUBLISH)
        assert (message.topic, message.get(ALIAS)) == (name, None)
        reader.send(ack(PUBACK, message.packet_id))


@pytest.mark.parametrize(("maximum", "given"), [(1, 1), (3, 3), (16, 16), (65_535, 16)])
def test_the_broker_gives_no_more_aliases_than_the_client_takes(
    bench: Bench, name: str, maximum: int, given: int
) -> None:
    reader, writer = bench.join(properties=[(ALIAS_MAXIMUM, maximum)]), bench.join()
    reader.subscribe(f"{name}/#")
    known: dict[object, str] = {}
    for number in (*range(18), *range(18)):
        topic = f"{name}/{number}"
        writer.publish(topic, qos=number % 3)
        message = reader.next(PUBLISH)
        alias = message.get(ALIAS)
        if message.topic and alias is not None:
            assert alias not in known
            known[alias] = message.topic
        assert (message.topic or known[alias]) == topic
        assert (alias is not None) == (number < given)
    assert sorted(map(repr, known)) == sorted(map(repr, range(1, given + 1)))


def test_what_comes_again_has_its_whole_topic(bench: Bench, name: str) -> None:
    """Aliases end with their connection, on both sides."""
    properties: Pairs = [(ALIAS_MAXIMUM, 5), (0x11, 600)]
    reader, writer = bench.join(name, clean=False, properties=properties), bench.join()
    reader.subscribe(name)
    for _ in range(2):
        writer.publish(name)
    assert [one.topic for one in reader.settle()] == [name, ""]
    bench.lose(reader)
    reader = bench.join(name, clean=False, properties=properties)
    assert [(one.topic, one.dup) for one in reader.settle()] == [(name, True), ("", True)]
    bench.lose(reader)
    heard = bench.join(name, clean=False, properties=[(0x11, 600)]).settle()
    assert [(one.topic, one.get(ALIAS)) for one in heard] == [(name, None)] * 2


def test_an_alias_is_left_out_where_it_would_make_a_message_too_large(bench: Bench, name: str) -> None:
    reader = bench.join(properties=[(ALIAS_MAXIMUM, 5), (MAXIMUM_PACKET_SIZE, 200)])
    reader.subscribe(name, options=0)
    bench.join().publish(name, exactly(200, name, 0))
    message = reader.next(PUBLISH)
    assert (message.size, message.topic, message.get(ALIAS)) == (200, name, None)
