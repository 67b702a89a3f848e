"""After a kill a broker has exactly what it had told its clients, and what follows from that."""

from __future__ import annotations

import json
from itertools import islice, product

import pytest

from app.core.broker.codes import PacketType, ReasonCode
from app.core.broker.packets import (
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    Publish,
    PublishAck,
    Suback,
    WillMessage,
)
from app.core.broker.rights import OpenDoor
from app.core.broker.rows import without_packet_ids
from tests.unit.core.broker.doors import Book, knock
from tests.unit.core.broker.kept import KeptBench
from tests.unit.core.broker.peers import V3, V5, Peer, payloads, properties

ACK, REC, REL, COMP = PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP


def durable(bench: KeptBench, client_id: str, *, will: WillMessage | None = None, expiry: int = 3600) -> Peer:
    return bench.connected(client_id, clean=False, will=will, session_expiry_interval=expiry)


def test_a_session_its_subscriptions_and_what_waits_are_there_again() -> None:
    bench = KeptBench()
    away = durable(bench, "away")
    away.subscribe(FilterOptions("a/#", 2, no_local=True, retain_as_published=True), identifier=7)
    away.drop()
    said = properties(CONTENT_TYPE="text/plain", MESSAGE_EXPIRY_INTERVAL=100)
    talker = bench.connected("talker")
    for number in range(3):
        talker.publish("a/b", b"%d" % number, qos=number, properties=said, retain=True)
    bench.kill(down=10)
    back = durable(bench, "away")
    assert back.connack.session_present
    first, second = back.hear()
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    expected = properties(CONTENT_TYPE="text/plain", MESSAGE_EXPIRY_INTERVAL=90)
    assert (first.payload, first.qos, first.retain, first.dup) == (b"1", 1, True, False)
    assert (dict(first.properties.values), first.properties.subscription_identifiers) == (expected.values, (7,))
    assert (second.payload, second.qos) == (b"2", 2)
    assert back.publish("a/own", qos=1) == [PublishAck(ACK, 1, ReasonCode.NO_MATCHING_SUBSCRIBERS)], "No Local is kept"


@pytest.mark.parametrize("count", [255, 256, 700])
def test_a_message_is_kept_with_all_the_subscriptions_that_brought_it(count: int) -> None:
    bench = KeptBench()
    away, levels = durable(bench, "away"), 10
    for number, names in enumerate(islice(product("a+", repeat=levels), count)):
        away.subscribe("/".join(names), identifier=number + 1)
    away.drop()
    bench.connected("talker").publish("/".join("a" * levels), qos=1)
    bench.kill()
    message = durable(bench, "away").only(Publish)
    assert sorted(message.properties.subscription_identifiers) == [*range(1, count + 1)]


def test_in_flight_is_said_again_with_the_same_identifiers_in_the_same_order() -> None:
    bench = KeptBench()
    reader, talker = durable(bench, "reader"), bench.connected("talker")
    reader.subscribe("t")
    for number in range(1, 6):
        talker.publish("t", b"%d" % number, qos=1 if number % 2 else 2)
    assert payloads(reader.hear()) == [b"1", b"2", b"3", b"4", b"5"]
    reader.ack(ACK, 3)
    assert reader.ack(REC, 4) == [PublishAck(REL, 4)]
    bench.kill()
    bench.kill()
    said = durable(bench, "reader").hear()
    assert [one.packet_id for one in said if isinstance(one, Publish | PublishAck)] == [1, 2, 4, 5]
    assert [one.dup for one in said if isinstance(one, Publish)] == [True, True, True]
    assert said[2] == PublishAck(REL, 4)
    assert payloads(said) == [b"1", b"2", b"5"]


@pytest.mark.parametrize("version", [V3, V5])
def test_qos_2_is_once_wherever_the_broker_is_killed(version: int) -> None:
    bench = KeptBench()

    def talking() -> Peer:
        return bench.connected("talker", V3, clean=False) if version is V3 else durable(bench, "talker")

    durable(bench, "reader").subscribe("t")
    for moment in ("before PUBREC", "before PUBREL", "before PUBCOMP"):
        talker = talking()
        assert talker.say(Publish("t", moment.encode(), 2, packet_id=9))[0] == PublishAck(REC, 9)
        if moment == "before PUBREC":
            bench.kill()
            talker = talking()
            assert talker.say(Publish("t", moment.encode(), 2, dup=True, packet_id=9)) == [PublishAck(REC, 9)]
        if moment == "before PUBREL":
            bench.kill()
            talker = talking()
        assert talker.ack(REL, 9) == [PublishAck(COMP, 9)]
        if moment == "before PUBCOMP":
            bench.kill()
            (again,) = talking().ack(REL, 9)
            assert isinstance(again, PublishAck)
            assert again.type is COMP
    reader = durable(bench, "reader")
    assert payloads(reader.hear()) == [b"before PUBREC", b"before PUBREL", b"before PUBCOMP"]


