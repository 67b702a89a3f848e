"""Section 4.8.2: shared subscriptions."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Bench
from tests.conformance.raw import (
    PUBACK,
    PUBLISH,
    PUBREC,
    UNSUBACK,
    V3,
    V5,
    Heard,
    RawClient,
    ack,
    publish,
    subscribe,
    unsubscribe,
)

IDENTIFIER, SESSION_EXPIRY, NO_LOCAL = 0x0B, 0x11, 4


def drained(client: RawClient) -> list[Heard]:
    """Return what it was sent, and acknowledge it."""
    found = client.settle()
    client.send(*(ack(PUBACK, one.packet_id) for one in found if one.qos == 1))
    return found


def test_each_message_goes_to_one_member_of_a_share(bench: Bench, name: str, version: int) -> None:
    members = [bench.join(version=version) for _ in range(3)]
    for one in members:
        one.subscribe(f"$share/g/{name}/#", options=1)
    alone, other = bench.join(version=version), bench.join(version=version)
    alone.subscribe(f"{name}/#", options=1)
    other.subscribe(f"$share/h/{name}/#", options=1)
    writer = bench.join(version=version)
    for number in range(30):
        writer.publish(f"{name}/a", b"%d" % number)
    shares = [[int(one.payload) for one in drained(member)] for member in members]
    assert all(shares), "everybody has a turn"
    assert sorted(one for share in shares for one in share) == list(range(30))
    assert len(drained(alone)) == len(drained(other)) == 30


def test_a_client_may_have_a_filter_alone_and_in_a_share(bench: Bench, name: str) -> None:
    client = bench.join()
    client.subscribe(name, options=1, properties=[(IDENTIFIER, 1)])
    client.subscribe(f"$share/g/{name}", options=0, properties=[(IDENTIFIER, 2)])
    bench.join().publish(name)
    heard = client.settle()
    assert sorted((one.qos, one.all(IDENTIFIER)) for one in heard) == [(0, [2]), (1, [1])]


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_share_respects_the_qos_of_its_member(bench: Bench, name: str, version: int, granted: int) -> None:
    client = bench.join(version=version)
    assert client.subscribe(f"$share/g/{name}", options=granted).codes == (granted,)
    bench.join(version=version).publish(name, qos=2)
    assert client.next(PUBLISH).qos == granted


@pytest.mark.parametrize("handling", [0, 1, 2])
def test_a_share_gets_no_retained_messages(bench: Bench, name: str, handling: int) -> None:
    bench.join().publish(name, retain=True)
    client = bench.join()
    client.subscribe(f"$share/g/{name}", options=1 | handling << 4)
    assert client.settle() == []


@pytest.mark.parametrize(
    "topic_filter", ["$share/", "$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/g#/a", "$share/a+b/c"]
)
def test_a_share_without_a_name_or_a_filter_ends_the_connection(bench: Bench, topic_filter: str) -> None:
    client = bench.join()
    client.send(subscribe([(topic_filter, 0)]))
    client.refused(0x8F, 0x81, 0x82)


@pytest.mark.parametrize("topic_filter", ["$share/g/a#", "$share/g/#/a", "$share/g/a+"])
def test_the_filter_of_a_share_is_checked_as_any(bench: Bench, version: int, topic_filter: str) -> None:
    client = bench.join(version=version)
    client.send(subscribe([(topic_filter, 0)], version))
    client.refused(0x8F, 0x81)


def test_no_local_on_a_share_ends_the_connection(bench: Bench, name: str) -> None:
    client = bench.join()
    client.send(subscribe([(f"$share/g/{name}", 1 | NO_LOCAL)]))
    client.refused(0x82)


def test_a_share_does_not_match_topics_that_begin_with_a_dollar(bench: Bench, name: str) -> None:
    client = bench.join()
    client.subscribe("$share/g/#")
    client.subscribe("$share/g/+/a")
    bench.join().publish(f"${name}/a")
    assert [one for one in client.settle() if one.topic == f"${name}/a"] == []


def member(bench: Bench, client_id: str, name: str, options: int) -> RawClient:
    client = bench.join(client_id, clean=False, properties=[(SESSION_EXPIRY, 600)])
    client.subscribe(f"$share/g/{name}", options=options)
    return client


def test_qos_2_of_a_share_waits_for_its_member(bench: Bench, name: str) -> None:
    one = member(bench, f"{name}-1", name, 2)
    bench.join().publish(name, qos=2)
    packet_id = one.next(PUBLISH).packet_id
    bench.lose(one)
    other = member(bench, f"{name}-2", name, 2)
    bench.join(f"{name}-3", properties=[(SESSION_EXPIRY, 0)]).leave()
    assert other.settle() == []
    back = bench.join(f"{name}-1", clean=False)
    message = back.next(PUBLISH)
    assert (message.packet_id, message.dup) == (packet_id, True)


@pytest.mark.parametrize(("qos", "comes"), [(1, True), (2, False)])
def test_what_a_member_had_goes_on_when_its_session_ends(
    bench: Bench,
    name: str,
    qos: int,
    comes: bool,  # noqa: FBT001
) -> None:
    one = member(bench, f"{name}-1", name, qos)
    bench.join().publish(name, qos=qos)
    one.next(PUBLISH)
    other = member(bench, f"{name}-2", name, qos)
    bench.lose(one)
    assert other.settle() == []
    bench.join(f"{name}-1", clean=True)
    assert [heard.payload for heard in other.settle()] == ([b"x"] if comes else [])


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_member_refuses_is_nobody_else_s(bench: Bench, name: str, qos: int) -> None:
    one = member(bench, f"{name}-1", name, qos)
    bench.join().publish(name, qos=qos)
    packet_id = one.next(PUBLISH).packet_id
    other = member(bench, f"{name}-2", name, qos)
    one.send(ack(PUBACK if qos == 1 else PUBREC, packet_id, 0x83))
    one.settle()
    bench.join(f"{name}-1", clean=True)
    assert other.settle() == []


def test_a_member_who_is_there_is_preferred(bench: Bench, name: str) -> None:
    one, other = member(bench, f"{name}-1", name, 1), member(bench, f"{name}-2", name, 1)
    bench.lose(one)
    writer = bench.join()
    for _ in range(4):
        writer.publish(name)
    assert len(drained(other)) == 4


def test_a_share_waits_when_nobody_is_there(bench: Bench, name: str) -> None:
    one = member(bench, f"{name}-1", name, 1)
    bench.lose(one)
    bench.join().publish(name)
    assert bench.join(f"{name}-1", clean=False).next(PUBLISH).payload == b"x"


def test_who_leaves_a_share_gets_no_more(bench: Bench, name: str, version: int) -> None:
    one, other = bench.join(version=version), bench.join(version=version)
    for client in (one, other):
        client.subscribe(f"$share/g/{name}", options=0)
    unsuback = one.ask(unsubscribe([f"$share/g/{name}"], version), UNSUBACK)
    assert unsuback.codes == ((0,) if version == V5 else ())
    writer = bench.join(version=version)
    for _ in range(4):
        writer.publish(name)
    assert one.settle() == []
    assert len(other.settle()) == 4


def test_3_1_1_may_share_too(bench: Bench, name: str) -> None:
    client = bench.join(version=V3)
    client.subscribe(f"$share/g/{name}", options=0)
    client.send(publish(name, version=V3))
    assert client.next(PUBLISH).topic == name
