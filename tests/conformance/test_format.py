"""Chapters 1 and 2: data types, fixed headers, packet identifiers, properties."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Bench
from tests.conformance.raw import (
    CONNACK,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V3,
    V5,
    Pairs,
    Will,
    ack,
    connect,
    disconnect,
    packet,
    prop,
    props,
    publish,
    string,
    subscribe,
    unsubscribe,
)

MALFORMED, PROTOCOL_ERROR = 0x81, 0x82
BAD_TEXTS = {
    "a_surrogate": b"a\xed\xa0\x80",
    "a_pair_of_surrogates": b"\xed\xa0\x80\xed\xb0\x80",
    "an_overlong_slash": b"a\xc0\xaf",
    "a_byte_alone": b"a\x80",
    "half_a_character": b"a\xe2\x82",
    "above_unicode": b"\xf4\x90\x80\x80",
    "null": b"a\0b",
}
bad_texts = pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS.keys())


@bad_texts
@pytest.mark.parametrize("place", ["publish", "subscribe", "unsubscribe"])
def test_a_topic_that_is_no_utf_8_ends_the_connection(bench: Bench, version: int, text: bytes, place: str) -> None:
    said = {
        "publish": publish(text, version=version),
        "subscribe": subscribe([(text, 0)], version),
        "unsubscribe": unsubscribe([text], version),
    }
    client = bench.join(version=version)
    client.send(said[place])
    client.refused(MALFORMED)


@bad_texts
@pytest.mark.parametrize("field", ["client_id", "will_topic", "user_name"])
def test_a_connect_with_a_string_that_is_no_utf_8_is_refused(
    bench: Bench, version: int, text: bytes, field: str
) -> None:
    none = b"\0" if version == V5 else b""
    flags = {"client_id": 2, "will_topic": 6, "user_name": 0x82}[field]
    body = string("MQTT") + bytes((version, flags, 0, 0)) + none
    body += string(text if field == "client_id" else b"a")
    if field == "will_topic":
        body += none + string(text) + string(b"")
    elif field == "user_name":
        body += string(text)
    client = bench.client(version)
    client.send(packet(0x10, body))
    said = client.end()
    assert all(one.kind == CONNACK and one.code >= 0x80 and version == V5 for one in said)


@bad_texts
@pytest.mark.parametrize(
    ("key", "pair"),
    [(0x03, ""), (0x08, ""), (0x26, "name"), (0x26, "value")],
    ids=["content_type", "response_topic", "name_of_a_pair", "value_of_a_pair"],
)
def test_a_property_that_is_no_utf_8_ends_the_connection(
    bench: Bench, name: str, text: bytes, key: int, pair: str
) -> None:
    value = text if not pair else (text, b"v") if pair == "name" else (b"n", text)
    client = bench.join()
    client.send(publish(name, properties=[(key, value)]))
    client.refused(MALFORMED)


def test_a_byte_order_mark_is_a_character(bench: Bench, name: str, version: int) -> None:
    topic = f"{name}/\ufeffa"
    client = bench.join(version=version)
    client.subscribe(f"{name}/+")
    client.send(publish(topic, version=version))
    assert client.next(PUBLISH).topic == topic
    other = bench.join(version=version)
    other.subscribe(f"{name}/a")
    client.send(publish(topic, version=version))
    assert client.next(PUBLISH).topic == topic
    assert other.settle() == []


@pytest.mark.parametrize("character", ["\ufffe", "\u0001", "\u007f", "\U0001f600", "\ufdd0", "é"])
def test_other_characters_are_taken(bench: Bench, name: str, version: int, character: str) -> None:
    client = bench.join(version=version)
    client.subscribe(f"{name}/+")
    client.send(publish(f"{name}/{character}", version=version))
    assert client.next(PUBLISH).topic == f"{name}/{character}"


@pytest.mark.parametrize(
    "stream",
    [b"\x30\x80\x80\x80\x80\x01", b"\x30\xff\xff\xff\xff\x7f", b"\xc0\x80\x00", b"\xc0\x80\x80\x80\x00"],
    ids=["five_bytes", "five_great_bytes", "zero_in_two_bytes", "zero_in_four_bytes"],
)
def test_a_remaining_length_of_five_bytes_or_too_many_ends_the_connection(
    bench: Bench, version: int, stream: bytes
) -> None:
    client = bench.join(version=version)
    client.send(stream)
    client.refused(MALFORMED)


@pytest.mark.parametrize("length", [b"\x80\x00", b"\x80\x80\x80\x80\x01", b"\xff\xff\xff\x7f", b"\x01"])
def test_a_length_of_properties_that_is_wrong_ends_the_connection(bench: Bench, name: str, length: bytes) -> None:
    client = bench.join()
    client.send(packet(0x30, string(name) + length))
    client.refused(MALFORMED)


@pytest.mark.parametrize("size", [0, 127, 128, 16_383, 16_384, 200_000])
def test_lengths_of_one_to_three_bytes(bench: Bench, name: str, version: int, size: int) -> None:
    client = bench.join(version=version)
    client.subscribe(name)
    client.send(publish(name, b"x" * size, version))
    assert client.next(PUBLISH).payload == b"x" * size


NEEDED = {4: 0, 5: 0, 6: 2, 7: 0, 8: 2, 10: 2, 12: 0, 14: 0, 15: 0}


@pytest.mark.parametrize("kind", NEEDED)
def test_reserved_flags_of_the_first_byte_end_the_connection(bench: Bench, version: int, kind: int) -> None:
    bodies = {SUBSCRIBE: b"\0\1" + b"\0" * (version == V5) + string("a") + b"\0"} | {
        UNSUBSCRIBE: b"\0\1" + b"\0" * (version == V5) + string("a"),
        12: b"",
        14: b"",
        15: b"",
    }
    for flags in set(range(16)) - {NEEDED[kind]}:
        client = bench.join(version=version)
        client.send(packet(kind << 4 | flags, bodies.get(kind, b"\0\1")))
        client.refused(MALFORMED)


@pytest.mark.parametrize("flags", range(1, 16))
def test_a_connect_with_reserved_flags_of_its_first_byte_is_not_answered_with_success(
    bench: Bench, version: int, flags: int
) -> None:
    client = bench.client(version)
    client.send(packet(0x10 | flags, connect("a", version)[2:]))
    assert all(one.kind == CONNACK and one.code >= 0x80 and version == V5 for one in client.end())


@pytest.mark.parametrize("kind", [0, 2, 9, 11, 13])
def test_types_that_no_client_sends_end_the_connection(bench: Bench, version: int, kind: int) -> None:
    bodies = {2: b"\0\0\0", 9: b"\0\1\0\0", 11: b"\0\1\0\0", 13: b"", 0: b""}
    if version == V3:
        bodies |= {2: b"\0\0", 9: b"\0\1\0", 11: b"\0\1"}
    client = bench.join(version=version)
    client.send(packet(kind << 4, bodies[kind]))
    client.refused(MALFORMED if kind == 0 else PROTOCOL_ERROR)


def test_type_15_is_reserved_in_3_1_1(bench: Bench) -> None:
    client = bench.join(version=V3)
    client.send(packet(0xF0))
    client.refused()


ENDS_TOO_EARLY = {
    "publish_topic": packet(0x30, b"\0\5abc"),
    "publish_id": packet(0x32, string("a") + b"\0"),
    "puback": packet(0x40, b"\0"),
    "subscribe_id": packet(0x82, b"\0"),
    "unsubscribe": packet(0xA2, b"\0\1\0\0\7a"),
    "pingreq_with_a_body": packet(0xC0, b"\0"),
}


@pytest.mark.parametrize("said", ENDS_TOO_EARLY.values(), ids=ENDS_TOO_EARLY.keys())
def test_a_packet_that_is_too_short_or_too_long_ends_the_connection(bench: Bench, version: int, said: bytes) -> None:
    client = bench.join(version=version)
    client.send(said)
    client.refused(MALFORMED)


@pytest.mark.parametrize(
    "place", ["publish_1", "publish_2", "subscribe", "unsubscribe", "puback", "pubrec", "pubrel", "pubcomp"]
)
def test_a_packet_identifier_of_0_ends_the_connection(bench: Bench, version: int, place: str) -> None:
    said = {
        "publish_1": publish("a", version=version, qos=1, packet_id=0),
        "publish_2": publish("a", version=version, qos=2, packet_id=0),
        "subscribe": subscribe([("a", 0)], version, 0),
        "unsubscribe": unsubscribe(["a"], version, 0),
        "puback": ack(PUBACK, 0),
        "pubrec": ack(PUBREC, 0),
        "pubrel": ack(PUBREL, 0),
        "pubcomp": ack(PUBCOMP, 0),
    }
    client = bench.join(version=version)
    client.send(said[place])
    client.refused(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize("packet_id", [1, 255, 256, 65_535])
def test_answers_have_the_packet_identifier_of_what_they_answer(
    bench: Bench, name: str, version: int, packet_id: int
) -> None:
    client = bench.join(version=version)
    asked = [
        (subscribe([(name, 0)], version, packet_id), SUBACK),
        (unsubscribe([name], version, packet_id), UNSUBACK),
        (publish(name, version=version, qos=1, packet_id=packet_id), PUBACK),
        (publish(name, version=version, qos=2, packet_id=packet_id), PUBREC),
        (ack(PUBREL, packet_id), PUBCOMP),
    ]
    for said, kind in asked:
        assert client.ask(said, kind).packet_id == packet_id


def test_messages_of_the_broker_have_identifiers_that_are_not_in_use(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    client.subscribe(name)
    for _ in range(5):
        client.send(publish(name, version=version, qos=1))
    ids = [one.packet_id for one in client.settle() if one.kind == PUBLISH]
    assert len(set(ids)) == 5
    assert 0 not in ids


def test_qos_0_has_no_packet_identifier(bench: Bench, name: str, version: int) -> None:
    client = bench.join(version=version)
    client.subscribe(name)
    client.send(publish(name, b"\0\1", version))
    assert client.next(PUBLISH).payload == b"\0\1"


def test_packets_may_come_byte_by_byte_and_all_at_once(bench: Bench, name: str, version: int) -> None:
    client = bench.client(version)
    hello, talk = connect(name, version), subscribe([(name, 0)], version) + publish(name, b"y", version)
    for byte in hello + talk:
        client.send(bytes((byte,)))
    client.send(talk + talk)
    kinds = [client.next(CONNACK).kind, *(one.kind for one in client.settle())]
    assert kinds == [CONNACK, *[SUBACK, PUBLISH] * 3]


PLACES: dict[str, set[int]] = {
    "connect": {0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27},
    "will": {0x01, 0x02, 0x03, 0x08, 0x09, 0x18, 0x26},
    "publish": {0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26},
    "puback": {0x1F, 0x26},
    "pubrec": {0x1F, 0x26},
    "pubrel": {0x1F, 0x26},
    "pubcomp": {0x1F, 0x26},
    "subscribe": {0x0B, 0x26},
    "unsubscribe": {0x26},
    "disconnect": {0x11, 0x1C, 0x1F, 0x26},
    "auth": {0x15, 0x16, 0x1F, 0x26},
}
VALUES: dict[int, int | bytes | tuple[bytes, bytes]] = {
    **dict.fromkeys((0x01, 0x02, 0x0B, 0x11, 0x13, 0x17, 0x18, 0x19, 0x21, 0x22, 0x23, 0x24, 0x25, 0x28, 0x29), 1),
    **dict.fromkeys((0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F), b"a"),
    0x2A: 1,
    0x26: (b"n", b"v"),
    0x27: 1000,
}


def with_properties(place: str, pairs: Pairs, raw: bytes = b"") -> bytes:
    """A packet of this kind with these properties; `raw` in place of them."""
    made = raw or props(pairs)
    acks = {"puback": 0x40, "pubrec": 0x50, "pubrel": 0x62, "pubcomp": 0x70}
    if place in acks:
        return packet(acks[place], b"\0\1\0" + made)
    if place == "connect":
        return packet(0x10, string("MQTT") + b"\5\2\0\0" + made + string("a"))
    if place == "will":
        return packet(0x10, string("MQTT") + b"\5\6\0\0\0" + string("a") + made + string("w") + string("p"))
    rest = {
        "publish": packet(0x30, string("a") + made),
        "subscribe": packet(0x82, b"\0\1" + made + string("a") + b"\0"),
        "unsubscribe": packet(0xA2, b"\0\1" + made + string("a")),
        "disconnect": packet(0xE0, b"\0" + made),
        "auth": packet(0xF0, b"\x18" + made),
    }
    return rest[place]


def refused_with(bench: Bench, place: str, said: bytes, *reasons: int) -> None:
    """Before CONNECT was accepted, the broker may end the connection without a word."""
    if place in ("connect", "will"):
        client = bench.client()
        client.send(said)
        assert all(one.kind == CONNACK and one.code >= 0x80 for one in client.end())
    else:
        client = bench.join()
        client.send(said)
        client.refused(*reasons)


@pytest.mark.parametrize("place", PLACES)
def test_properties_that_a_packet_cannot_have_end_the_connection(bench: Bench, place: str) -> None:
    for key in VALUES.keys() - PLACES[place]:
        refused_with(bench, place, with_properties(place, [(key, VALUES[key])]), MALFORMED, PROTOCOL_ERROR)
    for unknown in (0x00, 0x04, 0x7E):
        refused_with(bench, place, with_properties(place, [], b"\2" + bytes((unknown, 0))), MALFORMED)


@pytest.mark.parametrize("place", PLACES)
def test_properties_that_come_twice_end_the_connection(bench: Bench, place: str) -> None:
    for key in PLACES[place] - {0x26, 0x16}:
        pairs = [(key, VALUES[key])] * 2
        if place == "auth":
            pairs = [*pairs, *([] if key == 0x15 else [(0x15, b"m")])]
        refused_with(bench, place, with_properties(place, pairs), PROTOCOL_ERROR)


@pytest.mark.parametrize("place", ["publish", "subscribe", "unsubscribe", "disconnect", "connect", "will"])
def test_properties_that_a_packet_may_have_are_taken(bench: Bench, place: str) -> None:
    for key in PLACES[place] - {0x15, 0x16, 0x0B} | ({0x0B} if place == "subscribe" else set()):
        if place == "disconnect" and key == 0x11:
            continue  # not without one in CONNECT
        said = with_properties(place, [(key, VALUES[key])])
        if place in ("connect", "will"):
            assert bench.client().ask(said, CONNACK).code == 0
        else:
            client = bench.join()
            client.send(said)
            ended = client.end() if place == "disconnect" else client.settle()
            assert not any(one.kind == 14 for one in ended)


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ("publish", 0x01, 2),
        ("connect", 0x17, 2),
        ("connect", 0x19, 2),
        ("connect", 0x21, 0),
        ("connect", 0x27, 0),
        ("subscribe", 0x0B, 0),
        ("will", 0x01, 2),
    ],
)
def test_values_that_a_property_cannot_have_end_the_connection(bench: Bench, place: str, key: int, value: int) -> None:
    refused_with(bench, place, with_properties(place, [(key, value)]), PROTOCOL_ERROR)


@pytest.mark.parametrize("place", ["publish", "subscribe", "connect"])
def test_a_property_that_is_cut_ends_the_connection(bench: Bench, place: str) -> None:
    whole = prop(0x26, (b"name", b"value"))
    for size in range(1, len(whole)):
        made = bytes((size,)) + whole[:size]
        refused_with(bench, place, with_properties(place, [], made), MALFORMED)


def test_packets_of_the_broker_say_that_they_have_no_properties(bench: Bench, name: str) -> None:
    """`understood` reads a length of properties in each of these, and accounts for every byte."""
    client = bench.join()
    assert client.subscribe(name).properties == ()
    client.send(publish(name))
    assert client.next(PUBLISH).properties == ()
    assert client.ask(unsubscribe([name]), UNSUBACK).properties == ()


def test_a_will_of_5_needs_its_properties(bench: Bench) -> None:
    client = bench.client()
    client.send(packet(0x10, string("MQTT") + b"\5\6\0\0\0" + string("a") + string("w") + string("p")))
    assert all(one.code >= 0x80 for one in client.end())
    assert bench.joined("a", will=Will("w"))[1].code == 0
    bench.join("a").send(disconnect())
