"""Cases that only the in-process broker can play: it cuts connections on request, and delivers what no client of ours
sends.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from app.core.errors import PublishUnconfirmedError
from app.core.messages import Publication, ReceivedMessage
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient


async def started(
    broker: LoopbackBroker, client_id: str, into: list[InboundDelivery], topic_filter: str
) -> LoopbackMqttClient:
    client = LoopbackMqttClient(broker, client_id, Counter())
    await client.start([Subscription(topic_filter)], into.append)
    await client.wait_connected()
    return client


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_cut_client_gets_the_unacknowledged_again_in_order_before_the_new() -> None:
    broker, got = LoopbackBroker(), list[InboundDelivery]()
    client = await started(broker, "a", got, "t")
    for payload in (b"1", b"2", b"3"):
        broker.publish(ReceivedMessage("t", payload))
    await settle()
    got[1].acknowledge()
    broker.disconnect("a")
    assert not client.connected
    broker.publish(ReceivedMessage("t", b"4"))
    await settle()
    assert len(got) == 3
    broker.restore("a")
    await settle()
    assert [delivery.message.payload for delivery in got[3:]] == [b"1", b"3", b"4"]


async def test_a_publish_is_unconfirmed_when_the_connection_is_cut_before_puback() -> None:
    broker = LoopbackBroker()
    client = await started(broker, "a", [], "t")
    future = client.publish(Publication("x", b""))
    broker.disconnect("a")
    with pytest.raises(PublishUnconfirmedError):
        await future


async def test_a_group_skips_members_that_are_away() -> None:
    broker, first, second = LoopbackBroker(), list[InboundDelivery](), list[InboundDelivery]()
    await started(broker, "a", first, "$share/g/t")
    await started(broker, "b", second, "$share/g/t")
    broker.disconnect("a")
    for _ in range(4):
        broker.publish(ReceivedMessage("t", b""))
    await settle()
    assert (len(first), len(second)) == (0, 4)


async def test_a_second_client_takes_the_session_over() -> None:
    broker, old, new = LoopbackBroker(), list[InboundDelivery](), list[InboundDelivery]()
    first = await started(broker, "a", old, "t")
    second = await started(broker, "a", new, "t")
    broker.publish(ReceivedMessage("t", b"", retain=True))
    await settle()
    assert (first.connected, second.connected) == (False, True)
    assert (len(old), [delivery.message.retain for delivery in new]) == (0, [True])
