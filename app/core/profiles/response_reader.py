"""Reads what devices send, under all profiles at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from app.core.commands.callback import Answer, Expectation
from app.core.commands.command import CommandState
from app.core.commands.faults import fault
from app.core.errors import InvalidInputError, UndecodableMessageError
from app.core.messages import ReceivedMessage
from app.core.paths import first
from app.core.payload import MISSING, JsonValue, Missing
from app.core.profiles.conditions import all_hold
from app.core.profiles.correlation import Correlation
from app.core.profiles.echoes import HeardState
from app.core.profiles.profile import DeviceProfile, Part, ResponseSpec, correlation_text, to_json
from app.core.profiles.sources import AsText, Decode, device_of, wide_document
from app.core.profiles.templates import CommandFacts, scalar_text
from app.core.topictree import LONG_TOPIC, MOST_TOPICS, TopicTree

MAX_KEYS: Final = 8
"""The number of keys of an object that are looked up as correlations of one message."""


_NAMELESS: Final = (Correlation.ORDER, Correlation.ECHO)


class ResponseKind:
    """A kind of response of a profile."""

    __slots__ = ("profile", "scope", "spec")

    def __init__(self, profile: str, spec: ResponseSpec) -> None:
        self.profile = profile
        self.spec = spec
        self.scope = profile, spec.methods, spec.name if spec.also else ""
        """One kind of those with the same scope reads a message."""


class ResponseReader:
    """Reads messages under several profiles at once.

    Within a profile the first kind whose topic and conditions fit decides, for each set of methods that have kinds of
    their own; those with `also` read besides. What belongs to several profiles has a reading of each: which one counts
    is decided by the command.
    """

    def __init__(self, profiles: Iterable[DeviceProfile]) -> None:
        kinds = [(profile.name, spec) for profile in profiles for spec in profile.responses]
        self._filters: Final = tuple(dict.fromkeys(spec.topic.filter() for _, spec in kinds))
        self._tree: Final = TopicTree[ResponseKind]()
        for profile, spec in kinds:
            self._tree.enter(spec.topic, ResponseKind(profile, spec))
        self._known: Final = lru_cache(MOST_TOPICS)(self._kinds_of)

    def filters(self) -> tuple[str, ...]:
        """The topic filters to subscribe to, without repetition."""
        return self._filters

    def read(self, message: ReceivedMessage) -> Answer:
        """Return what the message says, with the further readings in `others`.

        UndecodableMessageError with the reason for which it is none of ours.
        """
        readings = self._readings(message)
        answer = next(readings)
        answer.further = readings
        return answer

    def _readings(self, message: ReceivedMessage) -> Iterator[Answer]:
        """One after the other, as the first is nearly always the one; UndecodableMessageError when there is none."""
        reason, profile = "unexpected_topic", ""
        failure: UndecodableMessageError | None = None
        found = False
        decided = []
        for kind, values, document in self.documents(message):
            if failure is None:
                reason, profile = "not_a_response", kind.profile
            if isinstance(document, UndecodableMessageError):
                failure = failure or document
            elif kind.scope not in decided and all_hold(kind.spec.match, document):
                decided.append(kind.scope)
                try:
                    answers = answers_of(kind, message, values, document)
                except UndecodableMessageError as error:
                    failure = failure or error
                else:
                    found = True
                    yield from answers
        if not found:
            raise UndecodableMessageError(reason if failure is None else failure.reason, profile)

    def documents(
        self, message: ReceivedMessage
    ) -> Iterator[tuple[ResponseKind, Mapping[str, str], JsonValue | UndecodableMessageError]]:
        """The kinds that have the topic, with the values of its placeholders and what their paths lead into."""
        topic = message.topic
        payloads: dict[Decode, JsonValue | UndecodableMessageError] = {}
        for kind, values in (self._known if len(topic) <= LONG_TOPIC else self._kinds_of)(topic):
            decode = kind.spec.decode
            if decode not in payloads:
                payloads[decode] = _decoded(decode, message.payload)
            document = payloads[decode]
            if kind.spec.wide and not isinstance(document, UndecodableMessageError):
                document = wide_document(message, document, values)
            yield kind, values, document

    def _kinds_of(self, topic: str) -> tuple[tuple[ResponseKind, Mapping[str, str]], ...]:
        """The kinds that have the topic, each with the values of its placeholders."""
        levels = topic.split("/")
        matched = ((kind, kind.spec.topic.match(levels)) for kind in self._tree.find(levels))
        return tuple((kind, values) for kind, values in matched if values is not None)


def _decoded(decode: Decode, payload: bytes) -> JsonValue | UndecodableMessageError:
    try:
        return decode(payload)
    except UndecodableMessageError as error:
        return error


def answers_of(
    kind: ResponseKind, message: ReceivedMessage, values: Mapping[str, str], document: JsonValue
) -> list[Answer]:
    """Return what the message says as this kind; several readings where any of several keys may name the command.

    UndecodableMessageError with the reason for which it says nothing.
    """
    spec = kind.spec
    names = [""] if spec.correlation in _NAMELESS else _correlations(spec, message, values, document)
    state = next((rule.state for rule in spec.rules if all_hold(rule.when, document)), None)
    if state is None:
        raise UndecodableMessageError("no_rule_holds")
    device_id = device_of(spec.device, values, document)
    topic = message.topic if not spec.captures else spec.topic.rejoined({**values, **spec.captures})
    return [
        Answer(
            topic=topic + spec.suffix,
            device_id=device_id,
            correlation=spec.correlation,
            value=value,
            state=state,
            result=part_of(document, spec.progress if state is CommandState.RUNNING else spec.result),
            error=_error(spec, document) if state is CommandState.FAILED else None,
            trace=_trace(message) if message.user_properties else None,
            profile=kind.profile,
            heard=None if spec.echo is None else HeardState(spec.echo, document),
        )
        for value in names
    ]


def names(profile: DeviceProfile, facts: CommandFacts, answer: Answer) -> bool:
    """True if a store that holds this command alone would find that the answer is meant for it."""
    return facts.device_id == answer.device_id and any(
        (one.topic, one.correlation) == (answer.topic, answer.correlation) and _means(facts, one, answer)
        for one in profile.expectations(facts)
    )


def _means(facts: CommandFacts, expected: Expectation, answer: Answer) -> bool:
    if answer.heard is not None:
        return answer.heard.echo.answers(answer.heard.state, facts)
    return answer.value == (facts.command_id if expected.correlation is Correlation.ID else expected.value)


def _trace(message: ReceivedMessage) -> str | None:
    return next((value for name, value in message.user_properties if name == "traceparent"), None)


def _correlations(
    spec: ResponseSpec, message: ReceivedMessage, values: Mapping[str, str], document: JsonValue
) -> list[str]:
    """Return what the message may name its command by: one thing, or keys of an object."""
    as_text = correlation_text if spec.correlation is Correlation.ID else scalar_text
    for source in spec.sources:
        if source.keys is not None:
            found = first(document, source.keys)
            if isinstance(found, dict) and found:
                return list(found)[:MAX_KEYS]
            continue
        value = source.read(message, values, document, as_text)
        if value:
            if any(_contradicts(first(document, path), value, as_text) for path in spec.confirm):
                raise UndecodableMessageError("correlation_contradicts")
            return [value]
    raise UndecodableMessageError("no_correlation")


def _contradicts(found: JsonValue | Missing, value: str, as_text: AsText) -> bool:
    """True if something else stands there; a number says the same as its digits, as where the value was read."""
    return found is not MISSING and as_text(found) != value


def part_of(document: JsonValue, part: Part | None) -> bytes | None:
    """Return what stands there as a JSON text; None where there is nothing."""
    if part is None:
        return None
    found = _found(document, part)
    return None if found is MISSING or found is None else to_json(found)


def _found(document: JsonValue, part: Part) -> JsonValue | Missing:
    if isinstance(part, tuple):
        return first(document, part)
    try:
        return part(document)
    except InvalidInputError:  # the message is none that it was written for
        return MISSING


def _error(spec: ResponseSpec, document: JsonValue) -> bytes:
    def at(part: Part | None) -> JsonValue:
        found = MISSING if part is None else _found(document, part)
        return None if found is MISSING else found

    code, message = at(spec.error_code), at(spec.error_message)
    meaning = spec.texts.get(scalar_text(code) or "") if spec.texts else None
    return fault(code, meaning or (message if isinstance(message, str) else "the device refused"))
