"""CONNECT, what ends a connection, and whose session it was (MQTT 5, sections 3.1, 3.2, 3.14 and 4.13)."""

from __future__ import annotations

import pytest

from app.core.broker.codes import PacketError, PacketType, ProtocolVersion, ReasonCode
from app.core.broker.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Publish, PublishAck, WillMessage
from app.core.broker.properties import NO_PROPERTIES, Properties
from tests.unit.core.broker.peers import V3, V5, BrokerBench, payloads, properties

both = pytest.mark.parametrize("version", [V3, V5], ids=["3.1.1", "5"])


@both
def test_a_client_is_answered_and_its_pings_too(version: ProtocolVersion) -> None:
    client = BrokerBench().connected("a", version)
    assert not client.connack.session_present
    assert client.say(Pingreq()) == [Pingresp()]


def test_a_client_of_5_is_told_the_bounds() -> None:
    client = BrokerBench().connected("")
    assert client.connack.properties == properties(
        RECEIVE_MAXIMUM=1024,
        MAXIMUM_PACKET_SIZE=268_435,
        TOPIC_ALIAS_MAXIMUM=64,
        ASSIGNED_CLIENT_IDENTIFIER="auto-1",
        SERVER_KEEP_ALIVE=300,
    )


def test_a_client_of_3_1_1_has_no_properties_and_its_own_keep_alive() -> None:
    bench = BrokerBench()
    client = bench.connected("", V3)
    assert client.connack.properties == NO_PROPERTIES
    bench.pass_seconds(100_000)
    assert not client.closed, "a keep alive of 0 is none"


