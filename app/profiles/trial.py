"""What a profile would do, without a device: what it publishes and expects, and how it reads a message."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.callback import Correlation
from app.core.errors import UndecodableMessageError
from app.core.messages import Publication, ReceivedMessage
from app.core.payload import JsonValue, decode_json
from app.core.profile import Condition, DeviceProfile, ResponseReader, ResponseSpec, to_json
from app.core.templating import CommandFacts

_REASONS = {
    "unexpected_topic": "no kind of response has this topic",
    "not_a_response": "the match of no kind holds",
    "no_correlation": "no source has a value, so it names no command",
    "correlation_contradicts": "a path of confirm has something else than the source",
    "no_rule_holds": "no rule holds",
}


def published(profile: DeviceProfile, facts: CommandFacts) -> Iterator[str]:
    """What a command publishes, and where its responses are expected."""
    publication = profile.compose(facts)
    yield f"publishes to {publication.topic}, QoS {publication.qos}{_properties(publication)}:"
    yield f"  {publication.payload.decode()}"
    expectations = profile.expectations(facts)
    if not expectations:
        yield "expects no response that it could recognise: it is refused with 422, unless it is one-way"
    for one in expectations:
        named = {Correlation.ID: "by its id", Correlation.ORDER: "by order alone"}
        yield f"expects responses at {one.topic}, {named.get(one.correlation, f'by the value {one.value!a}')}"
    if facts.method in profile.request.repeatable:
        yield "may be repeated when its node dies over it"


def rules_of(profile: DeviceProfile) -> Iterator[str]:
    """How each kind of response is told and read."""
    for spec in profile.responses:
        yield f"{spec.name}, on {spec.topic.text}{_when(spec.match)}:"
        for number, rule in enumerate(spec.rules):
            yield f"  rules.{number}: {rule.state}{_when(rule.when) or ' in every other case'}"


def reading(profile: DeviceProfile, facts: CommandFacts, topic: str | None, payload: bytes) -> tuple[list[str], bool]:
    """How a message is read at the topic, or at those where this command expects responses; whether any names it."""
    topics = [topic] if topic is not None else list(dict.fromkeys(one.topic for one in profile.expectations(facts)))
    lines: list[str] = []
    answered = False
    for place in topics:
        said, names_it = _read(profile, facts, ReceivedMessage(place, payload, correlation_data=None))
        lines += said
        answered = answered or names_it
    return lines, answered


def _read(profile: DeviceProfile, facts: CommandFacts, message: ReceivedMessage) -> tuple[list[str], bool]:
    try:
        answer = ResponseReader([profile]).read(message)
    except UndecodableMessageError as error:
        reason = _REASONS.get(error.reason, "it is no JSON that is accepted")
        return [f"at {message.topic}: dropped as {error.reason}: {reason}"], False
    spec = _kind_of(profile, message)
    payload = decode_json(message.payload)
    number = next(n for n, rule in enumerate(spec.rules) if all(one.holds(payload) for one in rule.when))
    names_it = any(
        (one.topic, one.correlation) == (answer.topic, answer.correlation)
        and answer.value == (facts.command_id if one.correlation is Correlation.ID else one.value)
        for one in profile.expectations(facts)
    )
    whose = "this command" if names_it else f"another command ({answer.value!a})"
    lines = [f"at {message.topic}: {spec.name}, rules.{number}: {answer.state}, of {whose}"]
    lines += [
        f"  {name}: {part.decode()}" for name, part in (("result", answer.result), ("error", answer.error)) if part
    ]
    return lines, names_it


def _kind_of(profile: DeviceProfile, message: ReceivedMessage) -> ResponseSpec:
    payload = decode_json(message.payload)
    return next(
        spec
        for spec in profile.responses
        if spec.topic.parse(message.topic) is not None and all(one.holds(payload) for one in spec.match)
    )


def _properties(publication: Publication) -> str:
    if publication.response_topic is None:
        return ""
    return f", response topic {publication.response_topic}, correlation data the id"


def _when(conditions: tuple[Condition, ...]) -> str:
    return " when " + " and ".join(_sentence(one) for one in conditions) if conditions else ""


def _sentence(condition: Condition) -> str:
    parts = []
    if condition.present is not None:
        parts.append("is present" if condition.present else "is absent")
    if condition.is_in is not None:
        parts.append(f"is {_choice(condition.is_in)}")
    if condition.is_not is not None:
        parts.append(f"is not {_choice(condition.is_not)}")
    return f"{'.'.join(condition.path)} {' and '.join(parts)}"


def _choice(values: tuple[JsonValue, ...]) -> str:
    return " or ".join(to_json(value).decode() for value in values)