def test_nothing_is_promised_before_it_is_on_the_disk() -> None:
    bench = KeptBench()
    reader, talker, other = durable(bench, "reader"), durable(bench, "talker"), bench.connected("other")
    reader.subscribe("t")
    other.subscribe("t")
    bench.by_hand = True
    newcomer = bench.peer()
    assert newcomer.say(Connect(V5, "new", clean_start=False, properties=properties(SESSION_EXPIRY_INTERVAL=9))) == []
    assert reader.subscribe_only("more") == []
    assert talker.publish("t", b"1", qos=1) == []
    assert talker.publish("t", b"2", qos=2) == []
    assert (reader.hear(), other.hear()) == ([], []), "a message is not given to others either"
    assert talker.publish("u", b"0", qos=0) == []
    bench.kill()
    bench.by_hand = False
    assert not durable(bench, "new").connack.session_present
    reader = durable(bench, "reader")
    assert reader.hear() == []
    durable(bench, "talker").publish("t", b"1", qos=1)
    assert payloads(reader.hear()) == [b"1"]


def test_all_of_one_round_leaves_after_one_write_in_its_order() -> None:
    bench = KeptBench()
    reader, talker = durable(bench, "reader"), durable(bench, "talker")
    reader.subscribe("t")
    bench.by_hand, before = True, bench.writes
    for number in range(20):
        talker.publish("t", b"%d" % number, qos=1 + number % 2)
    bench.sync()
    assert bench.writes == before + 1
    assert payloads(reader.hear()) == [b"%d" % number for number in range(20)]
    acknowledged = [one.packet_id for one in talker.hear() if isinstance(one, PublishAck)]
    assert acknowledged == [*range(1, 21)]


def test_a_close_does_not_overtake_what_is_held_back() -> None:
    bench = KeptBench()
    reader, talker = durable(bench, "reader"), durable(bench, "talker")
    reader.subscribe("t")
    bench.by_hand = True
    talker.publish("t", b"1", qos=1)
    talker.say(Disconnect())
    assert not talker.closed
    bench.sync()
    assert talker.closed
    assert talker.hear() == [PublishAck(ACK, 1)]


def test_what_promises_nothing_waits_for_nothing() -> None:
    bench = KeptBench()
    reader, talker = bench.connected("reader"), bench.connected("talker")
    durable(bench, "away").subscribe("kept")
    reader.subscribe("t")
    bench.by_hand = True
    talker.publish("kept", b"1", qos=0)
    talker.publish("t", b"1", qos=0)
    assert payloads(reader.hear()) == [b"1"]
    before = bench.writes
    assert talker.publish("t", b"2", qos=1) == []
    bench.sync()
    assert (len(talker.hear()), bench.writes) == (1, before), "nobody keeps it, so there is nothing to write"


def test_a_message_for_many_is_one_row_which_goes_with_its_last_reference() -> None:
    bench = KeptBench()
    for number in range(10):
        peer = durable(bench, f"c{number}")
        peer.subscribe("t")
        peer.drop()
    bench.connected("talker").publish("t", b"x", qos=1)
    assert (len(bench.keys("m")), len(bench.keys("q"))) == (1, 10)
    bench.kill()
    for number in range(10):
        assert len(bench.keys("m")) == 1
        peer = durable(bench, f"c{number}")
        assert payloads(peer.hear()) == [b"x"]
        peer.ack(ACK, 1)
    assert bench.keys("mq") == []


def test_retained_messages_are_there_again() -> None:
    bench = KeptBench()
    talker = bench.connected("talker")
    for number, topic in enumerate(["a", "a/b", "a/c", "a/b"]):
        talker.publish(topic, b"%d" % number, qos=number % 3, retain=True)
    talker.publish("a/c", b"", retain=True)
    talker.publish("a/short", b"s", retain=True, properties=properties(MESSAGE_EXPIRY_INTERVAL=5))
    bench.kill(down=10)
    found = bench.connected("reader").subscribe("#")
    assert sorted(payloads(found)) == [b"0", b"3"]
    assert len(bench.keys("t")) == len(bench.keys("m")) == 2, "what had expired is gone from the disk, too"


