"""A device speaks without being asked: events, and signs that it is there or gone. A profile declares both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from app.core.errors import UndecodableMessageError
from app.core.messages import ReceivedMessage
from app.core.paths import Path, first
from app.core.payload import MISSING, JsonValue, Missing, decode_json
from app.core.profiles.conditions import PathCondition, all_hold
from app.core.profiles.sources import PAYLOAD, CorrelationSource, Decode, DeviceSource, device_of, wide_document
from app.core.profiles.templates import scalar_text
from app.core.topics import TopicTemplate


class DeviceEvent(NamedTuple):
    """A message as an event of its device. The event itself is the message: topic and payload, as they came.

    `name` is what the profile calls this kind, empty where only the payload could tell and it cannot be read. `type` is
    what the message says of itself, where the profile knows the place. `device_id` is empty where nothing tells it. A
    repetition of an event has the same `identity`; None where nothing tells one. `database` is what the profile
    proposes for keeping it.
    """

    profile: str
    name: str
    topic: str
    device_id: str
    type: str | None = None
    identity: str | None = None
    database: str | None = None


class PresenceSign(NamedTuple):
    """A sign that a device is there, or has gone (`online` is false).

    After `offline_after` without a further message it counts as gone; None: until it says so.
    """

    profile: str
    topic: str
    device_id: str
    online: bool
    offline_after: timedelta | None = None


class DeviceMessage:
    """A message, whose payload is read when a rule first asks for it, and once only by each codec."""

    __slots__ = ("_read", "message")

    def __init__(self, message: ReceivedMessage) -> None:
        self.message = message
        self._read: dict[Decode, JsonValue | Missing] = {}

    def payload(self, decode: Decode) -> JsonValue | Missing:
        """Return what it says; MISSING where that cannot be read."""
        if decode not in self._read:
            try:
                self._read[decode] = decode(self.message.payload)
            except UndecodableMessageError:
                self._read[decode] = MISSING
        return self._read[decode]


@dataclass(frozen=True, slots=True)
class EventSpec:
    """One kind of event. `match` selects among the messages of its topic; with `wide` as in ResponseSpec.

    A payload that cannot be read is an event all the same: its topic decides, and what the topic and the user
    properties must be. Its device is that of the topic.
    """

    name: str
    topic: TopicTemplate
    match: tuple[PathCondition, ...] = ()
    type: Path | None = None
    sources: tuple[CorrelationSource, ...] = ()
    database: str | None = None
    decode: Decode = decode_json
    device: DeviceSource | None = None
    wide: bool = False

    def read(self, profile: str, said: DeviceMessage, values: dict[str, str]) -> DeviceEvent | None:
        """The event; None when the message is none of this kind. `values` are those of the topic's placeholders."""
        payload = said.payload(self.decode) if self._asks else None
        document = _document(said.message, payload, values, wide=self.wide)
        match, name = self.match, self.name
        if match and payload is MISSING:
            match = tuple(one for one in match if self.wide and one.path[:1] != (PAYLOAD,))
            name = name if len(match) == len(self.match) else ""
        if not all_hold(match, document):
            return None
        try:
            device_id = device_of(self.device, values, document)
        except UndecodableMessageError:
            device_id = ""
        identity = None
        for source in self.sources:
            if identity := source.read(said.message, values, document):
                break
        kind = None if self.type is None else scalar_text(first(document, self.type))
        return DeviceEvent(profile, name, said.message.topic, device_id, kind, identity or None, self.database)

    @property
    def _asks(self) -> bool:
        """True if a rule may ask what the payload says."""
        return bool(self.match or self.sources or self.type or _leads_into(self.device))


@dataclass(frozen=True, slots=True)
class PresenceSpec:
    """Messages that tell whether a device is there. It has gone where one of `offline` holds, else it is there.

    A payload that cannot be read tells nothing where a rule asks for it. Where none does, the topic is the sign of
    life; but not with an empty payload, with which anybody takes a retained message away.
    """

    topic: TopicTemplate
    match: tuple[PathCondition, ...] = ()
    offline: tuple[PathCondition, ...] = ()
    offline_after: timedelta | None = None
    ready_after: timedelta = timedelta()
    """The time after its return in which the device does not listen yet."""
    decode: Decode = decode_json
    device: DeviceSource | None = None
    wide: bool = False

    def read(self, profile: str, said: DeviceMessage, values: dict[str, str]) -> PresenceSign | None:
        """Return what the message says; None when it says nothing. `values` are those of the topic's placeholders."""
        message = said.message
        asks = self.match or self.offline or _leads_into(self.device)
        payload = said.payload(self.decode) if asks or not message.payload else None
        if payload is MISSING:
            return None
        document = _document(message, payload, values, wide=self.wide)
        if not all_hold(self.match, document):
            return None
        try:
            device_id = device_of(self.device, values, document)
        except UndecodableMessageError:
            return None
        gone = any(one.holds(document) for one in self.offline)
        return PresenceSign(profile, message.topic, device_id, not gone, self.offline_after)


def _leads_into(device: DeviceSource | None) -> bool:
    return device is not None and device.path is not None


def _document(
    message: ReceivedMessage, payload: JsonValue | Missing, values: Mapping[str, str], *, wide: bool
) -> JsonValue:
    """Return what paths lead into; there is nothing of a payload that cannot be read."""
    readable = None if payload is MISSING else payload
    if not wide:
        return readable
    document = wide_document(message, readable, values)
    if payload is MISSING:
        del document[PAYLOAD]
    return document
