"""The same client id from two machines in a loop: each takes over, later each time, and the figures name it."""

from __future__ import annotations

import pytest

from app.core.broker import takeovers
from app.core.broker.codes import ProtocolVersion, ReasonCode
from app.core.broker.figures import BrokerFigures
from app.core.broker.packets import Connack, Connect, Disconnect, Publish
from app.core.broker.takeovers import TakeOvers
from tests.unit.core.broker.peers import V3, V5, BrokerBench, HandClock, Peer


def again(bench: BrokerBench, version: ProtocolVersion = V5, client_id: str = "twin") -> tuple[Peer, float]:
    """A connection that has taken over, and how long it has waited for that."""
    peer = bench.peer(version)
    said = peer.say(Connect(version, client_id))
    waited = peer.connection.wait or 0.0
    if waited:
        assert said == [], "it is not answered yet"
        bench.pass_seconds(waited)
        peer.connection.resume()
        said = peer.hear()
    assert peer.only(Connack, said[:1]).reason is ReasonCode.SUCCESS
    return peer, waited


@pytest.mark.parametrize("version", [V3, V5], ids=["3.1.1", "5"])
def test_each_take_over_of_a_loop_waits_longer_than_the_one_before(version: ProtocolVersion) -> None:
    bench = BrokerBench()
    bench.patient = True
    waits, peers = [], []
    for _ in range(10):
        peer, waited = again(bench, version)
        waits.append(waited)
        peers.append(peer)
    assert waits == [0, 0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]
    assert [one.closed for one in peers] == [True] * 9 + [False], "each one has taken over"
    assert (bench.counters["broker.taken_over"], bench.counters["broker.backed_off"]) == (9, 8)
    assert not any(bench.counters[f"broker.refused.{one}"] for one in ("no_connect", "server_busy"))


def test_the_other_one_is_served_meanwhile() -> None:
    bench = BrokerBench()
    bench.patient = True
    first = [again(bench)[0] for _ in range(3)][-1]
    first.subscribe("t")
    second = bench.peer()
    assert second.say(Connect(V5, "twin")) == []
    assert [type(one) for one in first.publish("t", b"still here")] == [Publish]
    second.connection.resume()
    assert first.only(Disconnect).reason is ReasonCode.SESSION_TAKEN_OVER
    assert second.only(Connack).reason is ReasonCode.SUCCESS


def test_whoever_has_gone_meanwhile_takes_nothing_over() -> None:
    bench = BrokerBench()
    bench.patient = True
    first = [again(bench)[0] for _ in range(3)][-1]
    second = bench.peer()
    second.say(Connect(V5, "twin"))
    second.drop()
    second.connection.resume()
    assert not first.closed
    assert bench.counters["broker.taken_over"] == 2


def test_others_and_those_who_come_back_later_wait_for_nothing() -> None:
    bench = BrokerBench()
    bench.patient = True
    peer = [again(bench)[0] for _ in range(4)][-1]
    again(bench, client_id="other")
    assert again(bench, client_id="other")[1] == 0
    peer.drop()
    assert again(bench)[1] == 0, "nobody was there"
    bench.pass_seconds(takeovers.QUIET_SECONDS + 1)
    assert again(bench)[1] == 0


def test_the_figures_name_who_is_taken_over_in_a_loop() -> None:
    bench = BrokerBench()
    figures = BrokerFigures(bench.broker, "homing 1.2.3")
    reader = bench.connected("reader")
    reader.subscribe("$SYS/broker/clients/contested")

    def told() -> list[bytes]:
        bench.clock.now += 10
        figures.tick()
        return [one.payload for one in reader.hear() if isinstance(one, Publish)]

    assert told() == []
    for _ in range(takeovers.LOOP):
        again(bench)
    assert told() == [], "a client on a bad line does as much"
    again(bench)
    assert told() == [b"'twin'"]
    assert told() == []
    bench.clock.now += takeovers.QUIET_SECONDS
    assert told() == [b""]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeovers, "MOST_CONTESTS", 2)
    known = TakeOvers(HandClock().monotonic)
    for name in "abc":
        known.note(name)
    assert [known.wait(name) for name in "abc"] == [0, 0.1, 0.1]


def test_a_take_over_long_ago_counts_for_nothing() -> None:
    clock = HandClock()
    known = TakeOvers(clock.monotonic)
    known.note("a")
    known.note("a")
    clock.now += takeovers.QUIET_SECONDS
    assert known.wait("a") == 0.2
    clock.now += 0.5
    assert known.wait("a") == 0
    known.note("a")
    assert known.wait("a") == takeovers.FIRST_WAIT
