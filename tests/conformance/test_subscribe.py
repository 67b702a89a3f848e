"""Sections 3.8 to 3.11, 4.7 and 4.8: subscriptions, topic filters."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Bench
from tests.conformance.raw import (
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
    V5,
    Pairs,
    ack,
    packet,
    publish,
    string,
    subscribe,
    unsubscribe,
)

IDENTIFIER, SESSION_EXPIRY, MAXIMUM_PACKET_SIZE = 0x0B, 0x11, 0x27
NO_LOCAL = 4


def test_each_filter_has_its_reason_in_order(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    filters = [(f"{name}/{n}", n % 3) for n in range(10)]
    suback = client.ask(subscribe(filters, version, 7), SUBACK)
    assert (suback.packet_id, suback.codes) == (7, tuple(n % 3 for n in range(10)))


def test_one_filter_that_fails_fails_alone(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    long = "/".join("x" * 40)
    suback = client.ask(subscribe([(f"{name}/a", 1), (long, 1), (f"{name}/b", 2)], version), SUBACK)
    assert suback.codes == (1, 0x8F if version == V5 else 0x80, 2)
    client.send(publish(f"{name}/b", version=version))
    assert client.next(PUBLISH).topic == f"{name}/b"


@pytest.mark.parametrize("first", [0x80, 0x81, 0x83, 0x8A, 0x8F])
def test_a_subscribe_with_other_flags_ends_the_connection(bench: Bench, version: int, first: int) -> None:
    client = bench.join(version=version)
    client.send(bytes((first,)) + subscribe([("a", 0)], version)[1:])
    client.refused(0x81)


@pytest.mark.parametrize("first", [0xA0, 0xA1, 0xA3, 0xAA, 0xAF])
def test_an_unsubscribe_with_other_flags_ends_the_connection(bench: Bench, version: int, first: int) -> None:
    client = bench.join(version=version)
    client.send(bytes((first,)) + unsubscribe(["a"], version)[1:])
    client.refused(0x81)


def test_no_filter_at_all_ends_the_connection(bench: Bench, version: int) -> None:
    for said in (subscribe([], version), unsubscribe([], version)):
        client = bench.join(version=version)
        client.send(said)
        client.refused(0x82)


def test_options_with_reserved_bits_end_the_connection(bench: Bench, version: int) -> None:
    reserved = (3, 0x40, 0x80, 0xC0, 0x30) if version == V5 else (3, 4, 8, 0x10, 0x20, 0x40, 0x80)
    for options in reserved:
        client = bench.join(version=version)
        client.send(subscribe([("a", options)], version))
        client.refused(0x81, 0x82)


def test_a_filter_without_options_ends_the_connection(bench: Bench, version: int) -> None:
    client = bench.join(version=version)
    client.send(packet(0x82, b"\0\1" + b"\0" * (version == V5) + string("a")))
    client.refused(0x81)


WRONG = ["", "a/#/b", "#/a", "a#", "a/b#", "a+", "+a/b", "a/+b/c", "a/##", "a/++", "/#/"]


@pytest.mark.parametrize("topic_filter", WRONG)
def test_wildcards_that_do_not_stand_alone_end_the_connection(bench: Bench, version: int, topic_filter: str) -> None:
    for said in (subscribe([(topic_filter, 0)], version), unsubscribe([topic_filter], version)):
        client = bench.join(version=version)
        client.send(said)
        client.refused(0x8F, 0x81)


MATCHES = [
    ("{}/#", ["{}", "{}/", "{}/a", "{}/a/b", "{}/$a"], ["{}a", "a/{}"]),
    ("{}/+", ["{}/a", "{}/", "{}/$a"], ["{}", "{}/a/b"]),
    ("{}/+/b", ["{}/a/b", "{}//b"], ["{}/b", "{}/a/b/"]),
    ("+/{}/#", ["x/{}", "/{}", "x/{}/a"], ["{}/a", "$x/{}"]),
    ("#", ["{}", "/{}", "{}/a", "/"], ["${}", "${}/a"]),
    ("+/{}", ["/{}", "a/{}"], ["$a/{}", "{}", "a/{}/"]),
    ("+/+", ["{}/{}", "/{}", "{}/"], ["{}", "$a/{}", "a/{}/b"]),
    ("${}/#", ["${}", "${}/a"], ["{}/a"]),
    ("${}/+", ["${}/a"], ["${}"]),
    ("{}/A", ["{}/A"], ["{}/a", "{}/A/", "/{}/A", "{}//A", "{}/A "]),
    ("{}/é", ["{}/é"], ["{}/e\u0301", "{}/É"]),
    ("{}/a b", ["{}/a b"], ["{}/a  b"]),
    ("/{}", ["/{}"], ["{}", "//{}"]),
]


@pytest.mark.parametrize(("topic_filter", "fit", "other"), MATCHES, ids=[one[0] for one in MATCHES])
@pytest.mark.parametrize("retain", [False, True], ids=["live", "retained"])
def test_topics_that_a_filter_stands_for(
    bench: Bench,
    name: str,
    version: int,
    topic_filter: str,
    fit: list[str],
    other: list[str],
    retain: bool,  # noqa: FBT001
) -> None:
    """The same for messages as they come and for those that were retained."""
    reader, writer = bench.join(version=version), bench.join(version=version)
    topics = [one.replace("{}", name) for one in (*fit, *other)]
    if not retain:
        reader.subscribe(topic_filter.replace("{}", name), options=0)
    for topic in topics:
        writer.publish(topic, retain=retain)
    if retain:
        reader.subscribe(topic_filter.replace("{}", name), options=0)
    heard = {one.topic for one in reader.settle()} & set(topics)
    for topic in topics:
        writer.publish(topic, b"", retain=retain)
    assert heard == set(topics[: len(fit)])


def test_a_filter_that_comes_again_replaces_the_one_before(bench: Bench, name: str, version: int) -> None:
    client, writer = bench.join(version=version), bench.join(version=version)
    for options in (2, 0, 1):
        client.subscribe(name, options=options)
        writer.publish(name, qos=2)
        (message,) = client.settle()
        assert message.qos == options


def test_messages_are_not_lost_by_replacing(bench: Bench, name: str, version: int) -> None:
    reader, writer = bench.join(version=version), bench.join(version=version)
    writer.publish(name, b"retained", retain=True)
    reader.subscribe(name)
    assert reader.settle()[0].payload == b"retained"
    for number in range(20):
        reader.send(subscribe([(name, 2)], version))
        writer.publish(name, b"%d" % number, qos=2)
    heard = reader.settle()
    assert sorted(int(one.payload) for one in heard if one.kind == PUBLISH and not one.retain) == list(range(20))
    assert len([one for one in heard if one.kind == PUBLISH and one.retain]) == 20


def test_overlapping_subscriptions_bring_a_message_once_with_the_highest_qos(
    bench: Bench, name: str, version: int
) -> None:
    client = bench.join(version=version)
    for topic_filter, options in ((f"{name}/#", 0), (f"{name}/+", 2), (f"{name}/a", 1)):
        client.subscribe(topic_filter, options=options)
    bench.join(version=version).publish(f"{name}/a", qos=2)
    (message,) = client.settle()
    assert message.qos == 2


def test_identifiers_of_all_subscriptions_that_fit_come_along(bench: Bench, name: str) -> None:
    client = bench.join()
    for topic_filter, identifier in (
        *((f"{name}/#", 1), (f"{name}/+", 268_435_455), (f"{name}/a", 128), (f"{name}/b", 7)),
    ):
        client.subscribe(topic_filter, properties=[(IDENTIFIER, identifier)])
    client.subscribe(f"+/{name}/none")
    writer = bench.join()
    writer.publish(f"{name}/a")
    assert sorted(map(repr, client.next(PUBLISH).all(IDENTIFIER))) == ["1", "128", "268435455"]
    client.subscribe(f"{name}/a")  # without one, now
    writer.publish(f"{name}/a")
    assert sorted(map(repr, client.next(PUBLISH).all(IDENTIFIER))) == ["1", "268435455"]


def test_identifiers_come_with_retained_messages_and_for_who_was_away(bench: Bench, name: str) -> None:
    writer = bench.join()
    writer.publish(name, b"1", retain=True)
    client = bench.join(name, properties=[(SESSION_EXPIRY, 600)])
    client.subscribe(name, properties=[(IDENTIFIER, 5)])
    message = client.next(PUBLISH)
    assert message.all(IDENTIFIER) == [5]
    client.send(ack(PUBACK, message.packet_id))
    client.leave()
    writer.publish(name, b"2")
    assert bench.join(name, clean=False).next(PUBLISH).all(IDENTIFIER) == [5]


def test_an_identifier_counts_for_all_filters_of_its_subscribe(bench: Bench, name: str) -> None:
    client = bench.join()
    client.subscribe(f"{name}/a", f"{name}/b", properties=[(IDENTIFIER, 3)])
    for topic in ("a", "b"):
        client.send(publish(f"{name}/{topic}"))
        assert client.next(PUBLISH).all(IDENTIFIER) == [3]


def test_no_local_keeps_own_messages_away(bench: Bench, name: str) -> None:
    client, other = bench.join(), bench.join()
    client.subscribe(name, options=2 | NO_LOCAL)
    client.publish(name, b"mine")
    other.publish(name, b"theirs")
    (message,) = client.settle()
    assert message.payload == b"theirs"


def test_no_local_keeps_own_retained_messages_away(bench: Bench, name: str) -> None:
    client, other = bench.join(), bench.join()
    client.publish(f"{name}/mine", retain=True)
    other.publish(f"{name}/theirs", retain=True)
    client.subscribe(f"{name}/+", options=2 | NO_LOCAL)
    assert [one.topic for one in client.settle()] == [f"{name}/theirs"]


def test_no_local_is_of_one_subscription(bench: Bench, name: str) -> None:
    client = bench.join()
    client.subscribe(f"{name}/+", options=2 | NO_LOCAL)
    client.subscribe(f"{name}/a", options=1)
    client.send(publish(f"{name}/a", qos=0))
    (message,) = client.settle()
    assert message.qos == 0


def test_unsubscribe_says_for_each_filter_whether_it_was_there(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    client.subscribe(f"{name}/a", f"{name}/+")
    filters = [f"{name}/b", f"{name}/+", f"{name}/a/", f"{name}/a", f"{name}/a"]
    unsuback = client.ask(unsubscribe(filters, version, 12), UNSUBACK)
    assert unsuback.packet_id == 12
    assert unsuback.codes == ((0x11, 0, 0x11, 0, 0x11) if version == V5 else ())
    bench.join(version=version).publish(f"{name}/a")
    assert client.settle() == []


def test_unsubscribe_compares_character_by_character(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    client.subscribe(f"{name}/a")
    for other in (f"{name}/+", f"{name}/A", f"{name}/#", "#", f"{name}/a/"):
        client.ask(unsubscribe([other], version), UNSUBACK)
    client.send(publish(f"{name}/a", version=version))
    assert client.next(PUBLISH).topic == f"{name}/a"


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_on_the_way_is_completed_after_unsubscribe(bench: Bench, name: str, version: int, qos: int) -> None:
    pairs: Pairs = [(SESSION_EXPIRY, 600)] if version == V5 else []
    client = bench.join(name, version, clean=False, properties=pairs)
    client.subscribe(name)
    writer = bench.join(version=version)
    writer.publish(name, qos=qos)
    first = client.next(PUBLISH)
    client.ask(unsubscribe([name], version), UNSUBACK)
    writer.publish(name, qos=qos)
    assert client.settle() == []
    bench.lose(client)
    client = bench.join(name, version, clean=False, properties=pairs)
    message = client.next(PUBLISH)
    assert (message.dup, message.packet_id) == (True, first.packet_id)
    if qos == 2:
        client.ask(ack(PUBREC, message.packet_id), PUBREL)
        client.send(ack(PUBCOMP, message.packet_id))
    else:
        client.send(ack(PUBACK, message.packet_id))
    assert client.settle() == []


@pytest.mark.parametrize("kind", [SUBACK, UNSUBACK])
def test_an_answer_that_is_too_large_for_the_client_ends_the_connection(bench: Bench, name: str, kind: int) -> None:
    filters = [f"{name}/{n}" for n in range(60)]
    client = bench.join(properties=[(MAXIMUM_PACKET_SIZE, 60)])
    client.send(subscribe([(one, 0) for one in filters]) if kind == SUBACK else unsubscribe(filters))
    client.refused(0x95)


def test_filters_of_65_535_bytes_are_refused_and_not_more(bench: Bench) -> None:
    client = bench.join()
    assert client.subscribe("x" * 65_535).codes == (0x8F,)
    assert client.ask(unsubscribe(["x" * 65_535]), UNSUBACK).codes == (0x11,)
    assert client.subscribe("y" * 1024).codes == (2,)


def test_there_is_a_bound_of_subscriptions(bench: Bench, name: str) -> None:
    client = bench.join()
    suback = client.ask(subscribe([(f"{name}/{n}", 0) for n in range(1025)]), SUBACK)
    assert suback.codes == (*[0] * 1024, 0x97)
    assert client.subscribe(f"{name}/7").codes == (2,)
