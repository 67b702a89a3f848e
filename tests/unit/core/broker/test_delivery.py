"""Messages from clients to clients: QoS, windows, sessions without connection, expiry (MQTT 5, sections 4.3 to 4.9)."""

from __future__ import annotations

import pytest

from app.core.broker.codes import PacketType, ProtocolVersion, ReasonCode
from app.core.broker.message import Message, expiry_of
from app.core.broker.packets import Disconnect, Publish, PublishAck
from app.core.broker.session import Outgoing
from tests.unit.core.broker.peers import V3, V5, BrokerBench, payloads, properties

both = pytest.mark.parametrize("version", [V3, V5], ids=["3.1.1", "5"])
PUBACK, PUBREC, PUBREL, PUBCOMP = PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP


@both
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
def test_a_message_has_the_smaller_qos(version: ProtocolVersion, published: int, subscribed: int) -> None:
    bench = BrokerBench()
    listener = bench.connected("l", version)
    listener.subscribe("t", qos=subscribed)
    bench.connected("a", version).publish("t", b"x", qos=published)
    said = listener.only(Publish)
    assert (said.qos, said.payload, said.dup, said.retain) == (min(published, subscribed), b"x", False, False)


@both
def test_qos_1_is_acknowledged_and_whoever_is_there_is_told(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    client = bench.connected("a", version)
    nobody = ReasonCode.NO_MATCHING_SUBSCRIBERS if version is V5 else ReasonCode.SUCCESS
    assert client.publish("t", qos=1) == [PublishAck(PUBACK, 1, nobody)]
    bench.connected("l").subscribe("t")
    assert client.publish("t", qos=1) == [PublishAck(PUBACK, 2)]


@both
def test_qos_2_is_published_once(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    listener = bench.connected("l", version)
    listener.subscribe("t")
    client = bench.connected("a", version)
    message = Publish("t", b"x", 2, packet_id=9)
    assert client.say(message) == [PublishAck(PUBREC, 9)]
    assert client.say(Publish("t", b"x", 2, packet_id=9, dup=True)) == [PublishAck(PUBREC, 9)]
    assert client.ack(PUBREL, 9) == [PublishAck(PUBCOMP, 9)]
    assert payloads(listener.hear()) == [b"x"]
    assert client.say(message) == [PublishAck(PUBREC, 9)], "the identifier is free again"
    assert payloads(listener.hear()) == [b"x"]


@both
def test_qos_2_is_known_across_connections(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    listener = bench.connected("l")
    listener.subscribe("t")
    client = bench.connected("a", version, clean=False, session_expiry_interval=60)
    client.say(Publish("t", b"x", 2, packet_id=9))
    client.drop()
    client = bench.connected("a", version, clean=False, session_expiry_interval=60)
    client.say(Publish("t", b"x", 2, packet_id=9, dup=True))
    assert payloads(listener.hear()) == [b"x"]


@both
def test_qos_2_goes_out_in_four_steps(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    listener = bench.connected("l", version)
    listener.subscribe("t")
    bench.connected("a").publish("t", qos=2)
    packet_id = listener.only(Publish).packet_id
    assert listener.ack(PUBACK, packet_id) == []
    assert listener.ack(PUBREC, packet_id) == [PublishAck(PUBREL, packet_id)]
    assert listener.ack(PUBREC, packet_id) == [PublishAck(PUBREL, packet_id)]
    assert listener.ack(PUBCOMP, packet_id) == []
    assert bench.broker.sessions["l"].inflight == {}


def test_a_receiver_may_refuse_qos_2() -> None:
    bench = BrokerBench()
    listener = bench.connected("l", receive_maximum=1)
    listener.subscribe("t")
    client = bench.connected("a")
    client.publish("t", b"1", qos=2)
    client.publish("t", b"2", qos=2)
    first = listener.only(Publish)
    second = listener.only(Publish, listener.ack(PUBREC, first.packet_id, ReasonCode.UNSPECIFIED_ERROR))
    assert second.payload == b"2"


@both
def test_what_is_not_acknowledged_comes_again_in_order(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    listener = bench.connected("l", version, clean=False, session_expiry_interval=60)
    listener.subscribe("t")
    client = bench.connected("a")
    for number in range(4):
        client.publish("t", b"%d" % number, qos=2 if number == 2 else 1)
    first, second, third, fourth = (one.packet_id for one in listener.hear() if isinstance(one, Publish))
    listener.ack(PUBACK, second)
    listener.ack(PUBREC, third)
    listener.drop()
    client.publish("t", b"4", qos=1)
    client.publish("t", b"of QoS 0")
    listener = bench.connected("l", version, clean=False, session_expiry_interval=60)
    again, released, later, new = listener.hear()
    assert isinstance(again, Publish)
    assert isinstance(later, Publish)
    assert isinstance(new, Publish)
    assert (again.payload, again.dup, again.packet_id) == (b"0", True, first)
    assert released == PublishAck(PUBREL, third)
    assert (later.payload, later.dup, later.packet_id) == (b"3", True, fourth)
    assert (new.payload, new.dup) == (b"4", False)
    assert new.packet_id not in (first, third, fourth)


def test_the_window_is_that_of_the_receiver() -> None:
    bench = BrokerBench()
    listener = bench.connected("l", receive_maximum=2)
    listener.subscribe("t")
    client = bench.connected("a")
    for number in range(5):
        client.publish("t", b"%d" % number, qos=1)
    client.publish("t", b"QoS 0 needs no window")
    sent = [one for one in listener.hear() if isinstance(one, Publish)]
    assert payloads(sent) == [b"0", b"1", b"QoS 0 needs no window"]
    assert payloads(listener.ack(PUBACK, sent[1].packet_id)) == [b"2"]
    assert payloads(listener.ack(PUBACK, sent[0].packet_id)) == [b"3"]


def test_a_window_that_has_become_smaller_counts() -> None:
    bench = BrokerBench()
    listener = bench.connected("l", session_expiry_interval=60)
    listener.subscribe("t")
    client = bench.connected("a")
    for number in range(3):
        client.publish("t", b"%d" % number, qos=1)
    listener.drop()
    client.publish("t", b"3", qos=1)
    listener = bench.connected("l", clean=False, receive_maximum=1)
    heard = []
    for _ in range(4):
        message = listener.only(Publish)
        heard.append((message.payload, message.dup))
        listener.said = listener.ack(PUBACK, message.packet_id)
    assert heard == [(b"0", True), (b"1", True), (b"2", True), (b"3", False)]
    assert listener.hear() == []


def test_a_publisher_keeps_to_receive_maximum() -> None:
    client = BrokerBench(inflight=2).connected("a")
    client.publish("t", qos=2)
    client.publish("t", qos=2)
    assert client.only(Disconnect, client.publish("t", qos=2)).reason is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_properties_are_handed_on_and_the_rest_of_the_expiry_told() -> None:
    bench = BrokerBench()
    listener = bench.connected("l", session_expiry_interval=600)
    listener.subscribe("t")
    listener.drop()
    said = properties(
        MESSAGE_EXPIRY_INTERVAL=60, CONTENT_TYPE="a/b", RESPONSE_TOPIC="r", CORRELATION_DATA=b"\0", TOPIC_ALIAS=3
    )
    client = bench.connected("a")
    client.publish("t", b"kept", qos=1, properties=said)
    client.publish("t", b"gone", qos=1, properties=properties(MESSAGE_EXPIRY_INTERVAL=20))
    bench.pass_seconds(20)
    message = bench.connected("l", clean=False).only(Publish)
    assert message.payload == b"kept"
    assert message.properties == properties(
        CONTENT_TYPE="a/b", RESPONSE_TOPIC="r", CORRELATION_DATA=b"\0", MESSAGE_EXPIRY_INTERVAL=40
    )
    assert bench.counters["broker.dropped.expired"] == 1


def test_a_message_that_the_client_does_not_take_is_dropped_for_it_alone() -> None:
    bench = BrokerBench()
    small, large = bench.connected("s", maximum_packet_size=60), bench.connected("l")
    small.subscribe("t")
    large.subscribe("t")
    client = bench.connected("a")
    for qos in (0, 1):
        client.publish("t", b"x" * 100, qos=qos)
        client.publish("t", b"y", qos=qos)
    assert payloads(small.hear()) == [b"y", b"y"]
    assert payloads(large.hear()) == [b"x" * 100, b"y"] * 2
    assert bench.counters["broker.dropped.too_large"] == 2


def test_a_reader_that_is_slow_loses_qos_0_and_keeps_the_rest() -> None:
    bench = BrokerBench()
    listener = bench.connected("l")
    listener.subscribe("t")
    client = bench.connected("a")
    listener.saturated = True
    client.publish("t", b"0")
    client.publish("t", b"1", qos=1)
    assert listener.hear() == []
    listener.saturated = False
    listener.connection.drained()
    assert payloads(listener.hear()) == [b"1"]
    assert bench.counters["broker.dropped.slow_reader"] == 1


def test_the_oldest_makes_room_in_a_full_session() -> None:
    bench = BrokerBench(waiting=2)
    bench.connected("l", session_expiry_interval=60).subscribe("t")
    bench.connected("l", clean=False, session_expiry_interval=60).drop()
    client = bench.connected("a")
    for number in range(4):
        client.publish("t", b"%d" % number, qos=1)
    assert payloads(bench.connected("l", clean=False).hear()) == [b"2", b"3"]
    assert bench.counters["broker.dropped.queue_full"] == 2


def test_all_that_waits_is_bounded_and_room_comes_back() -> None:
    bench = BrokerBench(waiting_bytes=1750)
    bench.connected("l", session_expiry_interval=60).subscribe("t")
    bench.connected("l", clean=False, session_expiry_interval=60).drop()
    client = bench.connected("a")
    for number in range(5):
        client.publish("t", b"%d" % number, qos=1)
    assert bench.counters["broker.dropped.memory_full"] == 2
    listener = bench.connected("l", clean=False)
    said = [one for one in listener.hear() if isinstance(one, Publish)]
    assert payloads(said) == [b"2", b"3", b"4"]
    assert bench.broker.waiting_bytes > 0, "they are on the way"
    for one in said:
        listener.ack(PUBACK, one.packet_id)
    assert bench.broker.waiting_bytes == 0


def test_a_message_for_many_takes_room_once() -> None:
    bench = BrokerBench(waiting_bytes=12_000)
    for number in range(10):
        bench.connected(f"l{number}", session_expiry_interval=60).subscribe("t")
    bench.connected("a").publish("t", b"x" * 9000, qos=1)
    assert bench.broker.waiting_bytes < 12_000
    assert not [name for name in bench.counters if name.startswith("broker.dropped")]
    bench.pass_seconds(451)
    bench.pass_seconds(60)
    assert not bench.broker.sessions
    assert bench.broker.waiting_bytes == 0


def test_room_comes_back_when_a_session_ends() -> None:
    bench = BrokerBench()
    bench.connected("l", session_expiry_interval=60).subscribe("t")
    bench.connected("l", clean=False, session_expiry_interval=60).drop()
    bench.connected("a").publish("t", qos=1)
    assert bench.broker.waiting_bytes > 0
    bench.pass_seconds(60)
    assert bench.broker.waiting_bytes == 0
    assert "l" not in bench.broker.sessions


def test_packet_identifiers_that_are_in_use_are_left_out() -> None:
    bench = BrokerBench(inflight=3)
    listener = bench.connected("l")
    listener.subscribe("t")
    client = bench.connected("a")
    client.publish("t", b"stays", qos=1)
    message = bench.broker.sessions["l"].inflight[1].message
    stays = listener.only(Publish).packet_id
    session = bench.broker.sessions["l"]
    for _ in range(65_535):
        session.deliver(Outgoing(message, 1, retain=False))
        packet_id = listener.only(Publish).packet_id
        assert packet_id != stays
        listener.ack(PUBACK, packet_id)


@pytest.mark.parametrize("seconds", [1, 1000, 2**32 - 1])
def test_an_expiry_that_has_not_begun_is_told_as_it_came(seconds: int) -> None:
    """A sum of floats may be a little more than its parts, whatever the clock shows."""
    said = properties(MESSAGE_EXPIRY_INTERVAL=seconds)
    for thousandths in range(1_000_000, 1_003_000):
        now = thousandths / 1000 + 0.0000003
        message = Message(topic="t", payload=b"", qos=0, retain=False, publisher="a", expires_at=expiry_of(said, now))
        assert message.properties_for((), now) == said


@both
def test_messages_that_nobody_releases_are_bounded_together(version: ProtocolVersion) -> None:
    """Each session may have 1,024 of them: of 8,000 sessions that would be half a gigabyte."""
    bench = BrokerBench(waiting_bytes=0, inflight=40)  # which leaves room for 160
    for name in "abcd":
        client = bench.connected(name, version, clean=False, session_expiry_interval=3600)
        for packet_id in range(1, 41):
            client.say(Publish("t", b"", 2, packet_id=packet_id))
        client.drop()
    client = bench.connected("e", version)
    for packet_id in range(1, 17):
        assert client.say(Publish("t", b"", 2, packet_id=packet_id)) != []
    again = bench.connected("a", version, clean=False, session_expiry_interval=3600)
    for packet_id in range(1, 21):
        assert isinstance(again.say(PublishAck(PUBREL, packet_id))[0], PublishAck)
    for packet_id in range(17, 21):
        client.say(Publish("t", b"", 2, packet_id=packet_id))
    assert not client.closed, "some have made room"
    said = client.say(Publish("t", b"", 2, packet_id=21))
    assert client.closed
    assert [one.reason for one in said if isinstance(one, Disconnect)] == (
        [ReasonCode.QUOTA_EXCEEDED] if version is V5 else []
    )
    assert bench.counters["broker.refused.quota_exceeded"] == 1
