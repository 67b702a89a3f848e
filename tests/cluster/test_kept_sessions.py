"""A node that is its own broker, killed under load: all that it had acknowledged is there, with the clients of paho."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MessageState, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from homing_rig.ports import lasting_port
from tests.cluster.harness import NodeProcess
from tests.cluster.test_own_broker import OwnBroker
from tests.waiting import eventually

KILLS = 2
MESSAGES = 450


def living_an_hour(kind: int) -> PahoProperties:
    made = PahoProperties(kind)  # type: ignore[no-untyped-call]  # it has no types
    made.SessionExpiryInterval = 3600
    return made


class Careful(paho.Client):
    """A message that was released stays so: paho 2.1 publishes it anew when it has failed to connect twice."""

    def _messages_reconnect_reset_out(self) -> None:
        resend = MessageState.MQTT_MS_RESEND_PUBREL
        released = [one for one in self._out_messages.values() if one.state == resend]
        super()._messages_reconnect_reset_out()
        for one in released:
            one.state = resend


class Durable:
    """paho with a session that lives for an hour; it connects again by itself."""

    def __init__(self, port: int, client_id: str, will: bytes = b"") -> None:
        self.got: Counter[tuple[bytes, int]] = Counter()
        """Payloads and QoS."""
        self.acknowledged: set[int] = set()
        """Message identifiers of this client."""
        self.subscribed = 0
        self._lock = threading.Lock()
        self.client = client = Careful(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5)
        client.reconnect_delay_set(1, 1)
        client.on_message = lambda _client, _data, message: self._take(message)
        client.on_publish = lambda _client, _data, mid, _reason, _properties: self.acknowledged.add(mid)
        client.on_subscribe = self._has_subscribed
        if will:
            client.will_set("wills", will, 1)
        client.connect_async("127.0.0.1", port, clean_start=False, properties=living_an_hour(PacketTypes.CONNECT))

    async def start(self) -> None:
        self.client.loop_start()
        await eventually(self.client.is_connected)

    async def stop(self) -> None:
        self.client.disconnect()
        await asyncio.to_thread(self.client.loop_stop)

    async def subscribe(self, *filters: str) -> None:
        before = self.subscribed
        self.client.subscribe([(one, 2) for one in filters])
        await eventually(lambda: self.subscribed > before)

    def _take(self, message: paho.MQTTMessage) -> None:
        with self._lock:
            self.got[bytes(message.payload), message.qos] += 1

    def _has_subscribed(self, *_: object) -> None:
        self.subscribed += 1


@asynccontextmanager
async def durable(port: int, client_id: str, will: bytes = b"") -> AsyncIterator[Durable]:
    one = Durable(port, client_id, will)
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    port = lasting_port()
    settings = {"HOMING_STORE_URL": f"rocks://{tmp_path}/data"}
    with NodeProcess("", None, OwnBroker(port), **settings) as node:
        async with durable(port, "away") as away:
            await away.subscribe("t/#")
        async with (
            durable(port, "reader") as reader,
            durable(port, "member-1") as first,
            durable(port, "member-2") as second,
            durable(port, "witness") as witness,
            durable(port, "talker", will=b"gone") as talker,
        ):
            await reader.subscribe("t/#")
            for member in (first, second):
                await member.subscribe("$share/s/t/#")
            await witness.subscribe("wills")
            sent: dict[int, tuple[bytes, int]] = {}
            for number in range(MESSAGES):
                payload, qos = b"%d" % number, 1 + number % 2
                sent[talker.client.publish(f"t/{number % 7}", payload, qos, retain=number % 10 == 0).mid] = payload, qos
                if number % (MESSAGES // (KILLS + 1)) == MESSAGES // (KILLS + 1) - 1:
                    await eventually(lambda: len(talker.acknowledged) > len(sent) // 2)
                    await asyncio.to_thread(node.kill)
                    await asyncio.to_thread(node.start)
            await eventually(lambda: talker.acknowledged >= sent.keys())
            everything = set(sent.values())
            await eventually(lambda: everything <= reader.got.keys())
            await eventually(lambda: everything <= first.got.keys() | second.got.keys())
            assert await asyncio.to_thread(node.stop) == 0
            await asyncio.to_thread(node.start)
            async with durable(port, "away") as away:
                await eventually(lambda: everything <= away.got.keys())
            for name, who in (("reader", reader.got), ("share", first.got + second.got), ("away", away.got)):
                assert who.keys() == everything
                more = {payload: times for (payload, qos), times in who.items() if qos == 2 and times > 1}
                assert more == {}, f"{name} has some twice"
            await eventually(lambda: witness.got[b"gone", 1] >= KILLS)
        judge = Durable(port, "judge")
        await judge.start()
        await judge.subscribe("t/#")
        last = {number % 7: b"%d" % number for number in range(0, MESSAGES, 10)}
        await eventually(lambda: {payload for payload, _ in judge.got} == set(last.values()))
        await judge.stop()