@pytest.mark.parametrize(
    ("connect", "reason"),
    [
        (Connect(V3, "", clean_start=False), ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        (Connect(V5, "x" * 257), ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        (Connect(V5, "a", properties=properties(AUTHENTICATION_METHOD="x")), ReasonCode.BAD_AUTHENTICATION_METHOD),
        (Connect(V5, "a", will=WillMessage("/".join("x" * 33), b"")), ReasonCode.TOPIC_NAME_INVALID),
    ],
)
def test_a_connect_that_cannot_be_accepted_is_told_why(connect: Connect, reason: ReasonCode) -> None:
    bench = BrokerBench()
    client = bench.peer(connect.version)
    assert client.only(Connack, client.say(connect)).reason is reason
    assert client.closed
    assert not bench.broker.connections
    assert not bench.broker.sessions
    assert bench.counters[f"broker.refused.{reason.name.lower()}"] == 1


def test_another_version_is_refused_in_the_words_of_3_1_1() -> None:
    client = BrokerBench().peer(V3)
    client.connection.refuse(PacketError(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, "a bridge", V3))
    assert client.only(Connack).reason is ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    assert client.closed


def test_whoever_says_something_else_first_is_not_answered() -> None:
    client = BrokerBench().peer()
    assert client.say(Pingreq()) == []
    assert client.closed


@both
def test_a_second_connect_ends_the_connection(version: ProtocolVersion) -> None:
    client = BrokerBench().connected("a", version)
    said = client.say(Connect(version, "a"))
    assert [type(one) for one in said] == ([Disconnect] if version is V5 else [])
    assert client.closed


def test_what_a_server_sends_is_refused_from_a_client() -> None:
    client = BrokerBench().connected("a")
    said = client.only(Disconnect, client.say(Pingresp()))
    assert said.reason is ReasonCode.PROTOCOL_ERROR
    assert said.properties == properties(REASON_STRING="PINGRESP is not for a server now")


def test_nothing_is_read_after_the_end() -> None:
    bench = BrokerBench()
    client = bench.connected("a")
    client.say(Disconnect())
    client.publish("t", b"late", qos=1)
    assert client.hear() == []
    assert bench.counters["broker.received"] == 0


def test_whoever_says_nothing_is_closed_after_a_while() -> None:
    bench = BrokerBench()
    client = bench.peer()
    bench.pass_seconds(5)
    assert not client.closed
    bench.pass_seconds(0.5)
    assert client.closed
    assert bench.counters["broker.refused.no_connect"] == 1


@both
def test_a_client_may_be_silent_for_one_and_a_half_keep_alives(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    client = bench.connected("a", version, keep_alive=10)
    bench.pass_seconds(14)
    client.say(Pingreq())
    bench.pass_seconds(15)
    assert not client.closed
    bench.pass_seconds(0.5)
    assert client.closed
    assert [one.reason for one in client.hear() if isinstance(one, Disconnect)] == (
        [ReasonCode.KEEP_ALIVE_TIMEOUT] if version is V5 else []
    )


@both
def test_a_second_connection_takes_the_session_over(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    first = bench.connected("a", version, clean=False, session_expiry_interval=60)
    first.subscribe("t")
    second = bench.connected("a", version, clean=False, session_expiry_interval=60)
    assert first.closed
    assert [one.reason for one in first.hear() if isinstance(one, Disconnect)] == (
        [ReasonCode.SESSION_TAKEN_OVER] if version is V5 else []
    )
    assert second.connack.session_present
    bench.connected("b").publish("t", b"new")
    assert payloads(second.hear()) == [b"new"]
    first.connection.lost()
    bench.connected("c").publish("t", b"newer")
    assert payloads(second.hear()) == [b"newer"], "the end of the first socket is nothing to the session"


@both
def test_a_clean_start_begins_a_new_session(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    bench.connected("a", version, clean=False, session_expiry_interval=60).subscribe("t")
    again = bench.connected("a", version)
    assert not again.connack.session_present
    bench.connected("b").publish("t", qos=1)
    assert again.hear() == []
    assert len(bench.broker.subscriptions) == 0


def test_a_session_of_5_ends_with_its_expiry() -> None:
    bench = BrokerBench()
    bench.connected("a", session_expiry_interval=60).drop()
    bench.pass_seconds(59)
    assert bench.connected("a", clean=False, session_expiry_interval=60).connack.session_present
    bench.connected("a", clean=False).drop()
    assert not bench.connected("a", clean=False).connack.session_present, "an expiry of 0 ends it with the connection"


def test_a_session_has_ended_at_its_expiry_and_not_when_the_broker_looks_next() -> None:
    """[MQTT-4.1.0-2]: a client that comes back between two ticks finds none, as one that comes after them."""
    bench = BrokerBench()
    bench.connected("a", session_expiry_interval=60).subscribe("t")
    bench.connected("a", clean=False, session_expiry_interval=60).drop()
    bench.clock.now += 60.5
    back = bench.connected("a", clean=False, session_expiry_interval=60)
    assert not back.connack.session_present
    bench.connected("b").publish("t", qos=1)
    assert back.hear() == []


def test_expiry_counts_from_the_end_of_the_connection() -> None:
    bench = BrokerBench()
    client = bench.connected("a", session_expiry_interval=60)
    bench.pass_seconds(100)
    client.drop()
    bench.pass_seconds(59)
    assert "a" in bench.broker.sessions
    bench.pass_seconds(1)
    assert "a" not in bench.broker.sessions


def test_a_session_that_should_never_end_is_told_when_it_does() -> None:
    client = BrokerBench().connected("a", session_expiry_interval=0xFFFF_FFFF)
    assert properties(SESSION_EXPIRY_INTERVAL=604_800).values.items() <= client.connack.properties.values.items()


def test_disconnect_may_change_the_expiry() -> None:
    bench = BrokerBench()
    bench.connected("a", session_expiry_interval=60).say(Disconnect(properties=properties(SESSION_EXPIRY_INTERVAL=0)))
    assert "a" not in bench.broker.sessions


def test_disconnect_may_not_ask_for_an_expiry_that_connect_had_not() -> None:
    client = BrokerBench().connected("a")
    said = client.say(Disconnect(properties=properties(SESSION_EXPIRY_INTERVAL=60)))
    assert client.only(Disconnect, said).reason is ReasonCode.PROTOCOL_ERROR


def test_topic_aliases_stand_for_topics_of_this_connection() -> None:
    bench = BrokerBench()
    listener = bench.connected("l")
    listener.subscribe("t")
    client = bench.connected("a")
    client.publish("t", b"1", properties=properties(TOPIC_ALIAS=64))
    client.publish("", b"2", properties=properties(TOPIC_ALIAS=64))
    said = listener.hear()
    assert payloads(said) == [b"1", b"2"]
    assert all(isinstance(one, Publish) and one.properties == NO_PROPERTIES for one in said)
    unknown = client.publish("", b"3", properties=properties(TOPIC_ALIAS=1))
    assert client.only(Disconnect, unknown).reason is ReasonCode.PROTOCOL_ERROR
    beyond = bench.connected("b").publish("t", properties=properties(TOPIC_ALIAS=65))
    assert client.only(Disconnect, beyond).reason is ReasonCode.TOPIC_ALIAS_INVALID


def test_the_topics_of_aliases_are_bounded_together() -> None:
    """64 of the longest topics for each of some thousand clients would be a quarter of a gigabyte, or all of it."""
    bench = BrokerBench()
    client = bench.connected("a")
    for number in range(1, 65):
        client.publish(f"{number:0200}", properties=properties(TOPIC_ALIAS=number))
    for _ in range(10):
        client.publish("y" * 200, properties=properties(TOPIC_ALIAS=64))
    assert not client.closed, "whoever gives an alias another topic has no more of them"
    said = client.publish("\N{LEMON}" + "x" * 1_000, properties=properties(TOPIC_ALIAS=1))
    assert client.only(Disconnect, said).reason is ReasonCode.QUOTA_EXCEEDED


@pytest.mark.parametrize("topic", ["$SYS/broker/version", "$share/g/t", "x" * 1025, "/".join("x" * 33)])
def test_topics_that_are_not_for_clients_are_refused(topic: str) -> None:
    client = BrokerBench().connected("a")
    assert client.only(Disconnect, client.publish(topic)).reason is ReasonCode.TOPIC_NAME_INVALID


def test_a_client_does_not_send_subscription_identifiers() -> None:
    client = BrokerBench().connected("a")
    said = client.publish("t", properties=Properties(subscription_identifiers=(1,)))
    assert client.only(Disconnect, said).reason is ReasonCode.PROTOCOL_ERROR


def test_an_acknowledgement_of_nothing_is_counted() -> None:
    bench = BrokerBench()
    client = bench.connected("a")
    assert client.ack(PacketType.PUBACK, 7) == []
    assert client.ack(PacketType.PUBCOMP, 7) == []
    unknown = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    assert client.ack(PacketType.PUBREC, 7) == [PublishAck(PacketType.PUBREL, 7, unknown)]
    assert client.ack(PacketType.PUBREL, 7) == [PublishAck(PacketType.PUBCOMP, 7, unknown)]
    assert bench.counters["broker.unknown_acknowledgement"] == 3


def test_large_wills_are_bounded_together() -> None:
    """Some thousand sessions with a will of 60 KiB each would be half a gigabyte, for seven days."""
    bench = BrokerBench(waiting_bytes=0, connect_bytes=5_000)  # which leaves room for 20,000 bytes
    large = WillMessage("w", b"x" * 4_000, properties=properties(WILL_DELAY_INTERVAL=600))
    for name in "abcd":
        bench.connected(name, will=large, session_expiry_interval=3600).drop()
    refused = bench.peer()
    assert refused.only(Connack, refused.say(Connect(V5, "e", will=large))).reason is ReasonCode.QUOTA_EXCEEDED
    assert "e" not in bench.broker.sessions
    bench.connected("e", will=WillMessage("w", b"x" * 900))
    assert bench.connected("a", clean=False, will=large, session_expiry_interval=3600).connack.session_present
    bench.connected("b").say(Disconnect())
    bench.connected("f", will=large).say(Disconnect())
    bench.connected("g", will=large)


def test_connections_and_sessions_are_bounded() -> None:
    bench = BrokerBench(connections=2, sessions=3)
    bench.connected("a", session_expiry_interval=60)
    busy = bench.connected("b", session_expiry_interval=60)
    third = bench.peer()
    assert third.only(Connack, third.say(Connect(V5, "c"))).reason is ReasonCode.SERVER_BUSY
    busy.drop()
    bench.connected("c", session_expiry_interval=60).drop()
    fourth = bench.peer()
    assert fourth.only(Connack, fourth.say(Connect(V5, "d"))).reason is ReasonCode.QUOTA_EXCEEDED
    assert bench.connected("b", clean=False).connack.session_present, "what is there may come back"
