"""The MQTT session that brings events in: where order is kept one with a fixed client id, which the role's holder has.

The next holder takes the session over, and the broker gives it all that has no PUBACK yet, in its order. So order per
topic is the broker's, nothing is lost in between, and what was appended and not acknowledged comes twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import structlog

from app.core.clock import Clock
from app.core.errors import InvalidInputError
from app.core.events.event import Entry, Shard, validate_entry
from app.core.events.plan import Plan
from app.core.identifiers import CANARY, validate_device_id
from app.core.messages import ReceivedMessage
from app.core.profiles.device_events import DeviceEvent, PresenceSign
from app.core.profiles.event_reader import EventReader
from app.events.pace import give_way
from app.events.presence import PresenceKeeper
from app.events.writer import EventWriter, PendingEntry
from app.mqtt.base import MqttClient, SessionDrain, Subscription
from app.mqtt.inbox import Arrival, Inbox
from app.runtime.tasks import end
from app.runtime.telemetry import BurstLog, Counters
from app.store.roles import RoleLease

SETTLE_SECONDS: Final = 1.0
"""The time that a node that stops waits for what it has to be appended."""

QUIET: Final = timedelta(milliseconds=200)
"""After UNSUBACK the broker still sends what it had queued; a silence of this length says that it has no more."""

LOOK_SECONDS: Final = 0.05

OpenMqtt = Callable[[], MqttClient]

_log = structlog.get_logger(__name__)


class Intake:
    """`run` holds the role, over and over."""

    def __init__(
        self,
        *,
        role: RoleLease,
        open_mqtt: OpenMqtt,
        reader: EventReader,
        plan: Plan,
        writer: EventWriter,
        clock: Clock,
        counters: Counters,
        presence: PresenceKeeper | None,
        subscribe: Callable[[Sequence[str]], Sequence[Subscription]] | None = None,
        heard: Callable[[str], None] = lambda _device_id: None,
    ) -> None:
        """`presence`: who looks after it, where this one does. `subscribe` makes subscriptions of topic filters.

        `heard` is called with each device of which something came in.
        """
        self._heard = heard
        self._role = role
        self._subscribe = subscribe or (lambda filters: [Subscription(one) for one in filters])
        self._open_mqtt = open_mqtt
        self._reader = reader
        self._plan = plan
        self._writer = writer
        self._presence = presence
        self._counters = counters
        self._drops = BurstLog(counters, clock)
        self._inbox = Inbox(self._take, clock)
        self._mqtt: MqttClient | None = None
        self._epoch: int | None = None
        self._handed_over = False
        self._waits_for_role = False
        self._arrived = asyncio.Event()
        self._overflow = asyncio.Event()
        """Set from when the writer took no more of what the broker would send again, until it has sent it again."""

    @property
    def subscriptions(self) -> Sequence[Subscription]:
        """The subscriptions of the intake."""
        return self._subscribe(self._reader.filters())

    async def is_held(self) -> bool:
        """True if some node takes events in at this moment."""
        return await self._role.held()

    def gone(self, node_id: str) -> None:
        """See `RoleLease.gone`."""
        self._role.gone(node_id)

    async def run(self) -> None:
        """Take events in while the role is held, until cancelled."""
        while True:
            self._waits_for_role = True
            self._epoch = await self._role.hold()
            self._waits_for_role = False
            _log.info("intake_begins", epoch=self._epoch)
            await self._serve()
            _log.warning("intake_ends", epoch=self._epoch)

    async def listened(self) -> None:
        """Return when the broker keeps events for this node, or another one brings them in."""
        while not (self._mqtt is not None and self._mqtt.connected):
            if self._waits_for_role and await self._role.held() and self._waits_for_role:
                return
            await asyncio.sleep(LOOK_SECONDS)

    @property
    def has_role(self) -> bool:
        """True if it holds the role, as far as it knows."""
        return self._mqtt is not None

    @property
    def keeps_session(self) -> bool:
        """True if it leaves its session at the broker when it closes."""
        return self._mqtt is not None and not self._handed_over

    async def hand_over(self) -> None:
        """Leave what is to come to other sessions, and take in what has come."""
        mqtt = self._mqtt
        if mqtt is not None and not self._handed_over:
            await mqtt.unsubscribe()
            await mqtt.quiet(QUIET)
            await self._inbox.drained()
            self._handed_over = True

    async def adopt(self, drain: SessionDrain, topic_filters: Sequence[str], idle: timedelta) -> int:
        """Take in what another session holds, and end it; how many messages that were. BrokerUnavailableError."""
        return await self._inbox.empty(drain, topic_filters, idle)

    async def close(self) -> None:
        """Leave the session at the broker, for whoever holds the role next or adopts it, if it is not handed over."""
        mqtt, self._mqtt = self._mqtt, None
        if mqtt is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._inbox.drained()
            await mqtt.stop(keep_session=not self._handed_over)
        await self._role.close()

    async def _serve(self) -> None:
        if self._presence is not None:
            await self._presence.begin()
        self._overflow.clear()
        mqtt = self._mqtt = self._open_mqtt()
        await mqtt.start(self.subscriptions, self._inbox.handle)
        working = [asyncio.create_task(give_way(mqtt, self._counters, self._arrived), name="events pace")]
        working.append(asyncio.create_task(self._fetch_what_was_left(mqtt), name="events left"))
        if self._presence is not None:
            watching = self._presence.run(lambda: mqtt.connected, self._tell)
            working.append(asyncio.create_task(watching, name="presence"))
        ends = [asyncio.ensure_future(one) for one in (self._role.lost(), mqtt.taken_over())]
        try:
            await asyncio.wait([*ends, *working], return_when=asyncio.FIRST_COMPLETED)
            for one in working:
                if one.done():
                    one.result()
        finally:
            await end([*ends, *working])
        self._mqtt = None
        await mqtt.stop(keep_session=True)
        await self._role.release()

    async def _fetch_what_was_left(self, mqtt: MqttClient) -> None:
        """Let the broker send it again, as soon as there is room: only a new connection makes it do so.

        As many wait as may only after a part of the log was away through several connections, each of which brought
        what had no PUBACK.
        """
        while True:
            await self._overflow.wait()
            await asyncio.sleep(LOOK_SECONDS)
            if self._writer.has_room():
                self._overflow.clear()
                mqtt.cut()

    def _tell(self, shard: Shard, entry: Entry) -> None:
        """A device has fallen silent, which no message says."""
        if not self._put(shard, PendingEntry(entry, self._epoch, lambda _is_in: None)):
            self._drops.drop("events_full", topic=entry.topic)

    def _put(self, shard: Shard, waiting: PendingEntry) -> bool:
        """Append it soon; false when there is no room, and what it tells of a device is told again."""
        is_put = self._writer.put(shard, waiting)
        if not is_put and self._presence is not None:
            self._presence.untold(waiting.entry)
        return is_put

    def _take(self, arrival: Arrival) -> None:
        self._arrived.set()
        message = arrival.message
        if CANARY in message.topic:  # what nodes say to themselves
            arrival.settle()
            return
        if self._overflow.is_set() and message.qos:
            arrival.leave()  # it must not overtake what was left before it
            return
        self._counters["events.redelivered"] += message.redelivered
        read = self._reader.read(message)
        for one in read:
            self._heard(one.device_id)
        if not read:
            self._drops.drop("not_an_event", topic=message.topic)
        entries = [entry for one in read if (entry := self._entry_of(one, arrival, message)) is not None]
        if len(entries) > 1:  # A message may be of several profiles; it is in the log once.
            entries = list({entry.topic: (shard, entry) for shard, entry in reversed(entries)}.values())
        self._keep(arrival, entries)

    def _entry_of(
        self, one: DeviceEvent | PresenceSign, arrival: Arrival, message: ReceivedMessage
    ) -> tuple[Shard, Entry] | None:
        if isinstance(one, PresenceSign):
            if self._presence is None or not _is_device(one.device_id):
                return None
            return self._presence.heard(one, arrival.at)
        if message.retain:
            self._drops.drop("retained_event", topic=message.topic)  # it was said before, and may be in the log
            return None
        device = one.device_id if _is_device(one.device_id) else ""
        kind = f"{one.profile}:{one.name}" if one.name else ""
        entry = Entry(message.topic, message.payload, device, kind, (one.identity or "")[:255])
        try:
            validate_entry(entry)
        except InvalidInputError as error:
            self._drops.drop(f"event_{error.field}", topic=message.topic[:128])
            return None
        return self._plan.shard(self._plan.name(one.database), message.topic), entry

    def _keep(self, arrival: Arrival, entries: Sequence[tuple[Shard, Entry]]) -> None:
        """Append what a message says; it is settled when all of it is in."""
        if not entries:
            arrival.settle()
            return
        done = arrival.done if len(entries) == 1 else _MessageParts(arrival, len(entries)).done
        for shard, entry in entries:
            if not self._put(shard, PendingEntry(entry, self._epoch, done)):
                if arrival.message.qos:
                    self._overflow.set()
                else:
                    self._drops.drop("events_full", topic=entry.topic)  # nothing holds it back
                done(is_in=False)


class _MessageParts:
    """The parts of a message, which are taken in one by one."""

    __slots__ = ("_arrival", "_in", "_left")

    def __init__(self, arrival: Arrival, count: int) -> None:
        self._arrival = arrival
        self._left = count
        self._in = True

    def done(self, is_in: bool) -> None:  # noqa: FBT001 - how the writer tells
        """A part is in the log, or given up; without PUBACK the message comes again."""
        self._in = self._in and is_in
        self._left -= 1
        if not self._left:
            self._arrival.done(self._in)


def _is_device(name: str) -> bool:
    try:
        validate_device_id(name)
    except InvalidInputError:
        return False
    return True
