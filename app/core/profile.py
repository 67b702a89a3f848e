"""How one family of devices speaks, as data: which topics, which payloads, how a response names its command.

A profile composes the publication of a command, says where its responses are to be expected, and reads them. The files
under `app/profiles/` are the source; `app/profiles/loader.py` checks them and builds these values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from app.core.callback import Answer, Correlation, Expectation
from app.core.command import CommandState
from app.core.errors import UndecodableMessageError
from app.core.messages import Publication, ReceivedMessage
from app.core.payload import MISSING, JsonValue, decode_json, lookup
from app.core.templating import CommandFacts, any_absent, render
from app.core.topics import TopicTemplate

Path = tuple[str, ...]
"""A way into a JSON value: the keys of nested objects."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that a payload must satisfy at `path`; an absent path is neither `is_in` nor `is_not` anything."""

    path: Path
    is_in: tuple[JsonValue, ...] | None = None
    is_not: tuple[JsonValue, ...] | None = None
    present: bool | None = None

    def holds(self, payload: JsonValue) -> bool:
        """Whether the payload satisfies every part that is set."""
        found = lookup(payload, self.path)
        if self.present is not None and (found is not MISSING) != self.present:
            return False
        if self.is_in is not None and not _among(found, self.is_in):
            return False
        if self.is_not is None:
            return True
        return found is not MISSING and not _among(found, self.is_not)


def all_hold(conditions: tuple[Condition, ...], payload: JsonValue) -> bool:
    """Whether the payload satisfies every condition."""
    for one in conditions:  # noqa: SIM110 - it runs for each rule of each response, and a generator takes twice as long
        if not one.holds(payload):
            return False
    return True


