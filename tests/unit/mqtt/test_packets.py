"""Our PUBLISH and PUBACK against paho's, as an independent reading of the specification."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt import _packet as reference
from paho.mqtt.enums import MQTTProtocolVersion

from app.mqtt import packets

TOPICS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=40)
BYTES = st.binary(max_size=300)
V5, V3 = MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311


def body_of(packet: bytes) -> bytes:
    bounds = packets.packet_bounds(packet, 0)
    assert bounds is not None
    assert bounds[1] == len(packet)
    return packet[bounds[0] :]


@given(TOPICS, BYTES, st.sampled_from([0, 1]), st.integers(1, 65535))
def test_publish_of_3_1_1_reads_the_same_in_paho_and_here(topic: str, payload: bytes, qos: int, packet_id: int) -> None:
    packet = packets.publish(topic.encode(), payload, qos, packet_id, None)
    theirs = reference.decode_publish(packet[0], body_of(packet), V3)
    ours = packets.decode_publish(packet[0], body_of(packet), with_properties=False)
    assert (theirs.topic, theirs.mid, theirs.payload) == (topic.encode(), packet_id * qos, payload)
    assert (theirs.qos, theirs.retain, theirs.dup) == (qos, False, False)
    assert ours == packets.PublishPacket(topic.encode(), packet_id * qos, payload)


@given(BYTES, st.none() | st.integers(0, 2**32 - 1), st.none() | st.sampled_from(["a/b", "höre/zu"]), st.none() | BYTES)
def test_publish_of_5_reads_the_same_in_paho_and_here(
    payload: bytes, expiry: int | None, response_topic: str | None, correlation: bytes | None
) -> None:
    encoded = None if response_topic is None else response_topic.encode()
    packet = packets.publish(b"a/b", payload, 1, 7, packets.publish_properties(expiry, encoded, correlation))
    theirs = reference.decode_publish(packet[0], body_of(packet), V5)
    assert theirs.payload == payload
    assert getattr(theirs.properties, "MessageExpiryInterval", None) == expiry
    assert getattr(theirs.properties, "ResponseTopic", None) == response_topic
    assert getattr(theirs.properties, "CorrelationData", None) == correlation
    ours = packets.decode_publish(packet[0], body_of(packet), with_properties=True)
    assert ours == packets.PublishPacket(b"a/b", 7, payload, encoded, correlation)


@pytest.mark.parametrize(
    ("left", "seconds"), [(0.2, 1), (1.0, 1), (1.5, 1), (2.0, 1), (2.1, 2), (10.0, 9), (9.7, 9), (1e12, 2**32 - 1)]
)
def test_a_broker_that_counts_whole_seconds_hands_out_nothing_after_the_deadline(left: float, seconds: int) -> None:
    assert packets.expiry_interval(timedelta(seconds=left)) == seconds


def test_properties_that_we_do_not_use_are_stepped_over() -> None:
    properties = (
        b"\x01\x01"  # payload format indicator
        b"\x02\x00\x00\x00\x09"  # message expiry
        b"\x03\x00\x01j"  # content type
        b"\x0b\x80\x01"  # subscription identifier 128
        b"\x23\x00\x05"  # topic alias
        b"\x26\x00\x01k\x00\x01v"  # user property
        b"\x09\x00\x02id"
    )
    body = b"\x00\x01a" + bytes([len(properties)]) + properties + b"payload"
    packet = packets.decode_publish(0x30, body, with_properties=True)
    assert packet == packets.PublishPacket(b"a", 0, b"payload", None, b"id", ((b"k", b"v"),))


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=3))
def test_user_properties_read_the_same_in_paho_and_here(pairs: list[tuple[str, str]]) -> None:
    user = [(name.encode(), value.encode()) for name, value in pairs]
    packet = packets.publish(b"a", b"x", 1, 7, packets.publish_properties(5, b"r", b"c", user))
    theirs = reference.decode_publish(packet[0], body_of(packet), V5)
    assert getattr(theirs.properties, "UserProperty", []) == pairs
    ours = packets.decode_publish(packet[0], body_of(packet), with_properties=True)
    assert ours == packets.PublishPacket(b"a", 7, b"x", b"r", b"c", tuple(user))


@given(st.integers(0x30, 0x3F), st.binary(max_size=60), st.booleans())
def test_any_bytes_are_decoded_or_malformed(first_byte: int, body: bytes, with_properties: bool) -> None:  # noqa: FBT001
    try:
        packet = packets.decode_publish(first_byte, body, with_properties=with_properties)
    except packets.MalformedPacketError:
        return
    assert packet.topic
    assert len(packet.topic) + len(packet.payload) <= len(body)


@given(st.integers(1, 65535))
def test_puback_reads_the_same_in_paho(packet_id: int) -> None:
    packet = packets.puback(packet_id)
    assert reference.decode_puback(packet[0], packet[2:], V5).mid == packet_id
    assert packets.decode_puback(packet[2:]) == (packet_id, 0)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_the_bounds_of_a_packet_are_found_when_all_of_its_header_is_there(length: int) -> None:
    packet = packets.packet(0x30, b"x" * length)
    header = len(packet) - length
    assert packets.packet_bounds(packet, 0) == (header, len(packet))
    assert packets.packet_bounds(bytearray(b"??" + packet), 2) == (header + 2, len(packet) + 2)
    for cut in range(1, header):
        assert packets.packet_bounds(packet[:cut], 0) is None


def test_a_remaining_length_of_five_bytes_is_malformed() -> None:
    with pytest.raises(packets.MalformedPacketError):
        packets.packet_bounds(b"\x30\xff\xff\xff\xff\x01", 0)
