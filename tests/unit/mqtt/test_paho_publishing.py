"""PahoMqttClient and publications: PUBACK, the window, expiry, cancelling, and system calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.errors import BrokerUnavailableError, PacketTooLargeError, PublishUnconfirmedError, UnpublishableError
from app.core.messages import Publication, Receipt
from app.mqtt import packets
from app.mqtt.base import InboundDelivery
from app.mqtt.paho_link import PahoLink
from tests.unit.mqtt.fake_broker import CONNACK_V5, FakeBroker
from tests.unit.mqtt.test_paho import connected, options_for


@pytest.mark.parametrize(("code", "refused"), [(0x00, False), (0x10, False), (0x87, True), (0x97, True)])
async def test_the_reason_code_of_puback_decides(code: int, *, refused: bool) -> None:
    async with FakeBroker(puback_code=code) as broker, connected(options_for(broker)) as (client, counters):
        future = client.publish(Publication("a", b""))
        if refused:
            with pytest.raises(BrokerUnavailableError, match=f"0x{code:02X}"):
                await future
        else:
            assert await future is (Receipt.UNMATCHED if code == 0x10 else Receipt.ACKNOWLEDGED)
        assert counters["publish_refused"] == int(refused)


async def test_F58_the_window_is_the_smaller_of_ours_and_the_brokers() -> None:
    receive_maximum_3 = b"\x20\x06\x00\x00\x03\x21\x00\x03"
    async with (
        FakeBroker(connack=receive_maximum_3, puback_code=None) as broker,
        connected(replace(options_for(broker), send_window=5)) as (client, _),
    ):
        futures = [client.publish(Publication("a", b"")) for _ in range(5)]
        with pytest.raises(BrokerUnavailableError, match="5 messages wait"):
            await client.publish(Publication("a", b""))
        await broker.wait_for_packets(0x30, 3)
        first_id = broker.packets(0x30)[0][3:5]
        broker.send(packets.packet(0x40, first_id))
        await futures[0]
        await broker.wait_for_packets(0x30, 4)
        broker.hang_up()
        results = await asyncio.gather(*futures[1:], return_exceptions=True)
        # Three may have arrived; the fifth was never sent.
        assert [type(result) for result in results] == [PublishUnconfirmedError] * 3 + [BrokerUnavailableError]


async def test_F62_what_is_published_as_the_connection_ends_is_refused_and_does_not_wait_for_ever() -> None:
    async with FakeBroker(puback_code=None) as broker, connected(options_for(broker)) as (client, counters):
        first = client.publish(Publication("a", b"first"))
        await broker.wait_for_packets(0x30, 1)
        broker.hang_up()
        with pytest.raises(PublishUnconfirmedError):
            await first
        # This test learns of the end as soon as anybody can, and so before the task that connects anew.
        assert (client.connected, counters["connection_lost"]) == (False, 1)
        with pytest.raises(BrokerUnavailableError, match="not connected"):
            await client.publish(Publication("a", b"second"))


async def test_F62_a_link_that_has_ended_takes_nothing_more() -> None:
    async with FakeBroker() as broker:
        link = PahoLink(options_for(broker), None, InboundDelivery.acknowledge, Counter())
        await link.open(())
        link.end("cut")
        with pytest.raises(BrokerUnavailableError, match="not connected to the MQTT broker: cut"):
            await link.publish(Publication("a", b""))


async def test_F62_a_connection_that_ends_with_the_last_answer_of_the_broker_never_counts_as_one() -> None:
    disconnect = b"\xe0\x01\x8b"  # the server shuts down
    async with FakeBroker(connack=CONNACK_V5 + disconnect) as broker:
        link = PahoLink(options_for(broker), None, InboundDelivery.acknowledge, Counter())
        with pytest.raises(ConnectionError, match="shutting down"):
            await link.open(())


async def test_F5_what_waits_for_the_window_is_never_sent_after_its_expiry() -> None:
    receive_maximum_1 = b"\x20\x06\x00\x00\x03\x21\x00\x01"
    async with (
        FakeBroker(connack=receive_maximum_1, puback_code=None) as broker,
        connected(options_for(broker)) as (client, counters),
    ):
        first = client.publish(Publication("a", b"first"))
        expired = client.publish(Publication("a", b"expired", message_expiry=timedelta()))
        waiting = client.publish(Publication("a", b"waiting", message_expiry=timedelta(minutes=1)))
        await broker.wait_for_packets(0x30, 1)
        broker.send(packets.packet(0x40, broker.packets(0x30)[0][3:5]))
        await first
        with pytest.raises(BrokerUnavailableError, match="its time was over"):
            await expired
        await broker.wait_for_packets(0x30, 2)
        assert [packet[-7:] for packet in broker.packets(0x30)][1] == b"waiting"
        assert not waiting.done()
        assert counters["publish_expired"] == 1


async def test_a_publish_that_is_cancelled_while_it_waits_is_never_sent_and_gives_back_its_room_at_once() -> None:
    receive_maximum_1 = b"\x20\x06\x00\x00\x03\x21\x00\x01"
    async with (
        FakeBroker(connack=receive_maximum_1, puback_code=None) as broker,
        connected(replace(options_for(broker), send_window=61)) as (client, counters),
    ):
        first = client.publish(Publication("a", b"first"))
        cancelled = [client.publish(Publication("a", b"cancelled")) for _ in range(60)]
        with pytest.raises(BrokerUnavailableError):
            await client.publish(Publication("a", b"no room"))
        for future in cancelled:
            future.cancel()
        await asyncio.sleep(0)
        assert client.fills()["publishes"].size == 1
        last = client.publish(Publication("a", b"last"))
        await broker.wait_for_packets(0x30, 1)
        broker.send(packets.packet(0x40, broker.packets(0x30)[0][3:5]))
        await first
        assert [packet[-4:] for packet in await broker.wait_for_packets(0x30, 2)] == [b"irst", b"last"]
        assert not last.done()
        assert counters["publish_withdrawn"] == 60


async def test_what_waits_when_the_client_stops_was_never_sent() -> None:
    receive_maximum_1 = b"\x20\x06\x00\x00\x03\x21\x00\x01"
    async with FakeBroker(connack=receive_maximum_1, puback_code=None) as broker:
        async with connected(options_for(broker)) as (client, _):
            written = client.publish(Publication("a", b"written"))
            waiting = client.publish(Publication("a", b"waiting"))
            await broker.wait_for_packets(0x30, 1)
            await client.stop(keep_session=True)
            results = await asyncio.gather(written, waiting, return_exceptions=True)
        assert [type(result) for result in results] == [PublishUnconfirmedError, BrokerUnavailableError]
        assert len(broker.packets(0x30)) == 1


async def test_who_publishes_as_a_connection_ends_is_told_at_once() -> None:
    """The end is told to those who wait before the client has turned to its next connection."""
    async with FakeBroker(puback_code=None) as broker, connected(options_for(broker)) as (client, _):
        told: list[object] = []

        def again(_lost: asyncio.Future[Receipt]) -> None:
            try:
                told.append(client.publish(Publication("a", b"again")))
            except BrokerUnavailableError as error:
                told.append(error)

        first = client.publish(Publication("a", b"first"))
        first.add_done_callback(again)
        await broker.wait_for_packets(0x30, 1)
        broker.hang_up()
        with pytest.raises(PublishUnconfirmedError):
            await first
        assert [type(one) for one in told] == [BrokerUnavailableError]


@pytest.mark.parametrize("code", [0x90, 0x99])
async def test_a_puback_that_says_never_is_no_passing_refusal(code: int) -> None:
    async with FakeBroker(puback_code=code) as broker, connected(options_for(broker)) as (client, _):
        with pytest.raises(UnpublishableError, match=f"0x{code:02X}, the .* is invalid"):
            await client.publish(Publication("a", b""))


async def test_a_packet_over_the_brokers_limit_is_refused_and_the_link_stays() -> None:
    max_size_100 = b"\x20\x08\x00\x00\x05\x27\x00\x00\x00\x64"
    async with (
        FakeBroker(connack=max_size_100) as broker,
        connected(options_for(broker)) as (client, _),
    ):
        with pytest.raises(PacketTooLargeError, match="the broker takes 100"):
            await client.publish(Publication("a", b"x" * 100))
        await client.publish(Publication("a", b"x" * 50))


async def test_many_publishes_of_one_iteration_leave_in_few_system_calls() -> None:
    async with FakeBroker() as broker, connected(options_for(broker)) as (client, _):
        link = client._link
        assert link is not None
        transport = link._stream._transport
        assert transport is not None
        writes: list[int] = []
        link._stream._transport = _Recorder(transport, writes)
        await asyncio.gather(*[client.publish(Publication("a", b"x" * 100)) for _ in range(500)])
        assert len(writes) == 2


class _Recorder(asyncio.Transport):
    def __init__(self, transport: asyncio.Transport, writes: list[int]) -> None:
        super().__init__()
        self._transport = transport
        self._writes = writes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._writes.append(len(data))
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