def _among(found: object, wanted: tuple[JsonValue, ...]) -> bool:
    """Equality with one of them as in JSON, where `true` is not `1`."""
    for one in wanted:  # noqa: SIM110 - likewise
        if found == one and isinstance(found, bool) == isinstance(one, bool):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Rule:
    """The state that a response stands for when all conditions hold."""

    state: CommandState
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class CorrelationSource:
    """Where the correlation is read: MQTT 5 correlation data, a level of the topic, or a path in the payload."""

    property: bool = False
    topic_level: str | None = None
    path: Path | None = None

    def read(self, message: ReceivedMessage, levels: Mapping[str, str], payload: JsonValue) -> str | None:
        """The correlation as text, or None where this source has none."""
        if self.property:
            data = message.correlation_data
            return data.decode("utf-8", "replace") if data is not None else None
        if self.topic_level is not None:
            return levels.get(self.topic_level)
        return _correlation_text(lookup(payload, self.path or ()))


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """One kind of message that may answer a command.

    `match` selects among kinds on the same topic; `rules` are tried in order and the first that holds decides.
    `confirm` are further paths that, where present, must carry the same correlation. `value` is the template of what a
    device echoes under Correlation.VALUE; a command whose params lack it, or have neither text nor an integer there,
    expects no such response.
    """

    name: str
    topic: TopicTemplate
    correlation: Correlation
    sources: tuple[CorrelationSource, ...]
    rules: tuple[Rule, ...]
    match: tuple[Condition, ...] = ()
    confirm: tuple[Path, ...] = ()
    value: str | None = None
    result: Path | None = None
    progress: Path | None = None
    error_code: Path | None = None
    error_message: Path | None = None


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """How a command is published. `properties` adds MQTT 5 response topic and correlation data.

    `traceparent` is where the payload of a traced command carries its context; its objects are there already.
    `repeatable` are the methods that may be executed twice, and late within the deadline, without harm.
    """

    topic: TopicTemplate
    payload: JsonValue
    qos: int = 1
    properties: bool = False
    traceparent: Path | None = None
    repeatable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One family of devices."""

    name: str
    description: str
    request: RequestSpec
    responses: tuple[ResponseSpec, ...]
    quarantine: timedelta = field(default=timedelta())

    def compose(self, facts: CommandFacts, trace: str | None = None) -> Publication:
        """The publication that carries this command, and the context of its trace, to its device."""
        request = self.request
        with_properties = request.properties
        payload = render(request.payload, facts)
        if trace is not None and request.traceparent is not None:
            _put(payload, request.traceparent, trace)
        return Publication(
            topic=request.topic.render(device_id=facts.device_id, method=facts.method, id=facts.command_id),
            payload=to_json(payload),
            qos=request.qos,
            message_expiry=timedelta(microseconds=facts.deadline - facts.created_at),
            response_topic=self._response_topic(self.responses[0], facts) if with_properties else None,
            correlation_data=facts.command_id.encode("ascii") if with_properties else None,
        )

    def expectations(self, facts: CommandFacts) -> tuple[Expectation, ...]:
        """Where responses to this command may arrive, without repetition."""
        found: list[Expectation] = []
        for spec in self.responses:
            value = "" if spec.value is None else _expected_value(spec.value, facts)
            if value is None:
                continue
            one = Expectation(self._response_topic(spec, facts), spec.correlation, value)
            if one not in found:
                found.append(one)
        return tuple(found)

    @staticmethod
    def _response_topic(spec: ResponseSpec, facts: CommandFacts) -> str:
        return spec.topic.render(device_id=facts.device_id, method=facts.method, id=facts.command_id)


def _expected_value(template: str, facts: CommandFacts) -> str | None:
    """What a response carries besides or instead of an id; None when the command has nothing that a response could."""
    rendered = render(template, facts)
    if rendered is None or any_absent(template, facts):
        return None
    return _correlation_text(rendered) or None


def _correlation_text(found: object) -> str | None:
    """Text and integers correlate; nothing else does."""
    if isinstance(found, str):
        return found
    return str(found) if isinstance(found, int) and not isinstance(found, bool) else None


def _put(payload: JsonValue, path: Path, value: str) -> None:
    *way, name = path
    found = lookup(payload, tuple(way)) if way else payload
    if isinstance(found, dict):
        found[name] = value


class ResponseReader:
    """Reads messages under several profiles at once.

    Within a profile the first kind whose topic and conditions fit decides. Where the topic belongs to several profiles
    each of them gives a reading: which one counts is decided by the command, which knows its profile.
    """

    def __init__(self, profiles: Iterable[DeviceProfile]) -> None:
        by_topic: dict[TopicTemplate, list[tuple[str, ResponseSpec]]] = {}
        for profile in profiles:
            for spec in profile.responses:
                by_topic.setdefault(spec.topic, []).append((profile.name, spec))
        self._by_topic: Final = tuple(
            (template, tuple(specs), not any(one != template and one.overlaps(template) for one in by_topic))
            for template, specs in by_topic.items()
        )

    def filters(self) -> tuple[str, ...]:
        """The topic filters to subscribe to, without repetition."""
        return tuple(dict.fromkeys(template.filter() for template, *_ in self._by_topic))

    def read(self, message: ReceivedMessage) -> Answer:
        """What the message says, with the readings of further profiles in `others`.

        UndecodableMessageError with the reason for which it is none of ours.
        """
        payload: JsonValue = None
        decoded = False
        readings: dict[str, Answer | None] = {}
        reason = "unexpected_topic"
        for template, specs, alone in self._by_topic:
            levels = template.parse(message.topic)
            if levels is None:
                continue
            if not decoded:
                payload = decode_json(message.payload)
                decoded = True
                reason = "not_a_response"
            for profile, spec in specs:
                if profile not in readings and all_hold(spec.match, payload):
                    try:
                        readings[profile] = _answer(profile, spec, message, levels, payload)
                    except UndecodableMessageError as error:
                        readings[profile], reason = None, error.reason
            if alone:  # no other template has topics of this one
                break
        answers = [one for one in readings.values() if one is not None]
        if not answers:
            raise UndecodableMessageError(reason)
        if len(answers) > 1:
            answers[0].others = tuple(answers[1:])
        return answers[0]


def _answer(
    profile: str, spec: ResponseSpec, message: ReceivedMessage, levels: Mapping[str, str], payload: JsonValue
) -> Answer:
    value = ""
    if spec.correlation is not Correlation.ORDER:
        value = _correlation(spec, message, levels, payload)
    state = next((rule.state for rule in spec.rules if all_hold(rule.when, payload)), None)
    if state is None:
        raise UndecodableMessageError("no_rule_holds")
    return Answer(
        topic=message.topic,
        device_id=levels["device_id"],
        correlation=spec.correlation,
        value=value,
        state=state,
        result=_part(payload, spec.progress if state is CommandState.RUNNING else spec.result),
        error=_error(spec, payload) if state is CommandState.FAILED else None,
        trace=_trace(message) if message.user_properties else None,
        profile=profile,
    )


def _trace(message: ReceivedMessage) -> str | None:
    return next((value for name, value in message.user_properties if name == "traceparent"), None)


def _correlation(spec: ResponseSpec, message: ReceivedMessage, levels: Mapping[str, str], payload: JsonValue) -> str:
    for source in spec.sources:
        value = source.read(message, levels, payload)
        if value:
            break
    else:
        raise UndecodableMessageError("no_correlation")
    if any(lookup(payload, path) not in (MISSING, value) for path in spec.confirm):
        raise UndecodableMessageError("correlation_contradicts")
    return value


def _part(payload: JsonValue, path: Path | None) -> bytes | None:
    if path is None:
        return None
    found = lookup(payload, path)
    return None if found is MISSING or found is None else to_json(found)


def _error(spec: ResponseSpec, payload: JsonValue) -> bytes:
    def at(path: Path | None) -> JsonValue:
        found = MISSING if path is None else lookup(payload, path)
        return None if found is MISSING else found

    message = at(spec.error_message)
    return to_json(
        {"code": at(spec.error_code), "message": message if isinstance(message, str) else "the device refused"}
    )


_encoder: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_json(value: object) -> bytes:
    """Compact JSON in UTF-8."""
    return _encoder.encode(value).encode()
