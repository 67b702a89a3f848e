"""Retained messages and wills (MQTT 5, sections 3.1.2.5 and 3.3.1.3)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.broker.bounds import BrokerBounds
from app.core.broker.codes import PacketType, ProtocolVersion, ReasonCode
from app.core.broker.message import Message
from app.core.broker.packets import Disconnect, Publish, PublishAck, WillMessage
from app.core.broker.properties import Properties
from app.core.broker.retained import MOST_AT_ONCE, RetainedMessages
from app.core.topics import matches
from tests.unit.core.broker.peers import V3, V5, BrokerBench, payloads, properties

both = pytest.mark.parametrize("version", [V3, V5], ids=["3.1.1", "5"])


@both
def test_the_last_one_is_for_those_who_subscribe_later(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    client = bench.connected("a", version)
    client.publish("t", b"old", retain=True)
    client.publish("t", b"new", qos=1, retain=True)
    client.publish("t", b"not retained")
    listener = bench.connected("l", version)
    (message,) = listener.subscribe("#", qos=1)
    assert isinstance(message, Publish)
    assert (message.payload, message.qos, message.retain) == (b"new", 1, True)
    client.publish("t", b"", retain=True)
    assert bench.connected("m", version).subscribe("t") == []
    assert payloads(listener.hear()) == [b""], "those who are there are told"
    assert len(bench.broker.retained) == 0


def test_what_has_expired_is_not_there_any_more() -> None:
    bench = BrokerBench()
    client = bench.connected("a")
    client.publish("t", b"x", retain=True, properties=properties(MESSAGE_EXPIRY_INTERVAL=10))
    bench.pass_seconds(4)
    (message,) = bench.connected("l").subscribe("t")
    assert isinstance(message, Publish)
    assert message.properties == properties(MESSAGE_EXPIRY_INTERVAL=6)
    bench.pass_seconds(6)
    assert bench.connected("l").subscribe("t") == []
    assert len(bench.broker.retained) == 0


def test_what_has_expired_takes_no_room_though_nobody_asks_for_it() -> None:
    bench = BrokerBench(retained=1)
    client = bench.connected("a")
    client.publish("alarm/1", b"x", retain=True, properties=properties(MESSAGE_EXPIRY_INTERVAL=10))
    client.publish("alarm/1", b"longer", retain=True, properties=properties(MESSAGE_EXPIRY_INTERVAL=20))
    full = PublishAck(PacketType.PUBACK, 1, ReasonCode.QUOTA_EXCEEDED)
    bench.pass_seconds(19)
    assert client.publish("alarm/2", b"y", qos=1, retain=True) == [full]
    bench.pass_seconds(1)
    (answer,) = client.publish("alarm/2", b"y", qos=1, retain=True)
    assert isinstance(answer, PublishAck)
    assert answer.reason is ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert payloads(bench.connected("l").subscribe("#")) == [b"y"]


def test_what_has_expired_is_forgotten_in_parts() -> None:
    retained = RetainedMessages(BrokerBounds())
    for number in range(MOST_AT_ONCE + 1):
        retained.keep(Message(topic=f"{number}", payload=b"x", qos=0, retain=True, publisher="a", expires_at=number))
    retained.forget_expired(MOST_AT_ONCE + 1)
    assert len(retained) == 1
    retained.forget_expired(MOST_AT_ONCE + 1)
    assert len(retained) == 0


def test_messages_that_are_replaced_leave_few_instants() -> None:
    retained = RetainedMessages(BrokerBounds())
    for instant in range(10_000):
        retained.keep(Message(topic="t", payload=b"x", qos=0, retain=True, publisher="a", expires_at=instant))
    assert len(retained._instants) < 2_000
    retained.forget_expired(9_998)
    assert len(retained) == 1
    retained.forget_expired(9_999)
    assert len(retained) == 0


def test_more_retained_messages_than_the_socket_takes_wait() -> None:
    bench = BrokerBench()
    client = bench.connected("a")
    for number in range(5):
        client.publish(f"t/{number}", b"%d" % number, retain=True)
    listener = bench.connected("l")
    listener.saturated = True
    assert listener.subscribe("#", qos=0) == []
    listener.saturated = False
    listener.connection.drained()
    assert payloads(listener.hear()) == [b"%d" % number for number in range(5)]


def test_no_message_overtakes_the_one_before_it_of_its_topic() -> None:
    """A retained message of QoS 0 waits behind one of QoS 1 for which there is no room in the client's window."""
    bench = BrokerBench()
    publisher = bench.connected("publisher")
    for topic, qos in (("t/1", 1), ("t/2", 1), ("t/3", 0)):
        publisher.publish(topic, b"old", qos, retain=True)
    client = bench.connected("client", receive_maximum=1)
    heard = [one for one in client.subscribe("t/#") if isinstance(one, Publish)]
    publisher.publish("t/3", b"new", retain=True)
    publisher.publish("t/3", b"newer")
    assert client.hear() == []
    for one in heard:
        heard += [more for more in client.ack(PacketType.PUBACK, one.packet_id) if isinstance(more, Publish)]
        if len(heard) > 2:
            break
    assert [(one.topic, one.payload) for one in heard] == [
        *(("t/1", b"old"), ("t/2", b"old")),
        *(("t/3", b"old"), ("t/3", b"new"), ("t/3", b"newer")),
    ]
    publisher.publish("t/3", b"last")
    assert payloads(client.hear()) == [b"last"], "nothing waits any more"


