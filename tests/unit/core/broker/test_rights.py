"""A broker asks who a client is at CONNECT, and what it may do at each message and subscription."""

from __future__ import annotations

import pytest

from app.core.broker.codes import ProtocolVersion, ReasonCode
from app.core.broker.packets import (
    Disconnect,
    FilterOptions,
    Publish,
    PublishAck,
    Suback,
    Subscribe,
    WillMessage,
)
from tests.unit.core.broker.doors import Book, knock
from tests.unit.core.broker.peers import BrokerBench

V3, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
BOTH = pytest.mark.parametrize("version", [V3, V5])


@BOTH
def test_who_shows_nothing_or_something_wrong_is_told_so_and_is_gone(version: ProtocolVersion) -> None:
    bench = BrokerBench(Book())
    for name, password, reason in (
        (None, None, ReasonCode.NOT_AUTHORIZED),
        ("ann", None, ReasonCode.NOT_AUTHORIZED),
        ("ann", b"wrong", ReasonCode.BAD_USER_NAME_OR_PASSWORD),
    ):
        peer, said = knock(bench, name, password, version)
        assert (said, peer.closed) == (reason, True)
    assert knock(bench, "ann", b"ann", version)[1] is ReasonCode.SUCCESS
    assert bench.counters["broker.refused.not_authorized"] == 2
    assert bench.counters["broker.refused.bad_user_name_or_password"] == 1


def test_nobody_gets_the_session_of_somebody_else() -> None:
    bench = BrokerBench(Book())
    ann, _ = knock(bench, "ann", b"ann", client_id="c")
    bob, said = knock(bench, "bob", b"bob", client_id="c")
    assert (said, bob.closed, ann.closed) == (ReasonCode.NOT_AUTHORIZED, True, False)
    assert knock(bench, "ann", b"ann", client_id="c")[1] is ReasonCode.SUCCESS
    assert ann.closed, "she may take over herself"


@BOTH
def test_a_message_that_its_client_may_not_publish_reaches_nobody(version: ProtocolVersion) -> None:
    bench = BrokerBench(Book())
    bob, _ = knock(bench, "bob", b"bob")
    bob.subscribe("#")
    ann, _ = knock(bench, "ann", b"ann", version)
    refused = ReasonCode.NOT_AUTHORIZED if version is V5 else ReasonCode.SUCCESS
    assert ann.publish("bob/x") == []
    assert ann.only(PublishAck, ann.publish("bob/x", qos=1)).reason is refused
    assert ann.only(PublishAck, ann.publish("bob/x", qos=2)).reason is refused
    assert bob.hear() == []
    assert bench.counters["broker.denied.publish"] == 3
    assert bench.broker.retained.matching("#", 0) == []


@BOTH
def test_a_filter_that_its_client_may_not_have_is_refused(version: ProtocolVersion) -> None:
    bench = BrokerBench(Book())
    ann, _ = knock(bench, "ann", b"ann", version)
    filters = tuple(FilterOptions(one, 1) for one in ("bob/x", "ann/x", "$share/g/bob/x"))
    suback = ann.only(Suback, ann.say(Subscribe(1, filters)))
    refused = ReasonCode.NOT_AUTHORIZED if version is V5 else ReasonCode.UNSPECIFIED_ERROR
    assert suback.reasons == (refused, ReasonCode(1), refused)
    assert bench.counters["broker.denied.subscribe"] == 2


def test_who_may_be_in_no_share_may_have_the_filter_all_the_same() -> None:
    """A member of a share takes messages from the others, also those that it may not have."""
    book = Book()
    bench = BrokerBench(book)
    ann, _ = knock(bench, "ann", b"ann")
    book.known["ann"].alone = True
    suback = ann.only(Suback, ann.say(Subscribe(1, (FilterOptions("$share/g/#", 1), FilterOptions("#", 1)))))
    assert suback.reasons == (ReasonCode.NOT_AUTHORIZED, ReasonCode(1))
    assert bench.counters["broker.denied.subscribe"] == 1


