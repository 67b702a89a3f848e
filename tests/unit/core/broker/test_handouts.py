"""Retained messages for whoever subscribes: a client that asks for much waits, and nobody else does."""

from __future__ import annotations

import pytest

from app.core.broker import handouts
from app.core.broker.packets import FilterOptions, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from tests.unit.core.broker.doors import Book, knock
from tests.unit.core.broker.peers import BrokerBench, Peer, payloads

TOPICS = 3_000


def patient(topics: int) -> BrokerBench:
    """A broker that has a retained message of so many topics."""
    bench = BrokerBench()
    publisher = bench.connected("publisher")
    for number in range(topics):
        publisher.publish(f"t/{number}", b"%d" % number, retain=True)
    bench.patient = True
    return bench


def go_on(client: Peer) -> None:
    while client.connection.wait is not None:
        client.connection.resume()


def test_filters_that_bring_nothing_take_turns_with_others() -> None:
    """A packet of 256 KiB has room for 30,000 of these, which kept the broker from everybody else for minutes."""
    bench = patient(TOPICS)
    client, retained = bench.connected("client"), bench.broker.retained
    before = retained.looked
    (suback,) = client.say(Subscribe(1, (FilterOptions("+/+/nothing", 0),) * 50))
    assert isinstance(suback, Suback), "it is answered at once"
    goes = [retained.looked - before]
    while (wait := client.connection.wait) is not None:
        assert wait >= goes[-1] / handouts.A_SECOND
        before = retained.looked
        client.connection.resume()
        goes.append(retained.looked - before)
    assert sum(goes) >= 50 * TOPICS, "each filter was looked for"
    assert max(goes) < handouts.AT_ONCE + 2 * TOPICS
    assert len(goes) > 10


@pytest.mark.parametrize("topics", [TOPICS, handouts.AT_ONCE // handouts.MESSAGE_STEPS - 10])
def test_many_clients_share_the_steps_of_one(topics: int) -> None:
    """All dashboards come back after a restart: each had its thousand messages in the same moment."""
    bench = patient(topics)
    heard, looked = 0, bench.broker.retained.looked
    for number in range(60):
        client = bench.connected(f"client-{number}")
        heard += len(client.say(Subscribe(1, (FilterOptions("#", 0),)))) - 1
        assert client.connection.wait is not None or not number
    assert heard * handouts.MESSAGE_STEPS + bench.broker.retained.looked - looked < 3 * handouts.AT_ONCE
    waiting = [one for one in bench.broker.connections if one.wait is not None]
    assert len(waiting) >= 59
    assert max(one.wait or 0 for one in waiting) >= heard * handouts.MESSAGE_STEPS / handouts.A_SECOND


@pytest.mark.parametrize(
    "packet",
    [
        Subscribe(1, tuple(FilterOptions(f"$share/g/{one % 2_000}") for one in range(20_000))),
        Subscribe(1, tuple(FilterOptions(f"t/{one}", retain_handling=2) for one in range(20_000))),
        Unsubscribe(1, tuple(f"t/{one}" for one in range(20_000))),
    ],
    ids=["shares and refusals", "no retained messages", "UNSUBSCRIBE"],
)
def test_a_packet_of_many_filters_is_paid_for(packet: Subscribe | Unsubscribe) -> None:
    """A quarter of a second goes by with each one, and a client may have sent a hundred of them."""
    bench = patient(0)
    client = bench.connected("client")
    (answer,) = client.say(packet)
    assert isinstance(answer, Suback | Unsuback), "it is answered at once"
    assert client.connection.wait == pytest.approx(20_000 / handouts.A_SECOND)


def test_a_client_that_asks_for_little_waits_for_nobody() -> None:
    bench = patient(TOPICS)
    for number in range(60):
        bench.connected(f"client-{number}").say(Subscribe(1, (FilterOptions("#", 0),)))
    client = bench.connected("client")
    assert payloads(client.say(Subscribe(1, (FilterOptions("t/7/#", 0),)))) == [b"7"]
    assert client.connection.wait is None


def test_messages_that_a_client_may_not_have_take_turns_as_well() -> None:
    """A device may subscribe to `#`, and gets what it may have of it."""
    bench = BrokerBench(Book())
    ann, _ = knock(bench, "ann", b"ann")
    for number in range(TOPICS):
        ann.publish(f"ann/{number}", b"x", retain=True)
    device, _ = knock(bench, "device", b"device")
    device.publish("device/a", b"mine", retain=True)
    bench.patient = True
    heard = payloads(device.say(Subscribe(1, (FilterOptions("#", 0),) * 3)))
    assert device.connection.wait is not None
    go_on(device)
    assert heard + payloads(device.hear()) == [b"mine"] * 3


def test_the_successor_of_a_message_is_the_last_that_a_client_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handouts, "AT_ONCE", handouts.MESSAGE_STEPS)
    monkeypatch.setattr(handouts, "AT_LEAST", handouts.MESSAGE_STEPS)
    bench = patient(4)
    client, publisher = bench.connected("client"), bench.connected("other")
    heard = client.say(Subscribe(1, (FilterOptions("t/+", 0),)))
    assert client.connection.wait is not None
    publisher.publish("t/3", b"new", retain=True)
    publisher.publish("t/2", b"", retain=True)
    heard += client.hear()
    go_on(client)
    assert payloads([*heard, *client.hear()]) == [b"0", b"new", b"", b"1"]


def test_whoever_has_gone_is_given_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handouts, "AT_ONCE", handouts.MESSAGE_STEPS)
    monkeypatch.setattr(handouts, "AT_LEAST", handouts.MESSAGE_STEPS)
    bench = patient(4)
    client = bench.connected("client")
    client.say(Subscribe(1, (FilterOptions("t/+", 0),)))
    assert client.connection.wait is not None
    client.drop()
    assert client.connection.wait is None
    client.connection.resume()
    assert bench.counters["broker.sent"] == 1


def test_what_is_asked_for_meanwhile_comes_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller who hands packets over without waiting loses nothing."""
    monkeypatch.setattr(handouts, "AT_ONCE", handouts.MESSAGE_STEPS)
    monkeypatch.setattr(handouts, "AT_LEAST", handouts.MESSAGE_STEPS)
    bench = patient(3)
    client = bench.connected("client")
    heard = client.say(Subscribe(1, (FilterOptions("t/+", 0),)))
    heard += client.say(Subscribe(2, (FilterOptions("t/0", 0),)))
    go_on(client)
    heard += client.hear()
    assert [one.payload for one in heard if isinstance(one, Publish)] == [b"0", b"1", b"2", b"0"]
