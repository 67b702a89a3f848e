"""SUBSCRIBE and UNSUBSCRIBE, their options, and shared subscriptions (MQTT 5, sections 3.8 to 3.11 and 4.8)."""

from __future__ import annotations

import pytest

from app.core.broker.codes import PacketType, ReasonCode
from app.core.broker.packets import FilterOptions, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from tests.unit.core.broker.peers import V3, BrokerBench, Peer, payloads

PUBACK = PacketType.PUBACK


@pytest.mark.parametrize(
    ("topic_filter", "topic", "fits"),
    [
        ("a/b", "a/b", True),
        ("a/+", "a/b", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("+/+", "a", False),
        ("+", "/a", False),
        ("/+", "/a", True),
        ("#", "$x/a", False),
        ("+/a", "$x/a", False),
        ("$x/#", "$x/a", True),
        ("a//b", "a//b", True),
        ("a/+/b", "a//b", True),
    ],
)
def test_filters_fit_topics_for_live_and_retained_messages_alike(topic_filter: str, topic: str, *, fits: bool) -> None:
    bench = BrokerBench()
    early, late = bench.connected("e"), bench.connected("l")
    early.subscribe(topic_filter)
    bench.connected("a").publish(topic, b"x", retain=True)
    wanted = [b"x"] if fits else []
    assert payloads(early.hear()) == wanted
    assert payloads(late.subscribe(topic_filter)) == wanted


def test_a_filter_that_is_there_is_replaced() -> None:
    bench = BrokerBench()
    client = bench.connected("c")
    client.subscribe("t", qos=2, identifier=1)
    client.subscribe("t", qos=0, identifier=2)
    bench.connected("a").publish("t", qos=1)
    message = client.only(Publish)
    assert (message.qos, message.properties.subscription_identifiers) == (0, (2,))


def test_no_subscription_begins_while_memory_is_full() -> None:
    bench = BrokerBench()
    client = bench.connected("c")
    client.subscribe("t", qos=1)
    bench.broker.out_of_memory = True
    answer = client.only(Suback, client.subscribe_only("u", "t", qos=0))
    assert answer.reasons == (ReasonCode.QUOTA_EXCEEDED, ReasonCode.SUCCESS), "one that is there may change"


def test_filters_that_overlap_bring_one_message_with_all_identifiers() -> None:
    bench = BrokerBench()
    client = bench.connected("c")
    client.subscribe("t/+", qos=0, identifier=1)
    client.subscribe("t/#", qos=1, identifier=2)
    client.subscribe("#", qos=0)
    bench.connected("a").publish("t/1", qos=2)
    message = client.only(Publish)
    assert message.qos == 1
    assert sorted(message.properties.subscription_identifiers) == [1, 2]


def test_no_local_leaves_out_what_the_client_says_itself() -> None:
    bench = BrokerBench()
    client = bench.connected("c")
    client.subscribe(FilterOptions("t", no_local=True))
    client.publish("t", b"own")
    bench.connected("a").publish("t", b"other")
    assert payloads(client.hear()) == [b"other"]


def test_retain_as_published_keeps_the_flag() -> None:
    bench = BrokerBench()
    plain, kept = bench.connected("p"), bench.connected("k")
    plain.subscribe("t")
    kept.subscribe(FilterOptions("t", retain_as_published=True))
    bench.connected("a").publish("t", retain=True)
    assert [plain.only(Publish).retain, kept.only(Publish).retain] == [False, True]


@pytest.mark.parametrize(("handling", "first", "again"), [(0, True, True), (1, True, False), (2, False, False)])
def test_retain_handling_says_when_retained_messages_come(handling: int, *, first: bool, again: bool) -> None:
    bench = BrokerBench()
    bench.connected("a").publish("t", b"x", retain=True)
    client = bench.connected("c")
    assert bool(client.subscribe(FilterOptions("t", retain_handling=handling))) is first
    assert bool(client.subscribe(FilterOptions("t", retain_handling=handling))) is again


def test_unsubscribe_says_which_were_there() -> None:
    bench = BrokerBench()
    client = bench.connected("c")
    client.subscribe("t", "u")
    said = client.only(Unsuback, client.say(Unsubscribe(9, ("t", "never"))))
    assert said.reasons == (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED)
    bench.connected("a").publish("t")
    assert client.hear() == []
    assert len(bench.broker.subscriptions) == 1


def test_subscriptions_are_bounded_each_by_itself() -> None:
    client = BrokerBench(subscriptions=2).connected("c")
    filters = ("a", "x" * 1025, "/".join("x" * 33), "b", "c")
    suback = client.only(Suback, client.say(Subscribe(1, tuple(FilterOptions(one, 1) for one in filters))))
    invalid = ReasonCode.TOPIC_FILTER_INVALID
    granted = ReasonCode.GRANTED_QOS_1
    assert suback.reasons == (granted, invalid, invalid, granted, ReasonCode.QUOTA_EXCEEDED)


def test_all_subscriptions_are_bounded() -> None:
    bench = BrokerBench(all_subscriptions=2)
    client, other = bench.connected("c"), bench.connected("d")
    client.subscribe("a", "b")
    client.subscribe("a")
    refused = Suback(1, (ReasonCode.QUOTA_EXCEEDED,))
    assert other.say(Subscribe(1, (FilterOptions("a"),))) == [refused]
    client.drop()
    other.subscribe("a")


def test_a_client_of_3_1_1_is_told_of_a_refusal_in_its_words() -> None:
    client = BrokerBench(subscriptions=1).connected("c", V3)
    suback = client.only(Suback, client.say(Subscribe(1, (FilterOptions("a"), FilterOptions("b")))))
    assert suback.reasons == (ReasonCode.SUCCESS, ReasonCode.UNSPECIFIED_ERROR)


def members(bench: BrokerBench, *names: str, expiry: int = 0, window: int = 65_535) -> list[Peer]:
    found = [
        bench.connected(name, clean=False, session_expiry_interval=expiry, receive_maximum=window) for name in names
    ]
    for one in found:
        one.subscribe("$share/g/t/#", qos=1)
    return found


def test_the_members_of_a_share_take_turns() -> None:
    bench = BrokerBench()
    first, second = members(bench, "1", "2")
    other = bench.connected("3")
    other.subscribe("$share/other/t/#")
    publisher = bench.connected("a")
    for number in range(6):
        publisher.publish("t/1", b"%d" % number)
    halves = payloads(first.hear()), payloads(second.hear())
    assert sorted(halves[0] + halves[1]) == [b"%d" % number for number in range(6)]
    assert len(halves[0]) == len(halves[1])
    assert len(payloads(other.hear())) == 6


def test_a_share_brings_no_retained_messages() -> None:
    bench = BrokerBench()
    bench.connected("a").publish("t/1", retain=True)
    assert bench.connected("c").subscribe("$share/g/t/#") == []


def test_a_member_that_is_away_or_full_is_passed_over() -> None:
    bench = BrokerBench()
    away, full, free = members(bench, "1", "2", "3", expiry=60, window=3)
    away.drop()
    full.saturated = True
    publisher = bench.connected("a")
    for _ in range(3):
        publisher.publish("t/1", qos=1)
    assert len(payloads(free.hear())) == 3
    for _ in range(2):
        publisher.publish("t/1", qos=1)
    assert free.hear() == [], "its window is full"
    assert len(bench.broker.sessions["2"].waiting) + len(bench.broker.sessions["3"].waiting) == 2
    assert not bench.broker.sessions["1"].waiting


def test_what_a_member_had_goes_to_another_when_its_session_ends() -> None:
    bench = BrokerBench()
    first, second = members(bench, "1", "2", expiry=60)
    second.drop()
    publisher = bench.connected("a")
    for number in range(3):
        publisher.publish("t/1", b"%d" % number, qos=1)
    first.ack(PUBACK, 1)
    first.drop()
    second = bench.connected("2", clean=False, session_expiry_interval=600)
    assert second.hear() == []
    bench.pass_seconds(60)
    said = second.hear()
    assert payloads(said) == [b"1", b"2"]
    assert not any(one.dup for one in said if isinstance(one, Publish))


def test_nobody_is_left_in_a_share() -> None:
    bench = BrokerBench()
    (only,) = members(bench, "1", expiry=60)
    bench.connected("a").publish("t/1", qos=1)
    only.drop()
    bench.pass_seconds(60)
    assert len(bench.broker.subscriptions) == 0
    assert bench.broker.waiting_bytes == 0


def test_a_topic_that_was_looked_up_before_meets_new_filters_and_none_that_have_gone() -> None:
    bench = BrokerBench()
    first, second, talker = bench.connected("first"), bench.connected("second"), bench.connected("talker")
    first.subscribe("a/+")
    for number, added in enumerate((False, True)):
        if added:
            second.subscribe("a/#")
        talker.publish("a/b", b"%d" % number)
    assert payloads(first.hear()) == [b"0", b"1"]
    assert payloads(second.hear()) == [b"1"]
    first.say(Unsubscribe(9, ("a/+",)))
    talker.publish("a/b", b"2")
    assert payloads(first.hear()) == []
    assert payloads(second.hear()) == [b"2"]
