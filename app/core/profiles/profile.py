"""The language of one family of devices, as data: topics, payloads, and how a response names its command.

A profile composes the publication of a command and says where its responses are to be expected; `reading.py` reads
them. The files under `app/profiles/shipped/` are the source; `app/profiles/loader.py` checks them and builds these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from typing import Final, TypeAlias

from app.core.commands.callback import Expectation
from app.core.errors import InvalidInputError
from app.core.identifiers import name_of
from app.core.messages import Publication, UserProperties
from app.core.paths import Path, first
from app.core.payload import JsonValue, decode_json
from app.core.profiles.approvals import ApprovalRule
from app.core.profiles.catalogue import Catalogue, no_method
from app.core.profiles.conditions import PathCondition, StateRule
from app.core.profiles.correlation import Correlation
from app.core.profiles.device_events import EventSpec, PresenceSpec
from app.core.profiles.echoes import Echo
from app.core.profiles.interlocks import Interlock
from app.core.profiles.lanes import LaneRule
from app.core.profiles.probes import Probe
from app.core.profiles.sources import BETWEEN, CorrelationSource, Decode, DeviceSource
from app.core.profiles.templates import (
    CommandFacts,
    any_absent,
    level_text,
    render,
    render_present,
    scalar_text,
    uuid_of,
)
from app.core.replies.reply import ReplySpec
from app.core.topics import TopicTemplate

Part: TypeAlias = "Path | Callable[[JsonValue], JsonValue]"
"""The place of something in a message: a path, or a function that finds it and raises InvalidInputError."""

_encoder: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_json(value: object) -> bytes:
    """Compact JSON in UTF-8."""
    return _encoder.encode(value).encode()


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """One kind of message that may answer a command.

    `match` selects among kinds on the same topic; `rules` are tried in order and the first that holds decides.
    `confirm` are further paths that, where present, must carry the same correlation. `value` are the templates of what
    a device echoes under Correlation.VALUE; a command whose params lack it, or have neither text, a number, true nor
    false there, expects no such response. `captures` are the placeholders of the topic that the device fills in.

    With `wide`, all paths lead through `payload`, `topic` or `user` (the user properties of MQTT 5) first, as some are
    not about the payload. `methods` are the only ones that it answers (None is all) but those in `but_not`, which have
    a kind of their own on this topic.
    """

    name: str
    topic: TopicTemplate
    correlation: Correlation
    sources: tuple[CorrelationSource, ...]
    rules: tuple[StateRule, ...]
    match: tuple[PathCondition, ...] = ()
    confirm: tuple[Path, ...] = ()
    value: tuple[str, ...] = ()
    result: Part | None = None
    progress: Part | None = None
    error_code: Part | None = None
    error_message: Part | None = None
    decode: Decode = decode_json
    device: DeviceSource | None = None
    captures: Mapping[str, str] = field(default_factory=dict)
    wide: bool = False
    methods: frozenset[str] | None = None
    but_not: frozenset[str] = frozenset()
    texts: Mapping[str, str] = field(default_factory=dict)
    """The meanings of error codes."""
    also: bool = False
    """True if it reads a message besides the kind that decides: what the command expects counts."""
    echo: Echo | None = None
    """The echo that makes a message an answer under Correlation.ECHO."""
    encode: Callable[[JsonValue], bytes] = to_json
    """Writes the bytes that `decode` reads; nodes never need it, and a simulated device does."""

    @property
    def suffix(self) -> str:
        """Sets apart in the store what not all commands expect on a topic: `#` is in no topic that a device has."""
        return "" if self.methods is None and self.echo is None else f"#{self.name}"

    def answers(self, method: str) -> bool:
        """True if commands of this method expect it."""
        return method in self.methods if self.methods is not None else method not in self.but_not


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """The rules by which a command is published.

    `properties` adds MQTT 5 response topic and correlation data: the id of the command, or with `uuid` the 16 bytes of
    its fact `id_uuid`. `user_properties` are templates by name.

    `traceparent` is where the payload of a traced command carries its context; its objects are there already.
    `repeatable` are the methods that may be executed twice, and late within the deadline, without harm. `methods` are
    the ones that are published so, None is all that no request before it has. `encode` raises InvalidInputError.
    `decode` reads what it writes; nodes never need it, and who plays the device does.
    """

    topic: TopicTemplate
    payload: JsonValue
    qos: int = 1
    properties: bool = False
    traceparent: Path | None = None
    repeatable: frozenset[str] = frozenset()
    methods: frozenset[str] | None = None
    encode: Callable[[JsonValue], bytes] = to_json
    decode: Decode = decode_json
    merge_params: bool = False
    omit_absent: bool = False
    uuid: bool = False
    user_properties: Mapping[str, str] = field(default_factory=dict)

    def correlation_data(self, facts: CommandFacts) -> bytes | None:
        """Return what the device is to give back beside its answer."""
        if not self.properties:
            return None
        return uuid_of(facts) if self.uuid else facts.command_id.encode("ascii")

    def said_beside(self, facts: CommandFacts) -> UserProperties:
        """The user properties of the message."""
        return tuple((name, scalar_text(render(one, facts)) or "") for name, one in self.user_properties.items())

    def body(self, facts: CommandFacts, trace: str | None) -> bytes:
        """The payload; InvalidInputError when the params do not fit into it."""
        payload = (render_present if self.omit_absent else render)(self.payload, facts)
        if self.merge_params:
            payload = _merged(payload, facts.params)
        if trace is not None and self.traceparent is not None:
            _put(payload, self.traceparent, trace)
        return self.encode(payload)


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One family of devices. `device` is how its ids are put together, where requests need the parts."""

    name: str
    description: str
    requests: tuple[RequestSpec, ...]
    responses: tuple[ResponseSpec, ...]
    quarantine: timedelta = field(default=timedelta())
    device: TopicTemplate | None = None
    events: tuple[EventSpec, ...] = ()
    presence: tuple[PresenceSpec, ...] = ()
    catalogue: Catalogue = field(default_factory=Catalogue)
    replies: tuple[ReplySpec, ...] = ()
    interlocks: tuple[Interlock, ...] = ()
    lanes: tuple[LaneRule, ...] = ()
    approvals: tuple[ApprovalRule, ...] = ()
    probes: tuple[Probe, ...] = ()
    _answering: Mapping[str, tuple[ResponseSpec, ...]] = field(init=False, repr=False, compare=False)
    """The kinds of response that answer a method, of all methods that any kind names."""
    _answering_others: tuple[ResponseSpec, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named = frozenset[str]().union(*(one.but_not.union(one.methods or ()) for one in self.responses))
        answering = {method: tuple(one for one in self.responses if one.answers(method)) for method in named}
        object.__setattr__(self, "_answering", answering)
        object.__setattr__(self, "_answering_others", tuple(one for one in self.responses if one.methods is None))

    def answering(self, method: str) -> tuple[ResponseSpec, ...]:
        """Return the kinds of response that may answer commands of this method."""
        return self._answering.get(method, self._answering_others)

    @property
    def has_no_ops(self) -> bool:
        """True if there are commands that a state answers which was told before."""
        return any(one.echo is not None and one.echo.no_op is not None for one in self.responses)

    @property
    def repeatable(self) -> frozenset[str]:
        """The methods that may be executed twice, and late within the deadline, without harm."""
        return frozenset().union(*(request.repeatable for request in self.requests))

    @property
    def ready_after(self) -> timedelta:
        """The time after the return of a device in which nothing that waited for it is sent."""
        return max((one.ready_after for one in self.presence), default=timedelta())

    @property
    def heard(self) -> tuple[TopicTemplate, ...]:
        """Return where nodes read what devices answer and ask."""
        answered, asked = (one.topic for one in self.responses), (one.topic for one in self.replies)
        return tuple(dict.fromkeys((*answered, *asked)))

    @property
    def told(self) -> tuple[TopicTemplate, ...]:
        """Return where nodes write commands and replies."""
        return tuple(dict.fromkeys((*(one.topic for one in self.requests), *(one.to for one in self.replies))))

    def topics_of_nobody(self, name: str) -> list[tuple[str, int]]:
        """Topics, with their QoS, of commands to a device of this name that is not there.

        Without those that name no device: there is one, and it would be spoken to.
        """
        ids = {"device_id", *(self.device.names if self.device is not None else ())}
        return [
            (request.topic.filled(dict.fromkeys(request.topic.names, name)), request.qos)
            for request in self.requests
            if not ids.isdisjoint(request.topic.names)
        ]

    def check(self, method: str, params: JsonValue) -> None:
        """InvalidInputError when the catalogue knows that devices have no such method, or take no such params."""
        self.catalogue.check(self.name, method, params)

    def interlocks_of(self, method: str) -> tuple[Interlock, ...]:
        """Return the interlocks that judge commands of this method."""
        return tuple(one for one in self.interlocks if one.binds(method)) if self.interlocks else ()

    def lane_of(self, method: str) -> LaneRule | None:
        """Return the lane through which commands of this method go, if there is one."""
        return next((one for one in self.lanes if one.binds(method)), None) if self.lanes else None

    def approval_of(self, method: str) -> timedelta | None:
        """Return the time in which a second person has to approve commands of this method; None if none is needed."""
        if not self.approvals:
            return None
        return min((one.within for one in self.approvals if one.binds(method)), default=None)

    def probe_of(self, method: str) -> Probe | None:
        """Return the probe of commands of this method, if there is one."""
        return next((one for one in self.probes if one.binds(method)), None) if self.probes else None

    def qos_of(self, method: str) -> int:
        """Return the quality of service of commands of this method; InvalidInputError where it has none."""
        return self._request(method).qos

    def topic_for(self, topic: TopicTemplate, device_id: str) -> str:
        """The topic whose last value tells the state of this device; InvalidInputError as from `compose`."""
        facts = self._with_parts(CommandFacts("", device_id, "", None, 0, 0))
        return topic.filled({**(facts.parts or {}), "device_id": name_of(device_id)})

    def compose(self, facts: CommandFacts, trace: str | None = None) -> Publication:
        """The publication that carries this command, and the context of its trace, to its device.

        InvalidInputError when the profile has none for it.
        """
        request = self._request(facts.method)
        facts = self._with_parts(facts)
        return Publication(
            topic=_filled(request.topic, facts),
            payload=request.body(facts, trace),
            qos=request.qos,
            message_expiry=timedelta(microseconds=facts.timeout),
            response_topic=_filled(self.responses[0].topic, facts) if request.properties else None,
            correlation_data=request.correlation_data(facts),
            user_properties=request.said_beside(facts) if request.user_properties else (),
        )

    def expectations(self, facts: CommandFacts) -> tuple[Expectation, ...]:
        """Return where responses to this command may arrive, each once; InvalidInputError as from `compose`."""
        self._request(facts.method)
        facts = self._with_parts(facts)
        found: list[Expectation] = []
        for spec in self.answering(facts.method):
            value = "" if not spec.value else _expected_value(spec.value, facts)
            if value is None or (spec.echo is not None and not spec.echo.expected(facts)):
                continue
            if spec.device is not None and spec.device.fixed not in (None, facts.device_id):
                raise InvalidInputError("device_id", f"profile {self.name!r} speaks to {spec.device.fixed} alone")
            one = Expectation(_filled(spec.topic, facts, spec.captures) + spec.suffix, spec.correlation, value)
            if one not in found:
                found.append(one)
        return tuple(found)

    def no_ops(self, facts: CommandFacts) -> Iterator[tuple[str, ResponseSpec]]:
        """Kinds of response that a state answers which the device has told before the command, with their topics."""
        facts = self._with_parts(facts)
        for spec in self.answering(facts.method):
            if spec.echo is not None and spec.echo.no_op is not None and spec.echo.expected(facts):
                yield _filled(spec.topic, facts, spec.captures) + spec.suffix, spec

    def _request(self, method: str) -> RequestSpec:
        for request in self.requests:
            if request.methods is None or method in request.methods:
                return request
        known = frozenset().union(*(request.methods or () for request in self.requests))
        raise no_method(self.name, method, known)

    def _with_parts(self, facts: CommandFacts) -> CommandFacts:
        if self.device is None:
            return facts
        parts = self.device.parse(facts.device_id)
        if parts is None:
            raise InvalidInputError("device_id", f"profile {self.name!r} has ids of the form {self.device.text}")
        return replace(facts, parts={name: name_of(part) for name, part in parts.items()})


def _filled(template: TopicTemplate, facts: CommandFacts, captures: Mapping[str, str] | None = None) -> str:
    if template.lasting:
        return _lasting_topic(template, facts.device_id, facts.method)
    values = {"device_id": name_of(facts.device_id), "method": facts.method, "id": facts.command_id}
    for name in template.further:
        if captures is not None and name in captures:
            values[name] = captures[name]
        elif text := level_text(name, facts):
            values[name] = text
        else:
            raise InvalidInputError("params", f"lack {name.removeprefix('params.')}, which topic {template.text} needs")
    return template.filled(values)


@lru_cache(maxsize=16_384)  # a fleet is spoken to on the same topics over and over
def _lasting_topic(template: TopicTemplate, device_id: str, method: str) -> str:
    return template.filled({"device_id": name_of(device_id), "method": method})


def _expected_value(templates: tuple[str, ...], facts: CommandFacts) -> str | None:
    """Return what a response carries besides or instead of an id; None when the command has nothing of the kind."""
    parts = []
    for template in templates:
        text = scalar_text(render(template, facts))
        if not text or any_absent(template, facts):
            return None
        parts.append(text)
    return BETWEEN.join(parts)


def correlation_text(value: object) -> str | None:
    """As what the id of a command is read: text and integers, and nothing else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _merged(payload: JsonValue, params: JsonValue) -> JsonValue:
    """The members of the params with those of the profile, which go first."""
    if not isinstance(payload, dict) or params is None:
        return payload
    if not isinstance(params, dict):
        raise InvalidInputError("params", "are no object, and this profile sends their members")
    return {**params, **payload}


def _put(payload: JsonValue, path: Path, value: str) -> None:
    *way, name = path
    found = first(payload, tuple(way))
    if isinstance(found, dict) and isinstance(name, str):
        found[name] = value
