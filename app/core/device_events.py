"""What a device says without being asked: events, and signs that it is there or gone. A profile declares both."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from app.core.conditions import Condition, all_hold
from app.core.errors import UndecodableMessageError
from app.core.messages import ReceivedMessage
from app.core.paths import Path, first
from app.core.payload import JsonValue, decode_json
from app.core.sources import CorrelationSource, Decode, DeviceSource, device_of, wide_document
from app.core.templating import scalar_text
from app.core.topics import TopicTemplate


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """A message as an event of its device. The event itself is the message: topic and payload, as they came.

    `name` is what the profile calls this kind, `type` what the message says of itself, where the profile knows the
    place. A repetition of an event has the same `identity`; None where nothing tells one. `database` is what the
    profile proposes for keeping it.
    """

    profile: str
    name: str
    topic: str
    device_id: str
    type: str | None = None
    identity: str | None = None
    database: str | None = None


@dataclass(frozen=True, slots=True)
class Presence:
    """A sign that a device is there, or has gone (`online` is false).

    After `offline_after` without a further message it counts as gone; None: until it says so.
    """

    profile: str
    topic: str
    device_id: str
    online: bool
    offline_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class EventSpec:
    """One kind of event. `match` selects among the messages of its topic; with `wide` as in ResponseSpec."""

    name: str
    topic: TopicTemplate
    match: tuple[Condition, ...] = ()
    type: Path | None = None
    sources: tuple[CorrelationSource, ...] = ()
    database: str | None = None
    decode: Decode = decode_json
    device: DeviceSource | None = None
    wide: bool = False

    def read(self, profile: str, message: ReceivedMessage, values: dict[str, str]) -> DeviceEvent | None:
        """The event; None when the message is none of this kind. `values` are those of the topic's placeholders."""
        try:
            document = _document(self.decode, message, values, wide=self.wide)
            if not all_hold(self.match, document):
                return None
            device_id = device_of(self.device, values, document)
        except UndecodableMessageError:
            return None
        found = (source.read(message, values, document) for source in self.sources)
        return DeviceEvent(
            profile,
            self.name,
            message.topic,
            device_id,
            None if self.type is None else scalar_text(first(document, self.type)),
            next((one for one in found if one), None),
            self.database,
        )


@dataclass(frozen=True, slots=True)
class PresenceSpec:
    """Messages that tell whether a device is there. It has gone where one of `offline` holds, else it is there."""

    topic: TopicTemplate
    match: tuple[Condition, ...] = ()
    offline: tuple[Condition, ...] = ()
    offline_after: timedelta | None = None
    decode: Decode = decode_json
    device: DeviceSource | None = None
    wide: bool = False

    def read(self, profile: str, message: ReceivedMessage, values: dict[str, str]) -> Presence | None:
        """What the message says; None when it says nothing. `values` are those of the topic's placeholders."""
        try:
            document = _document(self.decode, message, values, wide=self.wide)
            if not all_hold(self.match, document):
                return None
            device_id = device_of(self.device, values, document)
        except UndecodableMessageError:
            return None
        gone = any(one.holds(document) for one in self.offline)
        return Presence(profile, message.topic, device_id, not gone, self.offline_after)


def _document(decode: Decode, message: ReceivedMessage, values: dict[str, str], *, wide: bool) -> JsonValue:
    document = decode(message.payload)
    return wide_document(message, document, values) if wide else document
