"""Sections 3.1.2.5 to 3.1.2.7, 3.1.3.2 and 3.14: wills, and the ends of connections and sessions."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Bench
from tests.conformance.raw import PUBLISH, V3, Pairs, RawClient, Will, disconnect, packet, publish, string

SESSION_EXPIRY, WILL_DELAY = 0x11, 0x18


@pytest.fixture
def watcher(bench: Bench, name: str) -> RawClient:
    client = bench.join()
    client.subscribe(f"{name}/#", options=2 | 8)  # RETAIN as it was published
    return client


def expect_will(watcher: RawClient, payload: bytes = b"gone") -> None:
    message = watcher.next(PUBLISH)
    assert message.payload == payload
    if message.qos == 1:
        watcher.send(b"\x40\x02" + message.packet_id.to_bytes(2))


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_a_will_is_published_when_the_connection_is_lost(
    bench: Bench,
    name: str,
    version: int,
    watcher: RawClient,
    qos: int,
    retain: bool,  # noqa: FBT001
) -> None:
    will = Will(f"{name}/w", b"\0gone", qos, retain)
    bench.lose(bench.join(version=version, will=will))
    message = watcher.next(PUBLISH)
    assert (message.topic, message.payload, message.qos, message.retain) == (f"{name}/w", b"\0gone", qos, retain)
    late = bench.join(version=version)
    late.subscribe(f"{name}/w")
    assert [(one.payload, one.retain) for one in late.settle()] == ([(b"\0gone", True)] if retain else [])


def test_without_a_will_nothing_is_published(bench: Bench, name: str, version: int, watcher: RawClient) -> None:
    bench.lose(bench.join(f"{name}-c", version))
    bench.join(f"{name}-c", version).leave()
    assert watcher.settle() == []


def test_disconnect_deletes_the_will(bench: Bench, name: str, version: int, watcher: RawClient) -> None:
    client = bench.join(version=version, will=Will(f"{name}/w"))
    client.leave()
    assert watcher.settle() == []
    bench.later(400)
    assert watcher.settle() == []


@pytest.mark.parametrize("said", [disconnect(), disconnect(0), packet(0xE0, b"\0\0")])
def test_the_forms_of_a_normal_disconnect(bench: Bench, name: str, watcher: RawClient, said: bytes) -> None:
    client = bench.join(will=Will(f"{name}/w"))
    client.send(said)
    assert client.end() == []
    assert watcher.settle() == []


@pytest.mark.parametrize("reason", [0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99])
def test_disconnect_with_another_reason_publishes_the_will(
    bench: Bench, name: str, watcher: RawClient, reason: int
) -> None:
    client = bench.join(will=Will(f"{name}/w"))
    client.send(disconnect(reason))
    assert client.end() == []
    expect_will(watcher)


@pytest.mark.parametrize("reason", [0x01, 0x03, 0x05, 0x10, 0x7F, 0x86, 0x91, 0x92, 0xFF])
def test_disconnect_with_a_reason_that_there_is_not_ends_the_connection(bench: Bench, reason: int) -> None:
    client = bench.join()
    client.send(disconnect(reason))
    client.refused(0x81)


def test_disconnect_of_3_1_1_has_no_body(bench: Bench) -> None:
    client = bench.join(version=V3)
    client.send(packet(0xE0, b"\0"))
    client.refused()


def test_what_follows_disconnect_is_not_read(bench: Bench, name: str, version: int, watcher: RawClient) -> None:
    client = bench.join(version=version)
    client.send(disconnect(), publish(f"{name}/after", version=version))
    assert client.end() == []
    assert watcher.settle() == []


@pytest.mark.parametrize(
    "fault", [b"\x00\x00", b"\x36\x03\0\1a", b"\xc1\x00"], ids=["type_0", "qos_3", "reserved_flags"]
)
def test_a_fault_publishes_the_will(bench: Bench, name: str, version: int, watcher: RawClient, fault: bytes) -> None:
    client = bench.join(version=version, will=Will(f"{name}/w"))
    client.send(fault)
    client.refused(0x81)
    expect_will(watcher)


def test_taking_over_publishes_a_will_without_delay(bench: Bench, name: str, version: int, watcher: RawClient) -> None:
    bench.join(f"{name}-c", version, will=Will(f"{name}/w"))
    bench.join(f"{name}-c", version)
    expect_will(watcher)


def test_a_will_waits_for_its_delay(bench: Bench, name: str, watcher: RawClient) -> None:
    will = Will(f"{name}/w", properties=[(WILL_DELAY, 60)])
    bench.lose(bench.join(properties=[(SESSION_EXPIRY, 600)], will=will))
    assert watcher.settle() == []
    bench.later(50)
    assert watcher.settle() == []
    bench.later(20)
    expect_will(watcher)
    bench.later(400)
    assert watcher.settle() == []


def test_a_will_that_waits_comes_when_the_session_ends(bench: Bench, name: str, watcher: RawClient) -> None:
    will = Will(f"{name}/w", properties=[(WILL_DELAY, 600)])
    bench.lose(bench.join(properties=[(SESSION_EXPIRY, 60)], will=will))
    bench.later(50)
    assert watcher.settle() == []
    bench.later(20)
    expect_will(watcher)
    bench.join(will=will).drop()  # its session ends with its connection
    expect_will(watcher)


def test_who_comes_back_in_time_leaves_no_will(bench: Bench, name: str, watcher: RawClient) -> None:
    will = Will(f"{name}/w", properties=[(WILL_DELAY, 60)])
    properties: Pairs = [(SESSION_EXPIRY, 600)]
    bench.lose(bench.join(f"{name}-c", properties=properties, will=will))
    watcher.settle()
    bench.join(f"{name}-c", clean=False, properties=properties)
    bench.later(100)
    assert watcher.settle() == []


def test_who_comes_back_with_a_clean_start_ends_the_session_and_leaves_the_will(
    bench: Bench, name: str, watcher: RawClient
) -> None:
    will = Will(f"{name}/w", properties=[(WILL_DELAY, 60)])
    bench.lose(bench.join(f"{name}-c", properties=[(SESSION_EXPIRY, 600)], will=will))
    watcher.settle()
    bench.join(f"{name}-c", clean=True)
    expect_will(watcher)


def test_a_will_is_replaced_by_that_of_the_next_connection(bench: Bench, name: str, watcher: RawClient) -> None:
    properties: Pairs = [(SESSION_EXPIRY, 600)]
    will = Will(f"{name}/w", b"old", properties=[(WILL_DELAY, 60)])
    bench.lose(bench.join(f"{name}-c", clean=False, properties=properties, will=will))
    watcher.settle()
    bench.lose(bench.join(f"{name}-c", clean=False, properties=properties, will=Will(f"{name}/w", b"new")))
    expect_will(watcher, b"new")
    bench.later(400)
    assert watcher.settle() == []


def test_properties_of_a_will_come_as_they_were(bench: Bench, name: str, watcher: RawClient) -> None:
    pairs: Pairs = [
        *((0x01, 1), (0x02, 90), (0x03, b"text/plain"), (0x08, b"answers/here"), (0x09, b"\0\xff")),
        *((0x26, (b"b", b"1")), (0x26, (b"a", b"2")), (0x26, (b"b", b"3"))),
    ]
    bench.lose(bench.join(will=Will(f"{name}/w", properties=[*pairs, (WILL_DELAY, 0)])))
    message = watcher.next(PUBLISH)
    assert sorted(one for one in message.properties if one[0] != 0x26) == sorted(pairs[:5])
    assert message.all(0x26) == [(b"b", b"1"), (b"a", b"2"), (b"b", b"3")]


def test_an_empty_will_that_is_retained_deletes(bench: Bench, name: str, version: int, watcher: RawClient) -> None:
    bench.join(version=version).publish(f"{name}/w", retain=True)
    watcher.next(PUBLISH)
    bench.lose(bench.join(version=version, will=Will(f"{name}/w", b"", 0, True)))
    assert watcher.next(PUBLISH).payload == b""
    late = bench.join(version=version)
    late.subscribe(f"{name}/w")
    assert late.settle() == []


def test_disconnect_changes_how_long_the_session_lasts(bench: Bench, name: str) -> None:
    client = bench.join(name, properties=[(SESSION_EXPIRY, 60)])
    client.send(disconnect(0, [(SESSION_EXPIRY, 600)]))
    assert client.end() == []
    bench.later(300)
    client, connack = bench.joined(name, clean=False, properties=[(SESSION_EXPIRY, 60)])
    assert connack.present
    client.send(disconnect(0, [(SESSION_EXPIRY, 0)]))
    assert client.end() == []
    assert not bench.joined(name, clean=False)[1].present


def test_disconnect_cannot_make_a_session_last_that_was_not_to(bench: Bench, name: str) -> None:
    for properties in ((), [(SESSION_EXPIRY, 0)]):
        client = bench.join(name, properties=properties)
        client.send(disconnect(0, [(SESSION_EXPIRY, 5)]))
        client.refused(0x82)


def test_disconnect_of_the_broker_says_no_session_expiry(bench: Bench, name: str) -> None:
    client = bench.join(properties=[(SESSION_EXPIRY, 60)])
    client.send(packet(0x36, string(name) + b"\0\1\0"))
    (said,) = client.end()
    assert said.get(SESSION_EXPIRY) is None
    assert said.get(0x1F)


def test_disconnect_of_the_broker_is_no_larger_than_the_client_takes(bench: Bench) -> None:
    client = bench.join(properties=[(0x27, 20)])
    client.send(b"\x00\x00")
    (said,) = client.end()
    assert said.size <= 20
    assert (said.code, said.properties) == (0x81, ())


def test_pings_are_answered(bench: Bench, version: int) -> None:
    client = bench.join(version=version)
    for _ in range(3):
        assert client.settle() == []


@pytest.mark.parametrize("said", [packet(0xF0), packet(0xF0, b"\x19" + b"\4\x15\0\1m"), packet(0xF0, b"\x18\0")])
def test_auth_without_a_method_in_connect_ends_the_connection(bench: Bench, said: bytes) -> None:
    client = bench.join()
    client.send(said)
    client.refused(0x82)


@pytest.mark.parametrize("reason", [1, 0x17, 0x1A, 0x80, 0xFF])
def test_auth_with_a_reason_that_there_is_not_ends_the_connection(bench: Bench, reason: int) -> None:
    client = bench.join()
    client.send(packet(0xF0, bytes((reason,)) + b"\4\x15\0\1m"))
    client.refused(0x81)