def test_a_slow_reader_of_retained_messages_ends_with_the_last_of_a_topic() -> None:
    bench = BrokerBench()
    publisher = bench.connected("publisher")
    publisher.publish("t", b"old", retain=True)
    listener = bench.connected("listener")
    listener.saturated = True
    assert listener.subscribe("t", qos=0) == []
    publisher.publish("t", b"new", retain=True)
    listener.saturated = False
    listener.connection.drained()
    assert payloads(listener.hear()) == [b"old", b"new"]
    assert bench.counters["broker.dropped.slow_reader"] == 0


def test_there_is_room_for_so_many() -> None:
    bench = BrokerBench(retained=2)
    client = bench.connected("a")
    listener = bench.connected("l")
    listener.subscribe("#")
    for number in range(2):
        client.publish(f"t/{number}", retain=True)
    listener.hear()
    assert client.publish("t/2", qos=1, retain=True) == [PublishAck(PacketType.PUBACK, 1, ReasonCode.QUOTA_EXCEEDED)]
    refused = PublishAck(PacketType.PUBREC, 2, ReasonCode.QUOTA_EXCEEDED)
    assert client.publish("t/2", qos=2, retain=True) == [refused]
    assert listener.hear() == [], "whoever is told that it was refused may say it again"
    client.publish("t/2", b"cannot be told", retain=True)
    bench.connected("o", V3).publish("t/2", b"nor this one", qos=1, retain=True)
    assert payloads(listener.hear()) == [b"cannot be told", b"nor this one"]
    client.publish("t/1", b"in place of another", retain=True)
    client.publish("t/0", b"", retain=True)
    client.publish("t/2", b"has room", retain=True)
    assert sorted(payloads(bench.connected("m").subscribe("#"))) == [b"has room", b"in place of another"]
    assert bench.counters["broker.dropped.retained_full"] == 4


LARGEST = Message(topic="t", payload=b"x" * 67_000_000, qos=0, retain=True, publisher="a")
levels = st.sampled_from(["a", "b", "", "$x"])
topics = st.lists(levels, min_size=1, max_size=3).map("/".join).filter(bool)
filters = st.lists(st.sampled_from(["a", "b", "", "$x", "+"]), min_size=1, max_size=3).flatmap(
    lambda one: st.sampled_from(["/".join(one), "/".join([*one, "#"]), "#"]).filter(bool)
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(topics, st.sampled_from([b"x", b"yy", b""]))), filters)
def test_it_is_a_dictionary_that_is_asked_with_filters(said: list[tuple[str, bytes]], topic_filter: str) -> None:
    retained, model = RetainedMessages(BrokerBounds()), dict[str, bytes]()
    for topic, payload in said:
        retained.keep(Message(topic=topic, payload=payload, qos=0, retain=True, publisher="a"))
        model[topic] = payload
    model = {topic: payload for topic, payload in model.items() if payload}
    found = retained.matching(topic_filter, 0)
    assert sorted(one.topic for one in found) == sorted(one for one in model if matches(topic_filter, one))
    assert len(retained) == len(model)
    assert {topic: one.payload for topic in model if (one := retained.get(topic))} == model
    for topic in model:
        retained.remove(topic)
    assert len(retained) == 0
    assert retained.has_room(LARGEST)