@BOTH
def test_a_member_of_a_share_takes_no_message_that_it_may_not_have(version: ProtocolVersion) -> None:
    bench = BrokerBench(Book())
    ann, _ = knock(bench, "ann", b"ann", version)
    bob, _ = knock(bench, "bob", b"bob", version)
    for one in (bob, ann):
        one.subscribe("$share/g/#")
    sent = [b"%d" % number for number in range(6)]
    assert [one.payload for text in sent for one in ann.publish("ann/t", text) if isinstance(one, Publish)] == sent
    assert bob.hear() == []
    assert bob.only(Publish, bob.publish("bob/t", b"own")).payload == b"own"
    assert ann.hear() == []


def test_what_a_share_had_sent_to_a_member_that_ends_goes_to_one_that_may_have_it() -> None:
    book = Book()
    bench = BrokerBench(book)
    first, _ = knock(bench, "ann", b"ann", client_id="first")
    first.subscribe("$share/g/#", qos=1)
    second, _ = knock(bench, "ann", b"ann", client_id="second")
    first.publish("ann/t", qos=1)
    knock(bench, "bob", b"bob", client_id="bob")[0].subscribe("$share/g/#", qos=1)
    second.subscribe("$share/g/#", qos=1)
    first.drop()
    assert second.only(Publish).topic == "ann/t"


def test_messages_are_judged_one_by_one_also_retained_ones_and_those_for_who_is_away() -> None:
    book = Book()
    bench = BrokerBench(book)
    bob, _ = knock(bench, "bob", b"bob")
    bob.publish("bob/kept", retain=True)
    ann, _ = knock(bench, "ann", b"ann", V3, "a", clean=False)
    assert ann.subscribe("#") == []
    bob.publish("bob/live", qos=1)
    assert ann.hear() == []
    assert [one.topic for one in ann.publish("ann/own", qos=1) if isinstance(one, Publish)] == ["ann/own"]
    ann.drop()
    bob.publish("bob/away", qos=1)
    again, _ = knock(bench, "ann", b"ann", V3, "a", clean=False)
    assert [one.topic for one in again.hear() if isinstance(one, Publish)] == ["ann/own"], "not acknowledged before"


def test_a_will_that_its_client_may_not_publish_is_refused_with_its_client() -> None:
    bench = BrokerBench(Book())
    assert knock(bench, "ann", b"ann", will=WillMessage("bob/x", b"late"))[1] is ReasonCode.NOT_AUTHORIZED
    assert knock(bench, "ann", b"ann", will=WillMessage("ann/x", b"late"))[1] is ReasonCode.SUCCESS


def test_what_waits_is_judged_again_when_its_client_comes_back() -> None:
    book = Book()
    bench = BrokerBench(book)
    ann, _ = knock(bench, "ann", b"ann", V3, "a", clean=False)
    ann.subscribe("#")
    bob, _ = knock(bench, "ann", b"ann", V5, "b")
    bob.publish("ann/in-flight", qos=1)
    ann.drop()
    bob.publish("ann/waiting", qos=1)
    book.known["ann"].receives = False
    again, _ = knock(bench, "ann", b"ann", V3, "a", clean=False)
    assert again.hear() == []


@BOTH
def test_a_client_who_may_not_be_here_any_more_is_sent_away(version: ProtocolVersion) -> None:
    book = Book()
    bench = BrokerBench(book)
    ann, _ = knock(bench, "ann", b"ann", version)
    bob, _ = knock(bench, "bob", b"bob", version)
    book.known["ann"].counts = False
    bench.broker.recheck()
    assert (ann.closed, bob.closed) == (True, False)
    if version is V5:
        assert ann.only(Disconnect).reason is ReasonCode.NOT_AUTHORIZED
    book.known["bob"].counts = False
    bench.broker.tick()
    assert bob.closed, "whatever made it so, nobody stays for longer than a tick"
