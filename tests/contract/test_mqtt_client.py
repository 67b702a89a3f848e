"""The promises of every MqttClient: in process, over a real Mosquitto, and over the broker of a node."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from app.core.errors import BrokerUnavailableError, InvalidInputError, PublishUnconfirmedError
from app.core.messages import Publication, Receipt
from app.mqtt.base import InboundDelivery, Subscription, Will
from app.mqtt.inbox import Arrival
from app.mqtt.inbox import Inbox as ProductInbox
from app.runtime.system import SystemClock
from app.store.sessions import SessionStore
from tests.broker import RunningBroker, running_broker
from tests.contract.mqtt_bench import IDLE, Bench, Inbox
from tests.contract.session_places import FolderPlace, RedisPlace
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import PATIENCE


@pytest.fixture(
    params=[
        *("loopback", "simulated", "paho-v5", "paho-v3.1.1"),
        *("own-v5", "own-v3.1.1", "own-in-a-folder-v5", "own-in-a-folder-v3.1.1", "own-in-redis-v5"),
    ]
)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    def find_broker() -> MosquittoProcess | RunningBroker:
        if own is not None:
            return own
        broker: MosquittoProcess = request.getfixturevalue("mosquitto")
        return broker

    own: RunningBroker | None = None
    async with AsyncExitStack() as stack:
        if request.param.startswith("own"):
            kept: SessionStore | None = None
            if "folder" in request.param:
                kept = FolderPlace(tmp_path).open()
            elif "redis" in request.param:
                server: RedisProcess = request.getfixturevalue("redis_server")
                server.forget_everything()
                kept = RedisPlace(server.node_url).open()
            own = await stack.enter_async_context(running_broker(store=kept))
        bench = Bench(request.param, find_broker)
        yield bench
        for client in bench.clients:
            await client.stop()


async def test_a_subscriber_gets_what_is_published(bench: Bench) -> None:
    inbox = Inbox()
    client = await bench.started(inbox, bench.topic("+/response"))
    await client.publish(Publication(bench.topic("drone/response"), b"up"))
    await client.publish(Publication(bench.topic("drone/command"), b"not subscribed"))
    await client.publish(Publication(bench.topic("other/response"), b"down", qos=0))
    messages = await inbox.wait_for(2)
    assert [(message.topic, message.payload, message.qos, message.retain) for message in messages] == [
        (bench.topic("drone/response"), b"up", 1, False),
        (bench.topic("other/response"), b"down", 0, False),
    ]
    assert client.connected
    assert bench.counters["connected"] == 1


async def test_a_subscription_of_qos_0_gets_messages_with_qos_0(bench: Bench) -> None:
    inbox = Inbox()
    client = bench.client()
    await client.start([Subscription(bench.topic("a"), qos=0)], inbox)
    await client.wait_connected()
    await client.publish(Publication(bench.topic("a"), b"1"))
    assert (await inbox.wait_for(1))[0].qos == 0


async def test_a_shared_subscription_splits_messages_between_its_members(bench: Bench) -> None:
    inboxes = Inbox(), Inbox()
    shared = f"$share/group/{bench.topic('#')}"
    publisher = await bench.started(inboxes[0], shared)
    await bench.started(inboxes[1], shared)
    everything = Inbox()
    await bench.started(everything, bench.topic("#"))
    for number in range(100):
        await publisher.publish(Publication(bench.topic(f"device-{number}"), b"%d" % number))
    await everything.wait_for(100)
    await asyncio.gather(inboxes[0].wait_for(50), inboxes[1].wait_for(50))
    assert sorted(inboxes[0].payloads + inboxes[1].payloads) == sorted(b"%d" % number for number in range(100))


async def test_the_future_of_a_publish_is_done_at_puback_and_not_before(bench: Bench) -> None:
    client = await bench.started(Inbox())
    future = client.publish(Publication(bench.topic("nobody-listens"), b"1"))
    assert not future.done()
    await asyncio.wait_for(future, PATIENCE)


async def test_the_receipt_tells_whether_anybody_is_subscribed(bench: Bench) -> None:
    sender = await bench.started(Inbox())
    nobody = await sender.publish(Publication(bench.topic("nobody"), b"x"))
    # 3.1.1 has no reason codes: there nothing is told.
    assert nobody is (Receipt.ACKNOWLEDGED if bench.version == "3.1.1" else Receipt.UNMATCHED)
    await bench.started(Inbox(), bench.topic("+/command"))
    assert await sender.publish(Publication(bench.topic("1/command"), b"x")) is Receipt.ACKNOWLEDGED
    assert await sender.publish(Publication(bench.topic("1/command"), b"x", qos=0)) is Receipt.UNACKNOWLEDGED


async def test_each_connection_has_a_number(bench: Bench) -> None:
    client = await bench.started(Inbox())
    assert client.connections == 1
    await client.restart_as(secrets.token_hex(8), [])
    await client.wait_connected()
    assert client.connections == 2


async def test_what_was_not_acknowledged_comes_again_after_a_reconnect(bench: Bench) -> None:
    careless = Inbox(acknowledge=False)
    first = await bench.started(careless, bench.topic("#"), client_id=bench.prefix)
    await first.publish(Publication(bench.topic("a"), b"kept"))
    await first.publish(Publication(bench.topic("a"), b"lost sight of"))
    assert [message.redelivered for message in await careless.wait_for(2)] == [False, False]
    careless.deliveries[0].acknowledge()
    await first.stop(keep_session=True)
    assert not first.connected

    inbox = Inbox()
    await bench.started(inbox, bench.topic("#"), client_id=bench.prefix)
    assert [(message.payload, message.redelivered) for message in await inbox.wait_for(1)] == [(b"lost sight of", True)]


async def test_a_connection_that_is_cut_leaves_its_will_and_its_session_and_comes_back(bench: Bench) -> None:
    others, careless = Inbox(), Inbox(acknowledge=False)
    other = await bench.started(others, bench.topic("will"))
    client = bench.client(bench.prefix)
    will = Will(bench.topic("will"), b"lost", b"back")
    await client.start([Subscription(bench.topic("a"))], careless, will)
    await client.wait_connected()
    await other.publish(Publication(bench.topic("a"), b"kept"))
    await careless.wait_for(1)

    client.cut()
    assert not client.connected
    client.cut()
    assert [one.payload for one in await others.wait_for(3)] == [b"back", b"lost", b"back"]
    assert [one.payload for one in await careless.wait_for(2)] == [b"kept", b"kept"]


async def test_what_was_published_before_a_connection_is_cut_has_left(bench: Bench) -> None:
    others = Inbox()
    await bench.started(others, bench.topic("+"))
    client = await bench.started(Inbox())
    puback = client.publish(Publication(bench.topic("command"), b"1"))
    _ = client.publish(Publication(bench.topic("notice"), b"2", qos=0))
    client.cut()
    assert [one.payload for one in await others.wait_for(2)] == [b"1", b"2"]
    with pytest.raises(PublishUnconfirmedError):
        await puback


async def test_who_is_away_is_told_afterwards_whose_connection_was_lost_and_who_is_back(bench: Bench) -> None:
    present = Inbox()
    await bench.started(present, bench.topic("will"))
    client = bench.client(bench.prefix)
    await client.start([], Inbox(), Will(bench.topic("will"), b"lost", b"back"))
    await present.wait_for(1)
    away = await bench.started(Inbox(), bench.topic("will"), client_id=f"{bench.prefix}-away")
    await away.stop(keep_session=True)

    client.cut()
    await present.wait_for(3)
    again = Inbox()
    await bench.started(again, bench.topic("will"), client_id=f"{bench.prefix}-away")
    assert {one.payload for one in await again.wait_for(2)} == {b"lost", b"back"}


async def test_stop_without_keep_session_makes_the_broker_forget(bench: Bench) -> None:
    careless = Inbox(acknowledge=False)
    first = await bench.started(careless, bench.topic("#"), client_id=bench.prefix)
    await first.publish(Publication(bench.topic("a"), b"forgotten"))
    await careless.wait_for(1)
    await first.stop()
    other = await bench.started(Inbox())
    await other.publish(Publication(bench.topic("a"), b"published while away"))

    inbox = Inbox()
    await bench.started(inbox, bench.topic("#"), client_id=bench.prefix)
    await other.publish(Publication(bench.topic("a"), b"new"))
    assert [message.payload for message in await inbox.wait_for(1)] == [b"new"]


async def test_a_kept_session_collects_messages(bench: Bench) -> None:
    first = await bench.started(Inbox(), bench.topic("#"), client_id=bench.prefix)
    await first.stop(keep_session=True)
    other = await bench.started(Inbox())
    await other.publish(Publication(bench.topic("a"), b"published while away"))
    inbox = Inbox()
    await bench.started(inbox, bench.topic("#"), client_id=bench.prefix)
    assert [message.payload for message in await inbox.wait_for(1)] == [b"published while away"]


async def test_a_session_that_was_left_is_emptied_and_ended(bench: Bench) -> None:
    first = await bench.started(Inbox(), bench.topic("#"), client_id=bench.prefix)
    await first.stop(keep_session=True)
    other = await bench.started(Inbox())
    await other.publish(Publication(bench.topic("a"), b"parked"))
    drained = Inbox()
    assert await bench.drain(bench.prefix).drain([bench.topic("#")], drained, IDLE) == 1
    assert drained.payloads == [b"parked"]

    await other.publish(Publication(bench.topic("a"), b"for nobody"))
    inbox = Inbox()
    await bench.started(inbox, bench.topic("#"), client_id=bench.prefix)
    await other.publish(Publication(bench.topic("a"), b"new"))
    assert [message.payload for message in await inbox.wait_for(1)] == [b"new"]


async def test_a_session_of_which_something_is_left_stays_and_is_emptied_later(bench: Bench) -> None:
    """Without PUBACK nothing would ever end the emptying of it, and nobody else could begin."""
    first = await bench.started(Inbox(), bench.topic("#"), client_id=bench.prefix)
    await first.stop(keep_session=True)
    other = await bench.started(Inbox())
    for payload in (b"no room", b"parked"):
        await other.publish(Publication(bench.topic("a"), payload))
    left = Counter[str]()

    def take(arrival: Arrival) -> None:
        payload = arrival.message.payload.decode()
        if left[payload] or payload == "parked":
            arrival.settle()
        else:
            arrival.leave()
        left[payload] += 1

    inbox = ProductInbox(take, SystemClock())
    with pytest.raises(BrokerUnavailableError, match="left to the broker"):
        await inbox.empty(bench.drain(bench.prefix), [bench.topic("#")], IDLE)
    assert await inbox.empty(bench.drain(bench.prefix), [bench.topic("#")], IDLE) >= 1
    assert left["no room"] == 2
    assert left["parked"] >= 1


async def test_an_exception_in_the_handler_does_not_end_the_link(bench: Bench) -> None:
    class Fragile(Inbox):
        def __call__(self, delivery: InboundDelivery) -> None:
            if delivery.message.payload == b"poison":
                raise ZeroDivisionError
            super().__call__(delivery)

    inbox = Fragile()
    client = await bench.started(inbox, bench.topic("#"))
    for payload in (b"poison", b"good", b"poison", b"better"):
        await client.publish(Publication(bench.topic("a"), payload))
    assert [message.payload for message in await inbox.wait_for(2)] == [b"good", b"better"]
    assert bench.counters["handler_error"] == 2
    assert bench.counters["connected"] == 1


async def test_publish_raises_when_not_connected(bench: Bench) -> None:
    never_started = bench.client()
    with pytest.raises(BrokerUnavailableError, match="not connected"):
        await never_started.publish(Publication("a", b""))
    client = await bench.started(Inbox())
    await client.stop()
    with pytest.raises(BrokerUnavailableError, match="not connected"):
        await client.publish(Publication("a", b""))
    with pytest.raises(BrokerUnavailableError, match="not connected"):
        await client.unsubscribe()


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "nul\0", "lone \ud800"])
async def test_publish_refuses_what_is_no_topic_name(bench: Bench, topic: str) -> None:
    client = await bench.started(Inbox())
    with pytest.raises(InvalidInputError):
        await client.publish(Publication(topic, b""))
    await client.publish(Publication(bench.topic("still-works"), b""))


async def test_qos_2_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidInputError, match="allowed are 0 and 1"):
        await bench.client().start([Subscription("a", qos=2)], Inbox())


async def test_properties_of_mqtt_5_arrive(bench: Bench) -> None:
    inbox = Inbox()
    client = await bench.started(inbox, bench.topic("#"))
    await client.publish(
        Publication(
            bench.topic("a"),
            b"1",
            message_expiry=timedelta(seconds=30),
            response_topic="reply/höre",
            correlation_data=b"\x00\xff" * 100,
        )
    )
    message = (await inbox.wait_for(1))[0]
    if bench.version == "5":
        assert message.response_topic == "reply/höre"
        assert message.correlation_data == b"\x00\xff" * 100
    else:
        assert message.response_topic is None
        assert message.correlation_data is None
    assert message.payload == b"1"


async def test_F63_a_retained_message_is_marked_as_such(bench: Bench) -> None:
    if bench.implementation == "simulated":
        pytest.skip("nothing is retained there")
    await bench.retain(bench.topic("a"), b"old")
    inbox = Inbox()
    client = await bench.started(inbox, bench.topic("#"))
    await inbox.wait_for(1)
    await client.publish(Publication(bench.topic("a"), b"new"))
    messages = await inbox.wait_for(2)
    assert [(message.payload, message.retain) for message in messages] == [(b"old", True), (b"new", False)]
    await bench.retain(bench.topic("a"), b"")


async def test_large_and_empty_payloads_arrive(bench: Bench) -> None:
    inbox = Inbox()
    client = await bench.started(inbox, bench.topic("#"))
    payloads = [b"", b"x" * 127, b"x" * 128, b"x" * 20_000, b"x" * 131_072]
    for payload in payloads:
        await client.publish(Publication(bench.topic("a"), payload))
    assert [message.payload for message in await inbox.wait_for(len(payloads))] == payloads


async def test_unsubscribe_stops_new_messages(bench: Bench) -> None:
    inbox = Inbox()
    client = await bench.started(inbox, bench.topic("#"))
    await client.publish(Publication(bench.topic("a"), b"before"))
    await asyncio.wait_for(client.unsubscribe(), PATIENCE)
    await client.publish(Publication(bench.topic("a"), b"after"))
    witness = Inbox()
    other = await bench.started(witness, bench.topic("#"))
    await other.publish(Publication(bench.topic("a"), b"last"))
    await witness.wait_for(1)
    assert inbox.payloads == [b"before"]


async def test_acknowledging_twice_or_after_stop_is_harmless(bench: Bench) -> None:
    inbox = Inbox(acknowledge=False)
    client = await bench.started(inbox, bench.topic("#"))
    await client.publish(Publication(bench.topic("a"), b"1"))
    await client.publish(Publication(bench.topic("a"), b"2"))
    await inbox.wait_for(2)
    inbox.deliveries[0].acknowledge()
    inbox.deliveries[0].acknowledge()
    await client.stop()
    inbox.deliveries[1].acknowledge()


async def test_start_can_be_stopped_before_it_connected(bench: Bench) -> None:
    client = bench.client()
    await client.start([Subscription(bench.topic("#"))], Inbox())
    await client.stop()
    assert not client.connected
    await client.stop()


async def test_a_cancelled_wait_does_not_disturb_the_client(bench: Bench) -> None:
    client = bench.client()
    waiter = asyncio.create_task(client.wait_connected())
    await asyncio.sleep(0)
    waiter.cancel()
    await client.start([], Inbox())
    await asyncio.wait_for(client.wait_connected(), PATIENCE)
    future = client.publish(Publication(bench.topic("a"), b"1"))
    future.cancel()
    await client.publish(Publication(bench.topic("a"), b"2"))


async def test_a_client_that_rests_is_given_nothing_until_it_reads_on(bench: Bench) -> None:
    inbox = Inbox()
    topic = bench.topic("restless")
    client = await bench.started(inbox, topic)
    other = await bench.started(Inbox())
    client.rest(on=True)
    for number in range(3):
        await other.publish(Publication(topic, b"%d" % number))
    heard = Inbox()
    witness = await bench.started(heard, topic)
    await other.publish(Publication(topic, b"3"))
    await heard.wait_for(1)  # by now it would have come
    assert witness.connected
    assert inbox.payloads == []
    client.rest(on=False)
    client.rest(on=False)
    await inbox.wait_for(4)
    assert inbox.payloads == [b"0", b"1", b"2", b"3"]