@both
def test_a_will_is_said_when_the_connection_breaks(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    listener = bench.connected("l")
    listener.subscribe("#")
    will = WillMessage("gone", b"a", qos=1, retain=True)
    bench.connected("a", version, will=will).drop()
    message = listener.only(Publish)
    assert (message.topic, message.payload, message.qos) == ("gone", b"a", 1)
    assert payloads(bench.connected("m").subscribe("gone")) == [b"a"]


@both
def test_a_will_is_forgotten_at_disconnect(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    listener = bench.connected("l")
    listener.subscribe("#")
    client = bench.connected("a", version, will=WillMessage("gone", b"a"))
    client.say(Disconnect())
    client.drop()
    bench.pass_seconds(300)
    assert listener.hear() == []


def test_disconnect_may_ask_for_the_will() -> None:
    bench = BrokerBench()
    listener = bench.connected("l")
    listener.subscribe("#")
    bench.connected("a", will=WillMessage("gone", b"a")).say(Disconnect(ReasonCode.DISCONNECT_WITH_WILL))
    assert payloads(listener.hear()) == [b"a"]


@pytest.mark.parametrize(("expiry", "due"), [(100, 30), (10, 10), (0, 0)])
def test_a_will_waits_for_its_delay_or_the_end_of_the_session(expiry: int, due: int) -> None:
    bench = BrokerBench()
    listener = bench.connected("l")
    listener.subscribe("#")
    will = WillMessage("gone", b"a", properties=properties(WILL_DELAY_INTERVAL=30, CONTENT_TYPE="x"))
    bench.connected("a", will=will, session_expiry_interval=expiry).drop()
    if due:
        bench.pass_seconds(due - 1)
        assert listener.hear() == []
        bench.pass_seconds(1)
    assert listener.only(Publish).properties == properties(CONTENT_TYPE="x")
    bench.pass_seconds(300)
    assert listener.hear() == []


def test_a_client_that_comes_back_in_time_has_not_gone() -> None:
    bench = BrokerBench()
    listener = bench.connected("l")
    listener.subscribe("#")
    will = WillMessage("gone", b"a", properties=properties(WILL_DELAY_INTERVAL=30))
    bench.connected("a", will=will, session_expiry_interval=100).drop()
    bench.pass_seconds(29)
    bench.connected("a", clean=False, session_expiry_interval=100)
    bench.pass_seconds(100)
    assert listener.hear() == []


def test_a_client_that_comes_back_between_two_ticks_is_too_late_for_its_will() -> None:
    """[MQTT-3.1.2-8]: the delay has passed, so the will is published, whoever comes before the broker has looked."""
    bench = BrokerBench()
    listener = bench.connected("l")
    listener.subscribe("#")
    will = WillMessage("gone", b"a", properties=properties(WILL_DELAY_INTERVAL=30))
    bench.connected("a", will=will, session_expiry_interval=100).drop()
    bench.clock.now += 30.5
    assert bench.connected("a", clean=False, session_expiry_interval=100).connack.session_present
    assert payloads(listener.hear()) == [b"a"]


def test_a_new_session_ends_the_old_one_with_its_will() -> None:
    bench = BrokerBench()
    listener = bench.connected("l")
    listener.subscribe("#")
    will = WillMessage("gone", b"a", properties=properties(WILL_DELAY_INTERVAL=30))
    bench.connected("a", will=will, session_expiry_interval=100)
    bench.connected("a")
    assert payloads(listener.hear()) == [b"a"]


@both
def test_a_takeover_says_a_will_without_delay(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    listener = bench.connected("l")
    listener.subscribe("#")
    bench.connected("a", version, clean=False, will=WillMessage("gone", b"1"))
    bench.connected("a", version, clean=False, will=WillMessage("gone", b"2"))
    assert payloads(listener.hear()) == [b"1"]


@both
def test_a_message_that_finds_no_room_takes_the_place_of_none(version: ProtocolVersion) -> None:
    """A message that was replaced is told to nobody: then there is no retained message."""
    bench = BrokerBench(retained_bytes=1000)
    client = bench.connected("a", version)
    client.publish("t", b"old", retain=True)
    client.publish("t", b"x" * 2000, retain=True)
    assert bench.connected("b", version).subscribe("t") == []
    assert bench.counters["broker.dropped.retained_full"] == 1


def test_the_identifier_of_a_message_that_was_refused_is_new() -> None:
    """[MQTT-4.3.3-9]: the same identifier is another message then, and not one that was published already."""
    bench = BrokerBench(retained_bytes=1000)
    reader, client = bench.connected("r"), bench.connected("a")
    reader.subscribe("t", qos=0)
    too_large = Publish("t", b"x" * 2000, 2, retain=True, packet_id=7)
    (refused,) = client.say(too_large)
    assert refused == PublishAck(PacketType.PUBREC, 7, ReasonCode.QUOTA_EXCEEDED)
    assert client.say(Publish("t", b"y", 2, packet_id=7)) == [PublishAck(PacketType.PUBREC, 7)]
    assert payloads(reader.hear()) == [b"y"]


@pytest.mark.parametrize("said", ["user", "text", "bytes"])
def test_properties_take_room_too(said: str) -> None:
    """A message may have 256 KiB of them, and no payload to speak of."""
    made = {
        "user": Properties({}, (("n" * 1000, "v" * 1000),)),
        "text": properties(CONTENT_TYPE="x" * 2000),
        "bytes": properties(CORRELATION_DATA=b"x" * 2000),
    }
    bench = BrokerBench(retained_bytes=1000, waiting_bytes=1000)
    client = bench.connected("a")
    client.publish("t", retain=True, properties=made[said])
    assert bench.counters["broker.dropped.retained_full"] == 1
    bench.connected("b", session_expiry_interval=100).subscribe("t")
    client.publish("t", qos=1, properties=made[said])
    assert bench.counters["broker.dropped.memory_full"] == 1


def test_one_filter_again_and_again_brings_no_more_than_may_wait() -> None:
    """Otherwise some hundred bytes, of a client that reads nothing, would keep the broker busy for minutes."""
    bench = BrokerBench(waiting=7)
    for number in range(10):
        bench.connected("a").publish(f"t/{number}", b"%d" % number, retain=True)
    client = bench.connected("b")
    client.saturated = True
    client.subscribe(*["#"] * 50)
    client.subscribe("t/+")
    assert [one.message.payload for one in bench.broker.sessions["b"].waiting] == [b"%d" % one for one in range(7)]
    assert bench.counters["broker.dropped.queue_full"] == 51, "once for each subscription that brought not all"
