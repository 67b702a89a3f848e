"""A broker judges who is away by the rules of now: whether their will is published, and what is kept for them."""

from __future__ import annotations

import pytest

from app.core.broker.packets import WillMessage
from tests.unit.core.broker.doors import Book, Rights, knock
from tests.unit.core.broker.kept import KeptBench
from tests.unit.core.broker.peers import Peer, payloads, properties


def came(bench: KeptBench, name: str, client_id: str, will: WillMessage | None = None) -> Peer:
    """A client of this name whose session outlives its connection."""
    return knock(bench, name, name.encode(), client_id=client_id, will=will, clean=False, expiry=3600)[0]


@pytest.mark.parametrize("delay", [0, 30])
def test_a_will_is_not_published_after_a_restart_if_its_client_may_not_say_it_any_more(delay: int) -> None:
    book = Book()
    bench = KeptBench(book)
    said = properties(WILL_DELAY_INTERVAL=delay)
    for name in ("ann", "bob"):
        came(bench, name, name, WillMessage(f"{name}/w", b"gone", 1, properties=said))
        watcher = came(bench, name, f"watcher of {name}")
        watcher.subscribe("#")
    book.known["ann"].says = False
    bench.kill()
    bench.pass_seconds(delay)
    assert payloads(came(bench, "ann", "watcher of ann").hear()) == []
    assert payloads(came(bench, "bob", "watcher of bob").hear()) == [b"gone"]
    assert bench.counters["broker.denied.publish"] == 1


@pytest.mark.parametrize("was_there", [True, False])
def test_nothing_is_kept_after_a_restart_for_who_may_not_have_it_any_more(*, was_there: bool) -> None:
    book = Book()
    bench = KeptBench(book)
    peer = came(bench, "ann", "away")
    peer.subscribe("ann/x")
    if not was_there:
        peer.drop()
    bench.kill()
    came(bench, "ann", "talker").publish("ann/x", b"1", qos=1)
    book.known["ann"].receives = False
    came(bench, "ann", "talker").publish("ann/x", b"2", qos=1)
    book.known["ann"].receives = True
    assert payloads(came(bench, "ann", "away").hear()) == [b"1"]


def test_the_key_of_before_keeps_nothing_from_its_owner() -> None:
    """It ends while its client is away, and another one takes its place."""
    book = Book()
    bench = KeptBench(book)
    peer = came(bench, "ann", "away")
    peer.subscribe("ann/x")
    ended, book.away["ann"] = book.known.pop("ann"), Rights("ann")
    ended.receives = False
    peer.drop()
    came(bench, "ann", "talker").publish("ann/x", b"1", qos=1)
    assert payloads(came(bench, "ann", "away").hear()) == [b"1"]


def test_a_share_passes_over_who_may_not_have_the_topic_after_a_restart_too() -> None:
    bench = KeptBench(Book())
    for name in ("bob", "ann"):
        came(bench, name, name).subscribe("$share/g/#")
    bench.kill()
    talker = came(bench, "ann", "talker")
    for number in range(4):
        talker.publish("ann/x", b"%d" % number, qos=1)
    assert payloads(came(bench, "bob", "bob").hear()) == []
    assert payloads(came(bench, "ann", "ann").hear()) == [b"0", b"1", b"2", b"3"]


def test_wills_and_ends_of_sessions_wait_until_somebody_knows_the_rules() -> None:
    book = Book()
    bench = KeptBench(book)
    came(bench, "ann", "watcher").subscribe("#")
    knock(bench, "ann", b"ann", client_id="short", will=WillMessage("ann/w", b"gone", 1))
    book.knows = False
    bench.kill()
    bench.pass_seconds(1)
    bench.kill()
    assert "short" in bench.broker.sessions
    book.knows = True
    bench.broker.recheck()
    assert "short" not in bench.broker.sessions
    assert payloads(came(bench, "ann", "watcher").hear()) == [b"gone"]


def test_a_delayed_will_is_judged_when_it_is_due() -> None:
    book = Book()
    bench = KeptBench(book)
    watcher = came(bench, "ann", "watcher")
    watcher.subscribe("#")
    will = WillMessage("ann/w", b"gone", 1, properties=properties(WILL_DELAY_INTERVAL=30))
    came(bench, "ann", "dock", will).drop()
    book.known["ann"].says = False
    bench.pass_seconds(30)
    assert watcher.hear() == []


def test_a_message_outlives_its_expiry_by_no_step_of_the_clock() -> None:
    """An edge box without a battery comes up with a clock of years ago."""
    bench = KeptBench()
    away = bench.connected("away", clean=False, session_expiry_interval=3600)
    away.subscribe("t")
    away.drop()
    talker = bench.connected("talker")
    for retain in (False, True):
        talker.publish("t", b"land", qos=1, retain=retain, properties=properties(MESSAGE_EXPIRY_INTERVAL=60))
    bench.clock.ahead -= 86_400
    bench.kill()
    bench.pass_seconds(59)
    assert payloads(bench.connected("new").subscribe("t")) == [b"land"]
    bench.pass_seconds(2)
    assert payloads(bench.connected("new").subscribe("t")) == []
    back = bench.connected("away", clean=False, session_expiry_interval=3600)
    assert (back.connack.session_present, back.hear()) == (True, [])
