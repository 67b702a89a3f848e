"""Section 3.3: PUBLISH, retained messages, properties of messages."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Bench
from tests.conformance.raw import (
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    V3,
    V5,
    Heard,
    Pairs,
    RawClient,
    ack,
    exactly,
    packet,
    publish,
    string,
)

EXPIRY, MAXIMUM_PACKET_SIZE = 0x02, 0x27


def retained_of(bench: Bench, topic_filter: str, version: int = V5, options: int = 2) -> list[Heard]:
    reader = bench.join(version=version)
    reader.subscribe(topic_filter, options=options)
    return reader.settle()


@pytest.mark.parametrize("topic", ["a/#", "#", "+", "a/+/b", "a+", "a#b"])
def test_wildcards_in_a_topic_name_end_the_connection(bench: Bench, version: int, topic: str) -> None:
    client = bench.join(version=version)
    client.send(publish(topic, version=version))
    client.refused(0x90, 0x81)


def test_an_empty_topic_without_an_alias_ends_the_connection(bench: Bench, version: int) -> None:
    client = bench.join(version=version)
    client.send(publish("", version=version))
    client.refused(0x82)


@pytest.mark.parametrize("flags", [6, 7, 14, 15, 8, 9])
def test_qos_3_and_dup_of_qos_0_end_the_connection(bench: Bench, name: str, version: int, flags: int) -> None:
    client = bench.join(version=version)
    client.send(packet(0x30 | flags, string(name) + b"\0\1" + b"\0"))
    client.refused(0x81, 0x82)


def test_a_publish_is_answered_by_its_qos(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    client.send(publish(name, version=version))
    assert client.settle() == []
    assert client.ask(publish(name, version=version, qos=1, packet_id=7), PUBACK).packet_id == 7
    assert client.ask(publish(name, version=version, qos=2, packet_id=8), PUBREC).packet_id == 8
    assert client.ask(ack(PUBREL, 8), PUBCOMP).packet_id == 8


def test_5_is_told_that_nobody_is_there(bench: Bench, name: str) -> None:
    client = bench.join()
    assert client.ask(publish(name, qos=1), PUBACK).code == 0x10
    assert client.ask(publish(name, qos=2), PUBREC).code == 0x10
    bench.join().subscribe(name)
    assert client.ask(publish(name, qos=1), PUBACK).code == 0


@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_has_the_lower_qos_of_publisher_and_subscription(
    bench: Bench, name: str, version: int, sent: int, granted: int
) -> None:
    reader = bench.join(version=version)
    assert reader.subscribe(name, options=granted).codes == (granted,)
    bench.join(version=version).publish(name, qos=sent)
    message = reader.next(PUBLISH)
    assert (message.qos, message.dup, message.retain) == (min(sent, granted), False, False)


@pytest.mark.parametrize("qos", [1, 2])
def test_dup_of_a_publisher_is_not_passed_on(bench: Bench, name: str, version: int, qos: int) -> None:
    reader = bench.join(version=version)
    reader.subscribe(name)
    bench.join(version=version).send(publish(name, version=version, qos=qos, dup=True))
    message = reader.next(PUBLISH)
    assert (message.payload, message.dup) == (b"x", False)


def test_an_empty_payload_is_a_message(bench: Bench, name: str, version: int) -> None:
    reader = bench.join(version=version)
    reader.subscribe(name)
    bench.join(version=version).publish(name, b"")
    assert reader.next(PUBLISH).payload == b""


def test_the_last_retained_message_is_kept(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    for payload, qos in ((b"1", 0), (b"2", 2), (b"3", 1)):
        client.publish(name, payload, qos=qos, retain=True)
    (message,) = retained_of(bench, name, version)
    assert (message.payload, message.qos, message.retain, message.dup) == (b"3", 1, True, False)
    client.publish(name, b"4", qos=0, retain=True)
    (message,) = retained_of(bench, name, version)
    assert (message.payload, message.qos) == (b"4", 0)


def test_a_message_that_is_not_retained_changes_nothing(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    client.publish(name, b"1")
    assert retained_of(bench, name, version) == []
    client.publish(name, b"2", retain=True)
    client.publish(name, b"3")
    client.publish(name, b"")
    assert [one.payload for one in retained_of(bench, name, version)] == [b"2"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_retained_message_is_delivered_and_deletes(bench: Bench, name: str, version: int, qos: int) -> None:
    client = bench.join(version=version)
    client.publish(name, b"1", retain=True)
    reader = bench.join(version=version)
    reader.subscribe(name, options=0)
    assert reader.next(PUBLISH).retain
    client.publish(name, b"", qos=qos, retain=True)
    message = reader.next(PUBLISH)
    assert (message.payload, message.retain) == (b"", False)
    assert retained_of(bench, name, version) == []


@pytest.mark.parametrize("topic_filter", ["{}/+", "{}/#", "{}/a", "+/a"])
def test_retained_messages_are_found_by_filters(bench: Bench, name: str, version: int, topic_filter: str) -> None:
    bench.join(version=version).publish(f"{name}/a", retain=True)
    found = retained_of(bench, topic_filter.format(name), version)
    assert f"{name}/a" in [one.topic for one in found]


def test_retain_handling(bench: Bench, name: str) -> None:
    bench.join().publish(name, retain=True)
    for handling, first, second in ((0, 1, 1), (1, 1, 0), (2, 0, 0)):
        reader = bench.join()
        for expected in (first, second):
            reader.subscribe(name, options=handling << 4)
            assert len(reader.settle()) == expected, handling


def test_retain_handling_1_counts_a_subscription_that_was_removed_as_new(bench: Bench, name: str) -> None:
    bench.join().publish(name, retain=True)
    reader = bench.join()
    reader.subscribe(name, options=0x10)
    assert len(reader.settle()) == 1
    reader.ask(packet(0xA2, b"\0\1\0" + string(name)), 11)
    reader.subscribe(name, options=0x10)
    assert len(reader.settle()) == 1


def test_3_1_1_gets_retained_messages_with_each_subscribe(bench: Bench, name: str) -> None:
    bench.join().publish(name, retain=True)
    reader = bench.join(version=V3)
    for _ in range(2):
        reader.subscribe(name, options=0)
        (message,) = reader.settle()
        assert message.retain


@pytest.mark.parametrize(("options", "stays"), [(2, False), (2 | 8, True)])
@pytest.mark.parametrize("retain", [False, True])
def test_retain_as_published(bench: Bench, name: str, options: int, stays: bool, retain: bool) -> None:  # noqa: FBT001
    reader = bench.join()
    reader.subscribe(name, options=options)
    bench.join().publish(name, retain=retain)
    assert reader.next(PUBLISH).retain == (retain and stays)


def test_retained_messages_say_so_whatever_was_asked(bench: Bench, name: str) -> None:
    bench.join().publish(name, retain=True)
    assert [one.retain for options in (0, 8) for one in retained_of(bench, name, options=options)] == [True, True]


PAIRS: Pairs = [
    *((0x01, 1), (0x03, "tëxt".encode()), (0x08, b"answers/here"), (0x09, b"\0\xff\xfe")),
    *((0x26, (b"b", b"1")), (0x26, (b"a", "ü".encode())), (0x26, (b"b", b"1")), (0x26, (b"", b""))),
]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_of_a_message_come_as_they_were(bench: Bench, name: str, qos: int) -> None:
    reader = bench.join()
    reader.subscribe(name)
    bench.join().publish(name, qos=qos, properties=PAIRS)
    message = reader.next(PUBLISH)
    assert sorted(one for one in message.properties if one[0] != 0x26) == sorted(PAIRS[:4])
    assert message.all(0x26) == [value for key, value in PAIRS if key == 0x26]


def test_properties_are_kept_with_retained_messages_and_for_who_is_away(bench: Bench, name: str) -> None:
    away = bench.join(name, properties=[(0x11, 600)])
    away.subscribe(name)
    bench.lose(away)
    bench.join().publish(name, retain=True, properties=PAIRS)
    back = bench.join(name, clean=False)
    for message in (back.next(PUBLISH), *retained_of(bench, name)):
        assert sorted(one for one in message.properties if one[0] != 0x26) == sorted(PAIRS[:4])
        assert message.all(0x26) == [value for key, value in PAIRS if key == 0x26]


def test_3_1_1_gets_messages_of_5_without_properties(bench: Bench, name: str) -> None:
    reader = bench.join(version=V3)
    reader.subscribe(name)
    bench.join().publish(name, b"\0", properties=PAIRS)
    assert reader.next(PUBLISH).payload == b"\0"


def test_a_payload_that_is_no_utf_8_is_nobody_s_business(bench: Bench, name: str) -> None:
    reader = bench.join()
    reader.subscribe(name)
    bench.join().publish(name, b"\xff", properties=[(0x01, 0)])
    message = reader.next(PUBLISH)
    assert (message.payload, message.get(0x01)) == (b"\xff", 0)


@pytest.mark.parametrize("topic", [b"a/#", b"+", b"", b"a/+/b"])
def test_a_response_topic_that_is_none_ends_the_connection(bench: Bench, name: str, topic: bytes) -> None:
    client = bench.join()
    client.send(publish(name, properties=[(0x08, topic)]))
    client.refused(0x82)


def test_a_client_does_not_send_subscription_identifiers(bench: Bench, name: str) -> None:
    client = bench.join()
    client.send(publish(name, properties=[(0x0B, 1)]))
    client.refused(0x82)


def test_expiry_counts_down_while_a_message_waits(bench: Bench, name: str) -> None:
    away = bench.join(name, properties=[(0x11, 6000)])
    away.subscribe(name)
    bench.lose(away)
    writer = bench.join()
    for seconds in (50, 200):
        writer.publish(name, str(seconds).encode(), properties=[(EXPIRY, seconds)])
    writer.publish(name, b"never")
    bench.later(100)
    back = bench.join(name, clean=False)
    first, second = back.next(PUBLISH), back.next(PUBLISH)
    assert (first.payload, second.payload, second.get(EXPIRY)) == (b"200", b"never", None)
    left = first.get(EXPIRY)
    assert isinstance(left, int)
    assert 90 <= left <= 100


@pytest.mark.parametrize("seconds", [1, 7, 1000, 2**31, 2**32 - 2, 2**32 - 1])
def test_expiry_comes_as_it_was_when_nothing_waits(bench: Bench, name: str, seconds: int) -> None:
    reader = bench.join()
    reader.subscribe(name)
    for _ in range(20):
        bench.join().publish(name, properties=[(EXPIRY, seconds)])
        message = reader.next(PUBLISH)
        assert message.get(EXPIRY) == seconds
        reader.send(ack(PUBACK, message.packet_id))


def test_retained_messages_expire(bench: Bench, name: str) -> None:
    bench.join().publish(name, retain=True, properties=[(EXPIRY, 100)])
    bench.later(40)
    (message,) = retained_of(bench, name)
    left = message.get(EXPIRY)
    assert isinstance(left, int)
    assert 50 <= left <= 60
    bench.later(61)
    assert retained_of(bench, name) == []


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_is_too_large_for_a_client_is_dropped_for_it_alone(bench: Bench, name: str, qos: int) -> None:
    small, other = bench.join(properties=[(MAXIMUM_PACKET_SIZE, 200), (0x21, 1)]), bench.join()
    small.subscribe(name)
    other.subscribe(name)
    writer = bench.join()
    for size in (201, 200, 201):
        writer.publish(name, exactly(size, name, qos), qos=qos)
    writer.publish(name, b"last", qos=qos)
    message = small.next(PUBLISH)
    assert message.size == 200
    if qos == 1:
        small.send(ack(PUBACK, message.packet_id))
    elif qos == 2:
        small.ask(ack(PUBREC, message.packet_id), PUBREL)
        small.send(ack(PUBCOMP, message.packet_id))
    assert small.next(PUBLISH).payload == b"last"
    assert len([one for one in other.settle() if one.kind == PUBLISH]) == 4


def test_a_packet_that_is_too_large_for_the_broker_ends_the_connection(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    head = len(publish(name, b"", version)) + 2  # with a remaining length of three bytes
    client.send(publish(name, b"x" * (268_435 - head), version))
    assert client.settle() == []
    client.send(publish(name, b"x" * (268_436 - head), version)[:20])
    client.refused(0x95)


def test_topics_that_clients_cannot_publish_to(bench: Bench, version: int) -> None:
    for topic in ("$SYS/x", "$share/g/x", "/".join("x" * 33), "x" * 1025):
        client = bench.join(version=version)
        client.send(publish(topic, version=version))
        client.refused(0x90)


@pytest.mark.parametrize("reader_version", [V3, V5])
def test_messages_go_from_each_version_to_each(bench: Bench, name: str, version: int, reader_version: int) -> None:
    reader: RawClient = bench.join(version=reader_version)
    reader.subscribe(name)
    bench.join(version=version).publish(name, b"\0\1\2", qos=2)
    message = reader.next(PUBLISH)
    assert (message.topic, message.payload, message.qos) == (name, b"\0\1\2", 2)