def test_a_session_that_ends_leaves_no_rows() -> None:
    bench = KeptBench()
    reader, talker = durable(bench, "reader", will=WillMessage("will", b"x")), bench.connected("talker")
    reader.subscribe("t", "$share/s/u")
    for topic in ("t", "u"):
        talker.publish(topic, qos=2)
    reader.publish("x", qos=2)
    reader.drop()
    assert bench.keys("csrqm")
    bench.connected("reader", clean=True).say(Disconnect())
    assert bench.disk == {}


def test_a_clean_session_is_not_on_the_disk() -> None:
    bench = KeptBench()
    one = bench.connected("clean")
    one.subscribe("t")
    one.publish("t", qos=2)
    assert (bench.disk, bench.writes) == ({}, 0)


def test_a_share_and_what_its_members_hold_are_there_again() -> None:
    bench = KeptBench()
    members = [durable(bench, f"m{number}") for number in range(2)]
    for one in members:
        one.subscribe("$share/s/t")
    talker = bench.connected("talker")
    for number in range(4):
        talker.publish("t", b"%d" % number, qos=1)
    bench.kill()
    first = durable(bench, "m0", expiry=5)
    held = payloads(first.hear())
    first.drop()
    bench.pass_seconds(6)
    second = durable(bench, "m1")
    assert sorted([*held, b"1", b"3"]) == [b"0", b"1", b"2", b"3"]
    assert sorted(payloads(second.hear())) == [b"0", b"1", b"2", b"3"], "what the other had goes to this one"


def test_a_clock_that_was_set_back_ends_nothing_early() -> None:
    bench = KeptBench()
    peer = durable(bench, "c", expiry=60)
    peer.subscribe("t")
    peer.drop()
    bench.connected("talker").publish("t", qos=1, properties=properties(MESSAGE_EXPIRY_INTERVAL=60))
    bench.kill(down=-3600)
    bench.pass_seconds(59)
    assert durable(bench, "c").connack.session_present


def test_rows_that_cannot_be_read_are_named_and_the_rest_is_there() -> None:
    bench = KeptBench()
    for name in ("good", "bad"):
        peer = durable(bench, name)
        peer.subscribe("t")
        peer.drop()
    talker = bench.connected("talker")
    talker.publish("t", b"1", qos=1)
    talker.publish("t", b"2", qos=1)
    talker.publish("r", b"3", qos=1, retain=True)
    first, _, third = bench.keys("m")
    bench.disk[first] = bench.disk[third] = b"\0" * 5
    bench.disk[b"cbad"] = b"{"
    bench.disk[b"x"] = b"of a later version"
    bench.disk[b"qgood\0\1"] = b""
    bench.kill()
    assert bench.damaged.keys() == {first, third, b"cbad", b"x", b"qgood\0\1"}
    assert payloads(durable(bench, "good").hear()) == [b"2"]
    assert not durable(bench, "bad").connack.session_present
    assert not [key for key in bench.keys("s") if b"bad" in key], "what belonged to it does not come to life again"
    assert bench.keys("t") == []


def test_a_message_that_made_room_is_gone_from_the_disk() -> None:
    bench = KeptBench(waiting=2)
    peer = durable(bench, "c")
    peer.subscribe("t")
    peer.drop()
    for number in range(4):
        bench.connected("talker").publish("t", b"%d" % number, qos=1)
    assert len(bench.keys("m")) == 2
    bench.kill()
    assert payloads(durable(bench, "c").hear()) == [b"2", b"3"]


def test_a_suback_and_its_retained_messages_stay_in_order() -> None:
    bench = KeptBench()
    bench.connected("talker").publish("t", b"1", qos=0, retain=True)
    reader = durable(bench, "reader")
    bench.by_hand = True
    assert reader.subscribe_only("t") == []
    bench.sync()
    suback, message = reader.hear()
    assert isinstance(suback, Suback)
    assert isinstance(message, Publish)


def test_a_connack_is_refused_while_nothing_can_be_kept() -> None:
    bench = KeptBench()
    bench.broker.unavailable = True
    refused = bench.peer().say(Connect(V5, "c"))
    assert refused == [Connack(ReasonCode.SERVER_UNAVAILABLE)]


