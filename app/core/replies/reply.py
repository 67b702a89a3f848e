"""The replies of Homing to a device that asks, or that wants to know that it was heard. Decided here, sent elsewhere.

A profile declares kinds of replies. The first that its message fits, and that has all it needs, is the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from app.core.commands.command import FINAL_STATES, Command
from app.core.errors import InvalidInputError, UndecodableMessageError
from app.core.events.event import Entry
from app.core.identifiers import name_of
from app.core.messages import Publication, ReceivedMessage
from app.core.paths import Path, first
from app.core.payload import MAX_BYTES, MISSING, JsonValue, Missing, decode_json
from app.core.profiles.conditions import PathCondition, all_hold
from app.core.profiles.sources import Decode, DeviceSource, device_of, wide_document
from app.core.profiles.templates import rfc3339, scalar_text
from app.core.topics import TopicTemplate

Document = dict[str, JsonValue]
"""The values that a reply may speak of: `message`, `topic`, `device_id`, `now`, `now_ms`, `now_s`, `values`, perhaps
`command`, `state` and `handler`."""


@dataclass(frozen=True, slots=True)
class LastCommand:
    """The latest command to the device of one of `methods`, whose params have the `same` values as the message.

    `same` are pairs of paths, into the params and into the message. With `open` it has no outcome yet.
    """

    methods: frozenset[str]
    same: tuple[tuple[Path, Path], ...] = ()
    open: bool = False

    def among(self, commands: Iterable[Command], profile: str, message: JsonValue) -> Document | None:
        """The first of them that fits, newest first, as replies may speak of it."""
        wanted = [(there, scalar_text(first(message, here))) for there, here in self.same]
        for command in commands:
            if command.profile != profile or command.method not in self.methods:
                continue
            if self.open and command.state in FINAL_STATES:
                continue
            params = decode_json(command.params)
            if all(here is not None and scalar_text(first(params, there)) == here for there, here in wanted):
                return {
                    "id": command.id,
                    "method": command.method,
                    "params": params,
                    "state": command.state.value,
                    "created_ms": command.created_at // 1000,
                    "created_s": command.created_at // 1_000_000,
                }
        return None


@dataclass(frozen=True, slots=True)
class LastValue:
    """The last value that the event log has of a topic of the device; replies speak of it by its name.

    `database` is the one that the profile proposes. `default` stands for a value that is not there; MISSING: nothing.
    """

    name: str
    topic: TopicTemplate
    database: str | None = None
    decode: Decode = decode_json
    default: JsonValue | Missing = MISSING

    def of(self, entry: Entry | None, device_id: str) -> JsonValue | Missing:
        """Return the value that a reply to the device speaks of: nothing that another device said."""
        if entry is not None and entry.value and entry.device in ("", device_id):
            with suppress(UndecodableMessageError):
                return self.decode(entry.value)
        return self.default


@dataclass(frozen=True, slots=True)
class ReplySpec:
    """One kind of reply. `render` makes its payload of a Document; it raises InvalidInputError.

    `needs` are paths into the Document of what must be there and not be empty. `handler` is the name of who is asked
    what to say. With `wide` as in ResponseSpec.
    """

    name: str
    topic: TopicTemplate
    to: TopicTemplate
    render: Callable[[Document], JsonValue]
    encode: Callable[[JsonValue], bytes]
    match: tuple[PathCondition, ...] = ()
    needs: tuple[Path, ...] = ()
    last: LastCommand | None = None
    state: tuple[LastValue, ...] = ()
    handler: str | None = None
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    qos: int = 1
    decode: Decode = decode_json
    device: DeviceSource | None = None
    wide: bool = False

    @property
    def looks_up(self) -> bool:
        """True if the reply speaks of what has to be looked up."""
        return self.last is not None or bool(self.state) or self.handler is not None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kind of reply that its message fits."""

    spec: ReplySpec
    profile: str
    device_id: str
    document: Document
    filling: Mapping[str, str]
    asked_on: str = ""
    """The topic of the message."""

    def topic_of(self, one: LastValue) -> str:
        """The topic of that value; InvalidInputError."""
        return one.topic.filled(self.filling)

    def know(self, state: Mapping[str, JsonValue | Missing]) -> bool:
        """Take note of the last values by their names; whether all are there of which the reply speaks."""
        there = {name: value for name, value in state.items() if not isinstance(value, Missing)}
        self.document["state"] = there
        return all(one.name in there for one in self.spec.state)

    def lacks(self, *, besides: str | None = None) -> bool:
        """True if anything that the reply needs is not there, `besides` this fact."""
        needed = (path for path in self.spec.needs if path[0] != besides)
        return any(first(self.document, path) in (MISSING, None, "") for path in needed)

    def question(self) -> Document:
        """The question for a handler."""
        return {
            "type": "reply.asked",
            "timestamp": self.document["now"],
            "device_id": self.device_id,
            "profile": self.profile,
            "reply": self.spec.name,
            "topic": self.asked_on,
            "payload": self.document["message"],
        }

    def reply(self, command: Document | None) -> Publication | None:
        """The reply; None when it lacks something that it needs. `command` is what `spec.last` was found to be.

        InvalidInputError when it cannot be made of this message.
        """
        if self.spec.last is not None:
            if command is None:
                return None
            self.document["command"] = command
        if self.lacks():
            return None
        payload = self.spec.encode(self.spec.render(self.document))
        if len(payload) > MAX_BYTES:
            raise InvalidInputError("payload", f"has {len(payload)} bytes; allowed are {MAX_BYTES}")
        return Publication(self.spec.to.filled(self.filling), payload, qos=self.spec.qos)


def candidate(
    spec: ReplySpec, profile: str, message: ReceivedMessage, values: dict[str, str], now_ms: int
) -> Candidate | None:
    """The kind of reply, where the message fits it; `values` are those of the topic's placeholders."""
    topic: Document = dict(values)
    try:
        payload = spec.decode(message.payload)
        document: JsonValue = wide_document(message, payload, values) if spec.wide else payload
        if not all_hold(spec.match, document):
            return None
        device_id = device_of(spec.device, values, document)
    except UndecodableMessageError:
        return None
    facts: Document = {
        "message": payload,
        "topic": topic,
        "device_id": name_of(device_id),
        "now": rfc3339(now_ms * 1000),
        "now_ms": now_ms,
        "now_s": now_ms // 1000,
        "values": dict(spec.values),
    }
    return Candidate(spec, profile, device_id, facts, {**values, "device_id": name_of(device_id)}, message.topic)
