"""The one MQTT session that brings events in, with a fixed client id: whoever holds the role has it.

The next holder takes the session over, and the broker gives it all that has no PUBACK yet, in its order. So order per
topic is the broker's, nothing is lost in between, and what was appended and not acknowledged comes twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from app.core.clock import Clock
from app.core.device_events import DeviceEvent, Presence
from app.core.errors import InvalidInputError
from app.core.eventlog.event import Entry, validate_entry
from app.core.eventlog.plan import Plan
from app.core.identifiers import CANARY, validate_device_id
from app.core.listening import EventReader
from app.core.messages import ReceivedMessage
from app.events.writer import EventWriter, Waiting
from app.mqtt.base import MqttClient, Subscription
from app.mqtt.inbox import Arrival, Inbox
from app.observability import BurstLog, Counters, Fill
from app.store.roles import Role

SETTLE_SECONDS: Final = 1.0
"""How long a node that stops waits for what it has to be appended."""

OpenMqtt = Callable[[], MqttClient]
PresenceHeard = Callable[[Presence, float], None]
"""Told of a sign of a device, and when it came, on the monotonic clock."""

_log = structlog.get_logger(__name__)


def _nobody(_presence: Presence, _at: float) -> None:
    return


class Intake:
    """`run` holds the role, over and over."""

    def __init__(
        self,
        *,
        role: Role,
        open_mqtt: OpenMqtt,
        reader: EventReader,
        plan: Plan,
        writer: EventWriter,
        clock: Clock,
        counters: Counters,
        heard: PresenceHeard = _nobody,
    ) -> None:
        self._role = role
        self._open_mqtt = open_mqtt
        self._reader = reader
        self._plan = plan
        self._writer = writer
        self._heard = heard
        self._counters = counters
        self._drops = BurstLog(counters, clock)
        self._inbox = Inbox(self._take, clock)
        self._mqtt: MqttClient | None = None
        self._epoch: int | None = None

    @property
    def subscriptions(self) -> Sequence[Subscription]:
        """What it subscribes to."""
        return [Subscription(one) for one in self._reader.filters()]

    @property
    def health(self) -> str:
        """`ok` or a sentence. Only the holder needs a connection."""
        return "ok" if self._mqtt is None or self._mqtt.connected else "the intake has no connection to the MQTT broker"

    def queues(self) -> dict[str, Fill]:
        """How many events wait to be appended."""
        return {"events": self._writer.fill()}

    async def run(self) -> None:
        """Take events in while the role is held, until cancelled."""
        while True:
            self._epoch = await self._role.hold()
            _log.info("intake_begins", epoch=self._epoch)
            await self._serve()
            _log.warning("intake_ends", epoch=self._epoch)

    async def close(self) -> None:
        """Leave the session at the broker, for whoever holds the role next."""
        mqtt, self._mqtt = self._mqtt, None
        if mqtt is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._inbox.drained()
            await mqtt.stop(keep_session=True)
        await self._writer.close()
        await self._role.close()

    async def _serve(self) -> None:
        mqtt = self._mqtt = self._open_mqtt()
        await mqtt.start(self.subscriptions, self._inbox.handle)
        ends = [asyncio.ensure_future(one) for one in (self._role.lost(), mqtt.taken_over())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in ends:
                one.cancel()
        self._mqtt = None
        await mqtt.stop(keep_session=True)
        await self._role.release()

    def _take(self, arrival: Arrival) -> None:
        message = arrival.message
        if CANARY in message.topic:  # what nodes say to themselves
            arrival.settle()
            return
        read = self._reader.read(message)
        for one in read:
            if isinstance(one, Presence) and _is_device(one.device_id):
                self._heard(one, arrival.at)
        event = next((one for one in read if isinstance(one, DeviceEvent)), None)
        if event is None:
            if not read:
                self._drops.drop("not_an_event", topic=message.topic)
            arrival.settle()
        elif message.retain:
            self._drops.drop("retained_event", topic=message.topic)  # it was said before, and may be in the log
            arrival.settle()
        else:
            self._keep(arrival, message, event)

    def _keep(self, arrival: Arrival, message: ReceivedMessage, event: DeviceEvent) -> None:
        device = event.device_id if _is_device(event.device_id) else ""
        kind, identity = f"{event.profile}:{event.name}", event.identity or ""
        entry = Entry(message.topic, message.payload, device, kind, identity[:255])
        try:
            validate_entry(entry)
        except InvalidInputError as error:
            self._drops.drop(f"event_{error.field}", topic=message.topic[:128])
            arrival.settle()
            return
        shard = self._plan.shard(self._plan.name(event.database), message.topic)
        if not self._writer.put(shard, Waiting(entry, self._epoch, partial(_settle, arrival))):
            self._drops.drop("events_full", topic=message.topic)  # QoS 0, which nothing holds back
            arrival.leave()


def _settle(arrival: Arrival, is_in: bool) -> None:  # noqa: FBT001 - how the writer tells
    if is_in:
        arrival.settle()
    else:
        arrival.leave()


def _is_device(name: str) -> bool:
    try:
        validate_device_id(name)
    except InvalidInputError:
        return False
    return True
