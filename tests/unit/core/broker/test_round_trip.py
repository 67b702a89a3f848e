"""Every packet comes back as it was, in any pieces; bytes that were changed end in a packet or in a reason."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.broker.codes import PacketError, ProtocolVersion, ReasonCode
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.packets import Packet, Pingreq
from app.core.broker.wire import MOST_REMAINING, Framing, Reader, variable_of
from tests.unit.core.broker.packet_makers import packets_of

V3, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
both = st.sampled_from([V3, V5]).flatmap(lambda one: st.tuples(st.just(one), packets_of(one)))
many = st.sampled_from([V3, V5]).flatmap(lambda one: st.tuples(st.just(one), st.lists(packets_of(one), max_size=4)))


@settings(max_examples=400, deadline=None)
@given(both)
def test_a_packet_comes_back_as_it_was(made: tuple[ProtocolVersion, Packet]) -> None:
    version, packet = made
    ((first, body),) = Framing().feed(encode(packet, version))
    found = decode(first, body, version)
    assert found == packet
    assert encode(found, version) == encode(packet, version)


@settings(max_examples=60, deadline=None)
@given(many, st.lists(st.integers(1, 40), max_size=20))
def test_packets_are_the_same_in_any_pieces(made: tuple[ProtocolVersion, list[Packet]], sizes: list[int]) -> None:
    version, packets = made
    stream, framing = b"".join(encode(one, version) for one in packets), Framing()
    found: list[tuple[int, bytes]] = []
    for size in [*sizes, len(stream) + 1]:
        piece, stream = stream[:size], stream[size:]
        found += framing.feed(piece)
    assert [decode(first, body, version) for first, body in found] == packets
    assert framing.held == 0


changes = st.lists(
    st.tuples(st.sampled_from(["flip", "put", "cut", "add", "twice"]), st.integers(0, 2**16), st.integers(0, 255)),
    min_size=1,
    max_size=6,
)


def changed(data: bytes, steps: list[tuple[str, int, int]]) -> bytes:
    """Each step does harm to one place."""
    found = bytearray(data)
    for what, place, value in steps:
        at = place % (len(found) + 1)
        if what == "flip" and at < len(found):
            found[at] ^= 1 << (value % 8)
        elif what == "put" and at < len(found):
            found[at] = value
        elif what == "cut":
            del found[at : at + value % 8 + 1]
        elif what == "add":
            found[at:at] = bytes((value,)) * (value % 5 + 1)
        else:
            found[at:at] = found[at : at + value % 16]
    return bytes(found)


@settings(max_examples=600, deadline=None)
@given(both, changes)
def test_changed_bytes_end_in_a_packet_or_a_reason(
    made: tuple[ProtocolVersion, Packet], steps: list[tuple[str, int, int]]
) -> None:
    """A packet is taken only if it is what would be written: nothing that the standard does not know is let through."""
    version, packet = made
    judged(version, changed(encode(packet, version), steps))


@settings(max_examples=600, deadline=None)
@given(st.sampled_from([V3, V5]), st.binary(max_size=60))
@example(V5, b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00")
def test_any_bytes_end_in_a_packet_or_a_reason(version: ProtocolVersion, data: bytes) -> None:
    judged(version, data)


def judged(version: ProtocolVersion, data: bytes) -> None:
    refused = None
    try:
        for first, body in Framing(1000).feed(data):
            found = decode(first, body, version)
            own = getattr(found, "version", version)
            ((again, written),) = Framing().feed(encode(found, own))
            assert decode(again, written, own) == found
    except PacketError as error:
        refused = error
    assert refused is None or (refused.reason >= ReasonCode.MALFORMED_PACKET and str(refused))


@pytest.mark.parametrize("value", [0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, MOST_REMAINING])
def test_variable_byte_integers_have_as_few_bytes_as_possible(value: int) -> None:
    data = variable_of(value)
    assert Reader(data).variable() == value
    longer = data[:-1] + bytes((data[-1] | 0x80, 0))
    with pytest.raises(PacketError, match=r"more bytes than it needs|more than four bytes"):
        Reader(longer).variable()


@pytest.mark.parametrize("value", [-1, MOST_REMAINING + 1])
def test_other_numbers_are_no_variable_byte_integers(value: int) -> None:
    with pytest.raises(ValueError, match="no variable byte integer; allowed: 0 to 268435455"):
        variable_of(value)


def test_a_packet_over_the_bound_is_refused_before_it_is_there() -> None:
    framing = Framing(largest=100)
    assert list(framing.feed(encode(Pingreq(), V5) + b"\x30")) == [(0xC0, b"")]
    with pytest.raises(PacketError, match="103 bytes; allowed: 100") as refused:
        list(framing.feed(b"\x65"))
    assert refused.value.reason is ReasonCode.PACKET_TOO_LARGE


@pytest.mark.parametrize("stream", [b"\x30\xff\xff\xff\xff", b"\x30\xff\xff\xff\xff\x01", b"\x30\x80\x00"])
def test_a_remaining_length_that_is_none_is_refused(stream: bytes) -> None:
    with pytest.raises(PacketError, match="the remaining length has more") as refused:
        list(Framing().feed(stream))
    assert refused.value.reason is ReasonCode.MALFORMED_PACKET
