"""Sections 3.1 and 3.2: CONNECT and CONNACK."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Bench
from tests.conformance.raw import (
    CONNACK,
    DISCONNECT,
    PINGREQ_BYTES,
    PUBACK,
    PUBLISH,
    SUBACK,
    V3,
    V5,
    Heard,
    Pairs,
    RawClient,
    Will,
    ack,
    connect,
    disconnect,
    packet,
    props,
    publish,
    string,
    subscribe,
)

SESSION_EXPIRY, RECEIVE_MAXIMUM, MAXIMUM_PACKET_SIZE, TOPIC_ALIAS_MAXIMUM = 0x11, 0x21, 0x27, 0x22
ASSIGNED, SERVER_KEEP_ALIVE, REASON_STRING, RESPONSE_INFORMATION = 0x12, 0x13, 0x1F, 0x1A
KEPT: Pairs = [(SESSION_EXPIRY, 600)]


def refused_connect(bench: Bench, said: bytes, version: int, *codes: int) -> list[Heard]:
    """CONNECT is refused: with one of these codes, or, where there is none, with any refusal or without a word."""
    client = bench.client(version)
    client.send(said, publish("after/a/refusal", version=version, retain=True))
    answers = client.end()
    assert len(answers) <= 1
    assert all(one.kind == CONNACK and one.code and not one.present for one in answers)
    if codes:
        assert [one.code in codes for one in answers] == [True], answers
    return answers


@pytest.mark.parametrize(
    "first",
    [publish("a"), publish("a", qos=1), subscribe([("a", 0)]), ack(PUBACK, 1), PINGREQ_BYTES, disconnect()],
    ids=["publish", "publish_1", "subscribe", "puback", "pingreq", "disconnect"],
)
def test_the_first_packet_is_connect_or_the_connection_ends(bench: Bench, first: bytes) -> None:
    client = bench.client()
    client.send(first, connect("a"))
    assert client.end() == []


def test_a_wrong_topic_before_connect_ends_the_connection_without_a_word(bench: Bench) -> None:
    client = bench.client()
    client.send(publish("a/#"))
    assert client.end() == []


def test_a_second_connect_ends_the_connection(bench: Bench, name: str, version: int) -> None:
    client = bench.join(name, version)
    client.send(connect(name, version))
    client.refused(0x82)


def test_a_second_connect_is_told_the_same_whatever_is_wrong_with_it(bench: Bench, version: int) -> None:
    """DISCONNECT cannot say 0x84, which a first CONNECT is told."""
    for second in (connect("a", version, name=b"HTTP"), connect("a", version, level=9), packet(0x10), packet(0x11)):
        client = bench.join(version=version)
        client.send(second)
        client.refused(0x82)


@pytest.mark.parametrize("wrong", [b"MQIsdp", b"mqtt", b"MQT", b"MQTTT", b"", b"HTTP"])
def test_a_wrong_protocol_name_is_refused(bench: Bench, version: int, wrong: bytes) -> None:
    refused_connect(bench, connect("a", version, name=wrong), version, *([1] if version == V3 else [0x84]))


@pytest.mark.parametrize("level", [0, 1, 2, 3, 0x83, 0x84])
def test_older_levels_are_refused_as_3_1_1_does(bench: Bench, level: int) -> None:
    refused_connect(bench, connect("a", V3, level=level), V3, 1)


@pytest.mark.parametrize("level", [6, 7, 100])
def test_newer_levels_are_refused_as_5_does(bench: Bench, level: int) -> None:
    refused_connect(bench, connect("a", V5, level=level), V5, 0x84)


@pytest.mark.parametrize(
    ("flags", "end"),
    [
        (0b0000_0011, b""),  # reserved
        (0b0000_0001, b""),
        (0b0000_1010, b""),  # QoS of a will that there is not
        (0b0001_0010, b""),
        (0b0010_0010, b""),  # RETAIN of a will that there is not
        (0b0001_1110, b"\0\1w\0\1p"),  # QoS 3
        (0b0000_0110, b""),  # no will
        (0b0000_0110, b"\0\1w"),  # no payload of a will
        (0b1000_0010, b""),  # no user name
        (0b1100_0010, b"\0\1u"),  # no password
        (0b0000_0010, b"\0\1u"),  # a user name without its flag
        (0b1000_0010, b"\0\1u\0\1p"),  # a password without its flag
        (0b0000_0010, b"\0\1w\0\1p"),  # a will without its flag
    ],
)
def test_flags_of_connect_that_do_not_fit_are_refused(bench: Bench, version: int, flags: int, end: bytes) -> None:
    of_will = b"\0" if version == V5 and flags & 4 and end else b""
    refused_connect(bench, connect("a", version, flags=flags, end=of_will + end), version)


def test_a_password_without_a_user_name_is_of_5_alone(bench: Bench) -> None:
    refused_connect(bench, connect("a", V3, flags=0x42, end=b"\0\1p"), V3)
    assert bench.client().ask(connect("a", V5, flags=0x42, end=b"\0\1p"), CONNACK).code == 0


def test_user_name_and_password_are_read_in_their_order(bench: Bench, name: str, version: int) -> None:
    client = bench.client(version)
    end = string("u") + string(b"\xff\0p")
    assert client.ask(connect(name, version, flags=0xC2, end=end), CONNACK).code == 0


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_connect_that_is_cut_is_refused(bench: Bench, version: int, cut: int) -> None:
    body = connect("abc", version)[2:]
    refused_connect(bench, packet(0x10, body[:-cut]), version)


def test_a_connect_that_has_too_much_is_refused(bench: Bench, version: int) -> None:
    refused_connect(bench, packet(0x10, connect("abc", version)[2:] + b"\0"), version)


def test_3_1_1_is_not_answered_when_its_connect_is_wrong(bench: Bench) -> None:
    """[MQTT-3.1.4-1] of 3.1.1; also for topics of wills, which 5 has a reason code for."""
    assert refused_connect(bench, connect("a", V3, flags=3), V3) == []
    for topic in ("", "a/#", "a/+/b"):
        assert refused_connect(bench, connect("a", V3, will=Will(topic)), V3) == []


@pytest.mark.parametrize("topic", ["", "a/#", "+"])
def test_a_will_for_a_topic_that_is_none_is_refused(bench: Bench, topic: str) -> None:
    refused_connect(bench, connect("a", will=Will(topic)), V5, 0x90, 0x81, 0x82)


def test_nothing_is_done_after_a_refusal(bench: Bench, version: int) -> None:
    refused_connect(bench, connect("a", version, flags=3), version)
    client = bench.join(version=version)
    client.subscribe("after/a/refusal")
    assert client.settle() == []


def test_packets_may_follow_connect_at_once(bench: Bench, name: str, version: int) -> None:
    client = bench.client(version)
    client.send(connect(name, version), subscribe([(name, 1)], version), publish(name, version=version, qos=1))
    kinds = [one.kind for one in client.settle()]
    assert kinds[:2] == [CONNACK, SUBACK]
    assert sorted(kinds[2:]) == [PUBLISH, PUBACK]


def test_client_ids_that_every_server_takes(bench: Bench, version: int) -> None:
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for client_id in (letters[:23], letters[23:46], letters[46:], "é/+#$ ü", "x" * 256):
        bench.join(client_id, version).leave()


def test_a_client_id_over_the_bound_is_refused(bench: Bench, version: int) -> None:
    refused_connect(bench, connect("x" * 257, version), version, *([2] if version == V3 else [0x85]))


def test_3_1_1_gets_a_client_id_only_with_a_clean_session(bench: Bench) -> None:
    refused_connect(bench, connect("", V3, clean=False), V3, 2)
    assert bench.joined("", V3)[1].present is False


@pytest.mark.parametrize("clean", [True, False])
def test_5_is_told_the_client_id_that_it_gets(bench: Bench, name: str, clean: bool) -> None:  # noqa: FBT001
    first, one = bench.joined("", clean=clean, properties=KEPT)
    _, two = bench.joined("", clean=clean)
    assigned = one.get(ASSIGNED)
    assert isinstance(assigned, bytes)
    assert assigned
    assert assigned != two.get(ASSIGNED)
    first.subscribe(name)
    first.drop()
    again, connack = bench.joined(assigned.decode(), clean=False)
    assert connack.present
    assert connack.get(ASSIGNED) is None
    again.send(publish(name))
    assert again.next(PUBLISH).topic == name


def test_clients_without_ids_do_not_take_over_each_other(bench: Bench, version: int) -> None:
    one, two = bench.join("", version), bench.join("", version)
    assert one.settle() == two.settle() == []


def kept(version: int) -> Pairs:
    """Return what makes a session of 5 outlive its connection; one of 3.1.1 does so unless it is clean."""
    return KEPT if version == V5 else ()


def test_a_session_goes_on_and_clean_start_ends_it(bench: Bench, name: str, version: int) -> None:
    first, connack = bench.joined(name, version, clean=False, properties=kept(version))
    assert not connack.present
    first.subscribe(f"{name}/a")
    first.leave()
    other = bench.join(version=version)
    other.publish(f"{name}/a", b"1")
    second, connack = bench.joined(name, version, clean=False, properties=kept(version))
    assert connack.present
    message = second.next(PUBLISH)
    assert (message.payload, message.qos) == (b"1", 1)
    second.leave()
    third, connack = bench.joined(name, version, clean=True, properties=kept(version))
    assert not connack.present
    other.publish(f"{name}/a", b"2")
    assert third.settle() == []
    third.leave()


def test_a_session_ends_with_its_connection_unless_it_is_to_last(bench: Bench, name: str, version: int) -> None:
    bench.join(name, version, clean=True).leave()
    assert not bench.joined(name, version, clean=False, properties=kept(version))[1].present
    if version == V5:
        client = bench.join(f"{name}-5", clean=False)
        client.subscribe(name)
        client.leave()
        assert not bench.joined(f"{name}-5", clean=False)[1].present


def test_retained_messages_are_no_part_of_a_session(bench: Bench, name: str, version: int) -> None:
    client = bench.join(name, version)
    client.publish(f"{name}/r", b"1", retain=True)
    client.leave()
    reader = bench.join(version=version)
    reader.subscribe(f"{name}/r")
    assert reader.next(PUBLISH).payload == b"1"


@pytest.mark.parametrize(
    ("asked", "lasts", "told"), [(100, 100, None), (0xFFFFFFFF, 604_800, 604_800), (604_800, 604_800, None)]
)
def test_a_session_lasts_as_long_as_asked_or_as_told(
    bench: Bench, name: str, asked: int, lasts: int, told: int | None
) -> None:
    client, connack = bench.joined(name, properties=[(SESSION_EXPIRY, asked)])
    assert connack.get(SESSION_EXPIRY) == told
    client.leave()
    bench.later(lasts - 5)
    client, connack = bench.joined(name, clean=False, properties=[(SESSION_EXPIRY, asked)])
    assert connack.present
    client.leave()
    bench.later(lasts + 5)
    assert not bench.joined(name, clean=False)[1].present


def test_a_session_of_3_1_1_can_be_taken_up_by_5(bench: Bench, name: str) -> None:
    client = bench.join(name, V3, clean=False)
    client.subscribe(name)
    client.leave()
    assert bench.joined(name, V5, clean=False)[1].present


@pytest.mark.parametrize("old_version", [V3, V5])
def test_a_client_id_that_is_connected_is_taken_over(bench: Bench, name: str, version: int, old_version: int) -> None:
    old = bench.join(name, old_version, clean=False, properties=kept(old_version))
    old.subscribe(f"{name}/a")
    _, connack = bench.joined(name, version, clean=False, properties=kept(version))
    assert connack.present
    old.refused(0x8E)


def test_taking_over_ends_a_session_that_was_not_to_last(bench: Bench, name: str) -> None:
    old = bench.join(name)
    assert not bench.joined(name, clean=False)[1].present
    old.refused(0x8E)


def silent(client: RawClient) -> None:
    assert [one.code for one in client.end() if one.kind == DISCONNECT] == ([0x8D] if client.version == V5 else [])


def test_one_and_a_half_keep_alives_of_silence_end_a_connection(bench: Bench, name: str, version: int) -> None:
    watcher = bench.join(version=version)
    watcher.subscribe(f"{name}/will")
    client = bench.join(version=version, keep_alive=10, will=Will(f"{name}/will"))
    bench.later(14)
    assert client.settle() == []
    bench.later(14)
    client.publish(f"{name}/other")
    bench.later(14)
    assert client.settle() == []
    bench.later(16)
    silent(client)
    assert watcher.next(PUBLISH).payload == b"gone"


def test_3_1_1_is_never_silent_for_too_long_without_a_keep_alive(bench: Bench) -> None:
    client = bench.join(version=V3, keep_alive=0)
    bench.later(100_000)
    assert client.settle() == []


@pytest.mark.parametrize(("asked", "told"), [(0, 300), (301, 300), (65_535, 300), (300, None), (1, None)])
def test_5_is_told_a_keep_alive_that_is_shorter_than_asked(bench: Bench, asked: int, told: int | None) -> None:
    client, connack = bench.joined(keep_alive=asked)
    assert connack.get(SERVER_KEEP_ALIVE) == told
    counts = told or asked
    bench.later(counts * 1.5 - 0.9)
    assert client.settle() == []
    bench.later(counts * 1.5 + 1)
    silent(client)


def test_what_the_broker_says_of_itself(bench: Bench) -> None:
    connack = bench.joined()[1]
    assert connack.get(RECEIVE_MAXIMUM) == 1024
    assert connack.get(MAXIMUM_PACKET_SIZE) == 268_435
    assert connack.get(TOPIC_ALIAS_MAXIMUM) == 64
    for key in (0x24, 0x25, 0x28, 0x29, 0x2A):  # all QoS, RETAIN, wildcards, identifiers, shares: there
        assert connack.get(key) is None


def test_3_1_1_has_no_properties(bench: Bench) -> None:
    client = bench.client(V3)
    client.send(connect("a", V3))
    connack = client.next(CONNACK)
    assert (connack.code, connack.properties) == (0, ())
    bench.join("a", V3)


@pytest.mark.parametrize("wish", [0, 1])
def test_no_response_information_is_given(bench: Bench, wish: int) -> None:
    assert bench.joined(properties=[(0x19, wish)])[1].get(RESPONSE_INFORMATION) is None


@pytest.mark.parametrize("wish", [(), [(0x17, 0)]], ids=["wanted", "not_wanted"])
def test_reason_strings_are_in_disconnect_alone(bench: Bench, name: str, wish: Pairs) -> None:
    client = bench.join(properties=wish)
    client.send(subscribe([("x/" * 40, 0)]), publish(name, qos=1), publish(name, qos=2), ack(6, 77), b"\xc1\0")
    said = client.end()
    assert said[-1].kind == DISCONNECT
    assert all(one.properties == () for one in said[:-1])


@pytest.mark.parametrize("pairs", [[(0x15, b"SCRAM")], [(0x15, b"m"), (0x16, b"d")], [(0x15, b"")]])
def test_enhanced_authentication_is_refused(bench: Bench, pairs: Pairs) -> None:
    refused_connect(bench, connect("a", properties=pairs), V5, 0x8C)


def test_authentication_data_needs_a_method(bench: Bench) -> None:
    refused_connect(bench, connect("a", properties=[(0x16, b"d")]), V5)


def test_no_method_of_authentication_is_told(bench: Bench) -> None:
    connack = bench.joined()[1]
    assert connack.get(0x15) is None
    assert connack.get(0x16) is None


@pytest.mark.parametrize("size", [1, 4, 5, 10, 15])
def test_a_client_that_takes_no_connack_is_refused(bench: Bench, name: str, size: int) -> None:
    """It is neither sent what it does not take, nor connected without an answer."""
    client = bench.client()
    client.send(connect(name, properties=[(MAXIMUM_PACKET_SIZE, size)]))
    said = client.end()
    assert all(one.kind == CONNACK and one.code == 0x95 for one in said)
    assert len(said) == (size >= 5)


def test_a_connack_may_be_as_large_as_the_client_takes(bench: Bench, name: str) -> None:
    whole = connect(name, properties=[(MAXIMUM_PACKET_SIZE, 100)])
    assert bench.client().ask(whole, CONNACK).code == 0


def test_properties_of_connect_may_be_many(bench: Bench, name: str) -> None:
    pairs: Pairs = [(0x26, (b"n" * 100, b"v" * 100)) for _ in range(100)]
    assert bench.joined(name, properties=pairs)[1].code == 0
    assert len(props(pairs)) > 16_384
