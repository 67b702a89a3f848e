"""The room for what waits is for all sessions: whoever takes most of it gives way to the others."""

from __future__ import annotations

from app.core.broker.codes import PacketType
from app.core.broker.packets import Publish, PublishAck
from tests.unit.core.broker.peers import BrokerBench, Peer, payloads, properties

ROOM = 20_000
SIZE = 1_000
"""Bytes of a payload: of such messages some dozen find room."""


def away(bench: BrokerBench, name: str, topic_filter: str) -> None:
    """A session with a subscription, whose client has left."""
    client = bench.connected(name, session_expiry_interval=60)
    client.subscribe(topic_filter)
    client.drop()


def flood(client: Peer, topic: str, count: int) -> None:
    for number in range(count):
        client.publish(topic, b"%04d" % number + b"x" * SIZE, qos=1)


def waiting(bench: BrokerBench, name: str) -> list[bytes]:
    """The beginnings of what waits for a session."""
    return [one.message.payload[:4] for one in bench.broker.sessions[name].waiting]


def test_a_client_that_stays_away_takes_no_room_from_others() -> None:
    bench = BrokerBench(waiting_bytes=ROOM)
    away(bench, "away", "#")
    reader, talker = bench.connected("reader"), bench.connected("talker")
    reader.subscribe("t")
    for number in range(100):
        talker.publish("t", b"%04d" % number + b"x" * SIZE, qos=1)
        said = reader.only(Publish)
        assert said.payload.startswith(b"%04d" % number)
        reader.say(PublishAck(PacketType.PUBACK, said.packet_id))
    kept = waiting(bench, "away")
    assert 10 < len(kept) < 20
    assert kept == [b"%04d" % number for number in range(100 - len(kept), 100)], "the oldest have made room"
    assert bench.counters["broker.dropped.memory_full"] == 100 - len(kept)
    assert bench.broker.waiting_bytes <= ROOM


def test_the_session_with_most_bytes_gives_way_and_not_the_one_with_most_messages() -> None:
    bench = BrokerBench(waiting_bytes=ROOM)
    away(bench, "much", "large")
    away(bench, "many", "small")
    talker = bench.connected("talker")
    for number in range(15):
        talker.publish("small", b"%04d" % number, qos=1)
    flood(talker, "large", 50)
    assert len(waiting(bench, "many")) == 15
    assert 5 < len(waiting(bench, "much")) < 20
    assert waiting(bench, "much")[-1] == b"0049"


def test_those_who_wait_for_the_same_lose_the_same() -> None:
    bench = BrokerBench(waiting_bytes=ROOM)
    for number in range(4):
        away(bench, f"away-{number}", "t")
    flood(bench.connected("talker"), "t", 50)
    lengths = [len(waiting(bench, f"away-{number}")) for number in range(4)]
    assert max(lengths) - min(lengths) <= 2, lengths
    assert min(lengths) > 5
    assert all(waiting(bench, f"away-{number}")[-1] == b"0049" for number in range(4))


def test_what_is_on_the_way_stays_and_what_finds_no_room_then_is_lost() -> None:
    bench = BrokerBench(waiting_bytes=ROOM)
    reader, talker = bench.connected("reader"), bench.connected("talker")
    reader.subscribe("t")
    flood(talker, "t", 30)
    said = [one for one in reader.hear() if isinstance(one, Publish)]
    assert 10 < len(said) < 20
    assert bench.counters["broker.dropped.memory_full"] == 30 - len(said)
    for one in said:
        reader.say(PublishAck(PacketType.PUBACK, one.packet_id))
    assert bench.broker.waiting_bytes == 0


def test_what_has_expired_gives_way_before_what_somebody_still_wants() -> None:
    """As commands do that a device which is away will never get."""
    bench = BrokerBench(waiting_bytes=ROOM)
    for number in range(3):
        away(bench, f"device-{number}", f"command/{number}")
    away(bench, "consumer", "event")
    talker = bench.connected("talker")
    for number in range(6):
        soon = properties(MESSAGE_EXPIRY_INTERVAL=1)
        talker.publish(f"command/{number % 3}", b"x" * SIZE, qos=1, properties=soon)
    flood(talker, "event", 5)
    bench.pass_seconds(2)
    for number in range(5, 12):
        talker.publish("event", b"%04d" % number + b"x" * SIZE, qos=1)
    assert waiting(bench, "consumer") == [b"%04d" % number for number in range(12)]
    assert bench.counters["broker.dropped.expired"] == 6
    assert bench.counters["broker.dropped.memory_full"] == 0
    assert bench.broker.waiting_bytes <= ROOM


def test_a_message_that_never_fits_harms_nobody() -> None:
    bench = BrokerBench(waiting_bytes=ROOM)
    away(bench, "away", "#")
    talker = bench.connected("talker")
    flood(talker, "t", 5)
    talker.publish("t", b"x" * ROOM, qos=1)
    assert len(waiting(bench, "away")) == 5
    assert bench.counters["broker.dropped.memory_full"] == 1
    assert payloads(bench.connected("away", clean=False).hear())[-1].startswith(b"0004")
