"""Sections 3.4 to 3.7, 4.3 to 4.6 and 4.9: acknowledgements, delivery, order, flow control."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Bench
from tests.conformance.raw import (
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    V3,
    V5,
    Pairs,
    RawClient,
    ack,
    connect,
    packet,
    publish,
    subscribe,
)

RECEIVE_MAXIMUM, SESSION_EXPIRY, EXPIRY = 0x21, 0x11, 0x02
KEPT: Pairs = [(SESSION_EXPIRY, 600)]


def keeping(bench: Bench, name: str, version: int, window: int = 0) -> RawClient:
    """A client whose session outlives its connection, taken up again if it is there."""
    pairs: Pairs = [*KEPT, *([(RECEIVE_MAXIMUM, window)] if window else [])]
    return bench.join(name, version, clean=False, properties=pairs if version == V5 else ())


@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBREL, PUBCOMP])
def test_reasons_that_an_acknowledgement_cannot_have_end_the_connection(bench: Bench, kind: int) -> None:
    wrong = {0x01, 0x11, 0x81, 0x8E, 0xFF} | ({0x10, 0x80, 0x87} if kind in (PUBREL, PUBCOMP) else {0x92})
    for reason in wrong:
        client = bench.join()
        client.send(ack(kind, 1, reason))
        client.refused(0x81)


@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBREL, PUBCOMP])
def test_acknowledgements_come_in_three_lengths(bench: Bench, kind: int) -> None:
    client = bench.join()
    first = kind << 4 | (2 if kind == PUBREL else 0)
    for body in (b"\0\1", b"\0\1\0", b"\0\1\0\0", b"\0\1\0\4\x1f\0\1a", b"\0\1\0\7\x26\0\1a\0\1b"):
        client.send(packet(first, body))
    assert all(one.kind in (PUBREL, PUBCOMP) for one in client.settle())


@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBREL, PUBCOMP])
def test_acknowledgements_of_3_1_1_have_two_bytes(bench: Bench, kind: int) -> None:
    client = bench.join(version=V3)
    client.send(packet(kind << 4 | (2 if kind == PUBREL else 0), b"\0\1\0"))
    client.refused()


@pytest.mark.parametrize("flags", set(range(16)) - {2})
def test_a_pubrel_with_other_flags_ends_the_connection(bench: Bench, version: int, flags: int) -> None:
    client = bench.join(version=version)
    client.send(packet(PUBREL << 4 | flags, b"\0\1"))
    client.refused(0x81)


def test_identifiers_that_are_not_known(bench: Bench, version: int) -> None:
    client = bench.join(version=version)
    unknown = 0x92 if version == V5 else 0
    assert client.ask(ack(PUBREL, 77), PUBCOMP).code == unknown
    assert client.ask(ack(PUBREC, 78), PUBREL).code == unknown
    client.send(ack(PUBACK, 79), ack(PUBCOMP, 80))
    assert client.settle() == []


def test_qos_1_is_a_new_message_each_time(bench: Bench, name: str, version: int) -> None:
    reader = bench.join(version=version)
    reader.subscribe(name)
    client = bench.join(version=version)
    for dup in (False, True, True):
        client.ask(publish(name, version=version, qos=1, dup=dup), PUBACK)
    assert [one.dup for one in reader.settle()] == [False] * 3


def test_qos_2_is_delivered_once_until_it_is_released(bench: Bench, name: str, version: int) -> None:
    reader = bench.join(version=version)
    reader.subscribe(name)
    client = bench.join(version=version)
    for dup in (False, True, False, True):
        assert client.ask(publish(name, version=version, qos=2, dup=dup), PUBREC).packet_id == 1
    assert len(reader.settle()) == 1
    assert client.ask(ack(PUBREL, 1), PUBCOMP).code == 0
    client.ask(publish(name, version=version, qos=2), PUBREC)
    assert len(reader.settle()) == 1
    assert client.ask(ack(PUBREL, 1), PUBCOMP).code == 0
    assert client.ask(ack(PUBREL, 1), PUBCOMP).code == (0x92 if version == V5 else 0)


def test_qos_2_is_delivered_once_across_connections(bench: Bench, name: str, version: int) -> None:
    reader = bench.join(version=version)
    reader.subscribe(name)
    for dup in (False, True):
        client = keeping(bench, f"{name}-w", version)
        client.ask(publish(name, version=version, qos=2, dup=dup), PUBREC)
        bench.lose(client)
    client = keeping(bench, f"{name}-w", version)
    assert client.ask(ack(PUBREL, 1), PUBCOMP).code == 0
    assert len(reader.settle()) == 1


def test_a_clean_start_forgets_identifiers_of_qos_2(bench: Bench, name: str, version: int) -> None:
    reader = bench.join(version=version)
    reader.subscribe(name)
    for _ in range(2):
        client = bench.join(f"{name}-w", version, clean=True, properties=KEPT if version == V5 else ())
        client.ask(publish(name, version=version, qos=2), PUBREC)
    assert len(reader.settle()) == 2


def test_the_identifiers_of_client_and_broker_have_nothing_to_do_with_each_other(
    bench: Bench, name: str, version: int
) -> None:
    client = bench.join(version=version)
    client.subscribe(name)
    client.send(publish(name, b"a", version, qos=2, packet_id=1))
    heard = {one.kind: one for one in (client.read(), client.read()) if one is not None}
    assert heard[PUBLISH].packet_id == 1
    assert heard[PUBREC].packet_id == 1
    assert client.ask(ack(PUBREC, 1), PUBREL).packet_id == 1
    assert client.ask(ack(PUBREL, 1), PUBCOMP).packet_id == 1
    client.send(ack(PUBCOMP, 1))
    assert client.settle() == []


def test_nothing_is_sent_again_on_the_same_connection(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    client.subscribe(name)
    client.send(publish(name, version=version, qos=1), publish(name, version=version, qos=2, packet_id=2))
    assert len([one for one in client.settle() if one.kind == PUBLISH]) == 2
    bench.later(200)
    assert client.settle() == []


@pytest.mark.parametrize("again", [False, True])
def test_what_is_not_acknowledged_comes_again_with_dup_in_its_order(
    bench: Bench,
    name: str,
    version: int,
    again: bool,  # noqa: FBT001
) -> None:
    reader = keeping(bench, f"{name}-r", version)
    reader.subscribe(f"{name}/#")
    writer = bench.join(version=version)
    for number, qos in enumerate((1, 2, 1, 2, 1), 1):
        writer.publish(f"{name}/{number}", qos=qos)
    first = [(one.topic, one.packet_id) for one in reader.settle()]
    assert [topic for topic, _ in first] == [f"{name}/{number}" for number in range(1, 6)]
    reader.send(ack(PUBACK, first[2][1]))  # out of order, as a client must not, and a lossy one does
    assert reader.ask(ack(PUBREC, first[1][1]), PUBREL).packet_id == first[1][1]
    for _ in range(2 if again else 1):
        bench.lose(reader)
        reader = keeping(bench, f"{name}-r", version)
        heard = reader.settle()
        assert [(one.kind, one.packet_id) for one in heard] == [
            *((PUBLISH, first[0][1]), (PUBREL, first[1][1]), (PUBLISH, first[3][1]), (PUBLISH, first[4][1]))
        ]
        assert all(one.dup for one in heard if one.kind == PUBLISH)
    reader.send(ack(PUBCOMP, first[1][1]), ack(PUBACK, first[0][1]), ack(PUBACK, first[4][1]))
    assert reader.ask(ack(PUBREC, first[3][1]), PUBREL).packet_id == first[3][1]
    reader.send(ack(PUBCOMP, first[3][1]))
    reader.settle()
    bench.lose(reader)
    assert keeping(bench, f"{name}-r", version).settle() == []


def test_what_was_sent_comes_again_although_it_has_expired(bench: Bench, name: str) -> None:
    reader = keeping(bench, f"{name}-r", V5, window=1)
    reader.subscribe(name)
    writer = bench.join()
    writer.publish(name, b"1", qos=2, properties=[(EXPIRY, 10)])
    writer.publish(name, b"2", qos=2, properties=[(EXPIRY, 10)])
    assert reader.next(PUBLISH).payload == b"1"
    bench.lose(reader)
    bench.later(20)
    reader = keeping(bench, f"{name}-r", V5, window=1)
    message = reader.next(PUBLISH)
    assert (message.payload, message.dup) == (b"1", True)
    reader.ask(ack(PUBREC, message.packet_id), PUBREL)
    reader.send(ack(PUBCOMP, message.packet_id))
    assert reader.settle() == []


@pytest.mark.parametrize("reason", [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_is_not_sent_again(bench: Bench, name: str, reason: int, qos: int) -> None:
    reader = keeping(bench, f"{name}-r", V5, window=1)
    reader.subscribe(name)
    writer = bench.join()
    writer.publish(name, b"1", qos=qos)
    writer.publish(name, b"2", qos=qos)
    reader.send(ack(PUBACK if qos == 1 else PUBREC, reader.next(PUBLISH).packet_id, reason))
    assert reader.next(PUBLISH).payload == b"2"
    bench.lose(reader)
    assert keeping(bench, f"{name}-r", V5).next(PUBLISH).payload == b"2"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_come_in_the_order_of_their_publisher(bench: Bench, name: str, version: int, qos: int) -> None:
    reader = bench.join(version=version)
    reader.subscribe(f"{name}/#")
    writer = bench.join(version=version)
    writer.send(*(publish(f"{name}/a", b"%d" % n, version, qos=qos, packet_id=n + 1) for n in range(200)))
    writer.settle()
    assert [int(one.payload) for one in reader.settle()] == list(range(200))


def test_messages_for_who_was_away_come_in_their_order(bench: Bench, name: str, version: int) -> None:
    reader = keeping(bench, f"{name}-r", version)
    reader.subscribe(name)
    reader.leave()
    writer = bench.join(version=version)
    for number in range(20):
        writer.publish(name, b"%d" % number, qos=1 + number % 2)
    writer.publish(name, b"x", qos=0)
    assert [int(one.payload) for one in keeping(bench, f"{name}-r", version).settle()] == list(range(20))


def test_acknowledgements_come_in_the_order_of_what_they_acknowledge(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    client.send(*(publish(name, version=version, qos=1 + n % 2, packet_id=n) for n in range(1, 50)))
    heard = client.settle()
    assert [one.packet_id for one in heard] == list(range(1, 50))
    client.send(*(ack(PUBREL, n) for n in (49, 47, 1, 3)))
    assert [one.packet_id for one in client.settle()] == [49, 47, 1, 3]


@pytest.mark.parametrize("window", [1, 2, 5])
def test_no_more_is_under_way_than_the_client_receives(bench: Bench, name: str, window: int) -> None:
    reader = keeping(bench, f"{name}-r", V5, window)
    reader.subscribe(name)
    writer = bench.join()
    for number in range(window + 2):
        writer.publish(name, b"%d" % number, qos=2)
    heard = reader.settle()
    assert len(heard) == window
    writer.publish(name, b"at once", qos=0)
    assert [one.payload for one in reader.settle()] == [b"at once"]  # QoS 0 does not count
    reader.ask(ack(PUBREC, heard[0].packet_id), PUBREL)
    assert reader.settle() == []  # only PUBCOMP makes room
    reader.send(ack(PUBCOMP, heard[0].packet_id))
    assert [one.payload for one in reader.settle()] == [b"%d" % window]
    assert reader.subscribe(f"{name}/other").codes == (2,)
    reader.publish(f"{name}/elsewhere", qos=2)


def test_a_smaller_window_counts_for_what_comes_again(bench: Bench, name: str) -> None:
    reader = keeping(bench, f"{name}-r", V5, 10)
    reader.subscribe(name)
    writer = bench.join()
    for number in range(4):
        writer.publish(name, b"%d" % number)
    assert len(reader.settle()) == 4
    bench.lose(reader)
    reader = keeping(bench, f"{name}-r", V5, 2)
    heard = reader.settle()
    assert [one.payload for one in heard] == [b"0", b"1"]
    reader.send(ack(PUBACK, heard[0].packet_id))
    (message,) = reader.settle()
    assert (message.payload, message.dup) == (b"2", True)


def test_more_messages_than_the_broker_receives_end_the_connection(bench: Bench, name: str) -> None:
    client = bench.join()
    client.send(*(publish(name, qos=2, packet_id=n) for n in range(1, 1025)))
    assert len(client.settle()) == 1024
    client.ask(publish(name, qos=2, packet_id=5, dup=True), PUBREC)  # one of them: does not count
    client.publish(name, packet_id=2000)  # its PUBACK comes at once
    client.send(publish(name, qos=2, packet_id=1025))
    client.refused(0x93)


def test_a_client_that_still_sends_gets_to_read_why_its_connection_has_ended(bench: Bench, name: str) -> None:
    """A client that answers what it reads must not find the connection broken before it comes to the reason."""
    client = bench.join()
    client.send(*(publish(name, qos=2, packet_id=n) for n in range(1, 1026)))
    bench.wait_for_connections(0)
    for packet_id in range(1, 1025):
        client.send(ack(PUBREL, packet_id))
    *answers, end = client.end()
    assert [one.kind for one in answers] == [PUBREC] * 1024
    assert (end.kind, end.code) == (DISCONNECT, 0x93)


def test_pubcomp_makes_room(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    for packet_id in range(1, 1100):
        client.send(publish(name, version=version, qos=2, packet_id=packet_id), ack(PUBREL, packet_id))
    assert [one.kind for one in client.settle()] == [PUBREC, PUBCOMP] * 1099


@pytest.mark.parametrize("qos", [1, 2])
def test_packet_identifiers_go_round(bench: Bench, name: str, qos: int) -> None:
    """One stays in use while more messages come than there are identifiers."""
    reader = bench.join(version=V3)
    reader.subscribe(name, options=qos)
    writer = bench.join(version=V3)
    writer.send(publish(name, b"first", V3, qos=qos))
    stays = reader.next(PUBLISH).packet_id
    session = bench.running.broker.sessions
    holder = next(one for one in session.values() if stays in one.inflight and one.outlet is not None)
    holder._last_id = 65_534
    for expected in (65_535, 2, 3):
        writer.send(publish(name, b"", V3, qos=qos, packet_id=expected))
        assert reader.next(PUBLISH).packet_id == expected


def test_a_wrong_acknowledgement_ends_nothing(bench: Bench, name: str, version: int) -> None:
    reader = keeping(bench, f"{name}-r", version)
    reader.subscribe(name)
    writer = bench.join(version=version)
    writer.publish(name, b"1", qos=1)
    writer.publish(name, b"2", qos=2)
    one, two = reader.settle()
    reader.send(ack(PUBACK, two.packet_id), ack(PUBCOMP, two.packet_id), ack(PUBCOMP, one.packet_id))
    assert reader.settle() == []
    bench.lose(reader)
    assert [heard.payload for heard in keeping(bench, f"{name}-r", version).settle()] == [b"1", b"2"]


def test_a_pubrec_that_comes_twice_is_answered_twice(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    client.subscribe(name)
    bench.join(version=version).publish(name, qos=2)
    packet_id = client.next(PUBLISH).packet_id
    for _ in range(2):
        assert client.ask(ack(PUBREC, packet_id), PUBREL).code == 0
    client.send(ack(PUBCOMP, packet_id))
    assert client.settle() == []


def test_sessions_are_kept_while_a_connection_is_open(bench: Bench, name: str, version: int) -> None:
    """Longer than the session would outlive it."""
    client = bench.join(name, version, clean=False, properties=[(SESSION_EXPIRY, 10)] if version == V5 else ())
    client.subscribe(name)
    bench.later(200)
    client.send(publish(name, version=version))
    assert client.next(PUBLISH).topic == name


def test_other_sessions_are_not_disturbed_by_a_fault(bench: Bench, name: str, version: int) -> None:
    reader = bench.join(version=version)
    reader.subscribe(name)
    for fault in (b"\x00\x00", b"\xff\xff\xff\xff\xff", connect("x", version), b"\x82\x02\0\1"):
        client = bench.join(version=version)
        client.send(fault)
        assert all(one.kind == DISCONNECT and one.code >= 0x80 for one in client.end())
    bench.join(version=version).publish(name)
    assert reader.next(PUBLISH).topic == name
    assert reader.ask(subscribe([("a", 0)], version), 9).codes == (0,)
