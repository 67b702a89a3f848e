"""Operators end sessions and delete retained messages, and the rules of MQTT hold."""

from __future__ import annotations

from app.core.broker.codes import ReasonCode
from app.core.broker.operators import end_session, remove_retained, retained, state_of
from app.core.broker.packets import Disconnect, Publish, WillMessage
from tests.unit.core.broker.doors import Book, knock
from tests.unit.core.broker.peers import BrokerBench, properties


def test_a_session_is_shown_as_it_is() -> None:
    bench = BrokerBench(Book())
    ann, _ = knock(bench, "ann", b"ann", client_id="a", clean=False, expiry=60, will=WillMessage("ann/gone", b"w"))
    ann.subscribe("#")
    ann.publish("ann/1", qos=1)
    shown = state_of(bench.broker, bench.broker.sessions["a"])
    assert (shown.client_id, shown.owner, shown.own, shown.connected, shown.will) == (
        "a",
        "ann",
        False,
        True,
        "ann/gone",
    )
    assert (shown.subscriptions, shown.in_flight, shown.waiting, shown.received) == (1, 1, 0, 0)
    assert (shown.expiry, shown.kept) == (60, False)
    ann.drop()
    ann_again = state_of(bench.broker, bench.broker.sessions["a"])
    assert not ann_again.connected
    assert ann_again.will is None, "it was published"


def test_the_end_of_a_session_is_told_and_its_will_is_published_once() -> None:
    bench = BrokerBench()
    witness = bench.connected("witness")
    witness.subscribe("#")
    will = WillMessage("gone", b"w")
    one = bench.connected("one", clean=False, session_expiry_interval=60, will=will)
    one.subscribe("t")
    assert end_session(bench.broker, "one")
    assert one.only(Disconnect).reason is ReasonCode.ADMINISTRATIVE_ACTION
    assert [said.payload for said in witness.hear() if isinstance(said, Publish)] == [b"w"]
    assert list(bench.broker.sessions) == ["witness"]
    assert len(bench.broker.subscriptions) == 1
    assert not end_session(bench.broker, "one")


def test_a_session_that_is_away_ends_before_its_will_is_due() -> None:
    bench = BrokerBench()
    witness = bench.connected("witness")
    witness.subscribe("#")
    will = WillMessage("gone", b"w")
    one = bench.connected("one", clean=False, session_expiry_interval=60, will=will)
    one.drop()
    witness.hear()
    assert end_session(bench.broker, "one")
    bench.pass_seconds(120)
    assert witness.hear() == []


def test_retained_messages_are_listed_and_removed_without_a_word() -> None:
    bench = BrokerBench()
    one = bench.connected("one")
    for topic in ("a/1", "a/2", "$x/1", "b"):
        one.publish(topic, retain=True)
    one.publish("short", retain=True, properties=properties(MESSAGE_EXPIRY_INTERVAL=5))
    one.subscribe("a/1")
    bench.pass_seconds(10)
    assert [said.topic for said in retained(bench.broker, "a/+")] == ["a/1", "a/2"]
    assert sorted(said.topic for said in retained(bench.broker, None)) == ["$x/1", "a/1", "a/2", "b"]
    assert remove_retained(bench.broker, "a/1")
    assert one.hear() == []
    assert not remove_retained(bench.broker, "a/1")
    assert [said.topic for said in retained(bench.broker, "a/+")] == ["a/2"]