def test_a_session_is_its_owner_s_after_a_restart() -> None:
    bench = KeptBench(Book())
    knock(bench, "ann", b"ann", client_id="c", clean=False, expiry=3600)[0].subscribe("ann/x")
    bench.kill()
    for clean in (False, True):
        assert knock(bench, "bob", b"bob", client_id="c", clean=clean)[1] is ReasonCode.NOT_AUTHORIZED
    bench.kill()
    peer, said = knock(bench, "ann", b"ann", client_id="c", clean=False, expiry=3600)
    assert said is ReasonCode.SUCCESS
    assert bench.broker.sessions["c"].subscriptions.keys() == {"ann/x"}
    assert not peer.closed


def test_a_session_of_nobody_is_whose_who_takes_it_up() -> None:
    bench = KeptBench()
    durable(bench, "c")
    head, _, _ = bench.disk[b"cc"].partition(b"\n")
    facts = json.loads(head)
    del facts["owner"]  # as versions wrote it that kept none
    bench.disk[b"cc"] = json.dumps(facts).encode() + b"\n"
    bench.ask(Book())
    assert bench.damaged == {}
    assert knock(bench, "ann", b"ann", client_id="c", clean=False, expiry=3600)[1] is ReasonCode.SUCCESS
    bench.kill()
    assert knock(bench, "bob", b"bob", client_id="c", clean=False)[1] is ReasonCode.NOT_AUTHORIZED


def test_a_broker_that_asks_nobody_serves_every_session_and_leaves_its_owner() -> None:
    book = Book()
    bench = KeptBench(book)
    knock(bench, "ann", b"ann", client_id="c", clean=False, expiry=3600)
    bench.ask(OpenDoor())
    assert durable(bench, "c").connack.session_present
    bench.ask(book)
    assert knock(bench, "bob", b"bob", client_id="c", clean=False)[1] is ReasonCode.NOT_AUTHORIZED


def test_a_row_whose_owner_is_no_text_is_damaged() -> None:
    bench = KeptBench()
    durable(bench, "c")
    bench.disk[b"cc"] = bench.disk[b"cc"].replace(b'"owner": ""', b'"owner": 7')
    bench.kill()
    assert bench.damaged == {b"cc": "TypeError: its owner is no text"}


def test_a_broker_that_went_back_in_time_knows_no_packet_ids() -> None:
    """Messages on the way are sent anew, what the client had is not, and the client's own ids are free."""
    bench = KeptBench()
    reader, talker = durable(bench, "reader"), durable(bench, "talker")
    reader.subscribe("t")
    for number in range(1, 6):
        talker.publish("t", b"%d" % number, qos=1 if number % 2 else 2)
    reader.hear()
    reader.ack(ACK, 3)
    assert reader.ack(REC, 4) == [PublishAck(REL, 4)]
    assert talker.say(Publish("t", b"6", 2, packet_id=9)) == [PublishAck(REC, 9)]
    assert bench.keys("r")
    bench.disk[b"q torn"] = b"short"
    for key, row in list(without_packet_ids(bench.disk.items())):
        if row is None:
            del bench.disk[key]
        else:
            bench.disk[key] = row
    bench.kill()
    assert not bench.keys("r")
    assert list(bench.damaged) == [b"q torn"], "it is told of as ever"
    said = durable(bench, "reader").hear()
    assert payloads(said) == [b"1", b"2", b"5", b"6"]
    assert [one.packet_id for one in said if isinstance(one, Publish)] == [1, 2, 3, 4]
    assert [one.dup for one in said if isinstance(one, Publish)] == [False] * 4
    assert durable(bench, "talker").say(Publish("t", b"7", 2, packet_id=9)) == [PublishAck(REC, 9)]
    assert len(bench.keys("m")) == 5, "the message that was released has gone"


def test_a_retained_message_for_which_there_is_no_room_any_more_is_counted() -> None:
    bench = KeptBench()
    talker = bench.connected("talker")
    for number in range(3):
        talker.publish(f"t/{number}", b"%d" % number, qos=1, retain=True)
    bench.bound(retained=2)
    assert len(bench.connected("reader").subscribe("t/#")) == 2
    assert bench.counters["broker.dropped.retained_full"] == 1
    assert len(bench.keys("t")) == 2, "it is gone, as one that was never kept"
