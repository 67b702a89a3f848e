"""A trial of a profile without a device: what it publishes and expects, and how it reads a message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from app.core.commands.callback import Answer
from app.core.commands.command import Command, CommandState
from app.core.durations import format_duration
from app.core.errors import ConfigurationError, InvalidInputError, UndecodableMessageError
from app.core.messages import Publication, ReceivedMessage
from app.core.payload import JsonValue, Missing
from app.core.profiles.conditions import PathCondition, all_hold
from app.core.profiles.correlation import Correlation
from app.core.profiles.device_events import DeviceEvent, PresenceSign
from app.core.profiles.echoes import Comparison, Wish
from app.core.profiles.event_reader import EventReader, ReplyReader
from app.core.profiles.profile import DeviceProfile, to_json
from app.core.profiles.response_reader import ResponseReader, answers_of, names
from app.core.profiles.sources import BETWEEN
from app.core.profiles.templates import FACTS, IDS, CommandFacts
from app.profiles.language.paths import shown

REASONS = {
    "unexpected_topic": "no kind of response has this topic",
    "not_a_response": "the match of no kind holds",
    "no_correlation": "no source has a value, so it names no command",
    "correlation_contradicts": "a path of confirm has something else than the source",
    "no_rule_holds": "no rule holds",
}


def refusal(profile: DeviceProfile, facts: CommandFacts) -> str | None:
    """Return why the profile has no such command; None when it has."""
    try:
        profile.check(facts.method, facts.params)
        profile.compose(facts)
        profile.expectations(facts)
    except InvalidInputError as error:
        return str(error)
    return None


def published(profile: DeviceProfile, facts: CommandFacts) -> Iterator[str]:
    """Return what a command publishes, and where its responses are expected."""
    if (reason := refusal(profile, facts)) is not None:
        yield f"is refused with 422: {reason}"
        return
    publication = profile.compose(facts)
    yield f"publishes to {publication.topic}, QoS {publication.qos}{_properties(publication)}:"
    yield f"  {text_of(publication.payload)}"
    expectations = profile.expectations(facts)
    if not expectations:
        yield "expects no response that it could recognise: it is refused with 422, unless it is one-way"
    for one in expectations:
        place = one.topic.partition("#")[0]
        named = {
            Correlation.ID: "by its id",
            Correlation.ORDER: "by order alone",
            Correlation.ECHO: "by a state that it asks for",
        }
        yield f"expects responses at {place}, {named.get(one.correlation, f'by the value {value_of(one.value)}')}"
    if facts.method in profile.repeatable:
        yield "may be repeated when its node dies over it"


def rules_of(profile: DeviceProfile) -> Iterator[str]:
    """Return how each kind of response is told and read."""
    for spec in profile.responses:
        only = "" if spec.methods is None else f", for {', '.join(sorted(spec.methods))}"
        yield f"{spec.name}, on {spec.topic.text}{only}{_when(spec.match)}:"
        for wish in spec.echo.wishes if spec.echo is not None else ():
            yield f"  echo: {_echo(wish)}"
        for number, rule in enumerate(spec.rules):
            yield f"  rules.{number}: {rule.state}{_when(rule.when) or ' in every other case'}"


_COMPARED = {
    Comparison.JSON: "",
    Comparison.NUMBER: ", as numbers, also where one is text",
    Comparison.BOOLEAN: ", as on or off",
    Comparison.TEXT: ", as text whatever its type, in upper or lower case",
    Comparison.CONTAINS: ", or has at least its members",
}


def _echo(wish: Wish) -> str:
    place = shown(wish.path)
    if wish.equals is None:
        return f"{place} is there"
    wanted = wish.equals if isinstance(wish.equals, str) else to_json(wish.equals).decode()
    if wish.kind is Comparison.ANY:
        return f"{place} is there, where the command has {wanted}"
    about = f", give or take {wish.tolerance:g}" if wish.tolerance else ""
    return f"{place} is {wanted}{_COMPARED[wish.kind]}{about}"


def replies_of(profile: DeviceProfile) -> Iterator[str]:
    """Return what each kind of reply is to, and what it speaks of besides the message."""
    for spec in profile.replies:
        yield f"{spec.name}, to {spec.topic.text}{_when(spec.match)}, on {spec.to.text}"
        if spec.last is not None:
            yield f"  of the last command {' or '.join(sorted(spec.last.methods))}"
        for one in spec.state:
            database = "" if one.database is None else f" in {one.database}"
            without = "" if isinstance(one.default, Missing) else f", or else {to_json(one.default).decode()}"
            yield f"  of {{state.{one.name}}}, the last value of {one.topic.text}{database}{without}"
        if spec.handler is not None:
            yield f"  of {{handler}}, what the handler {spec.handler} of HOMING_REPLY_HANDLERS says"


def reading(profile: DeviceProfile, facts: CommandFacts, topic: str | None, payload: bytes) -> tuple[list[str], bool]:
    """Read a message at the topic, or at those where this command expects responses; True if any names it."""
    if topic is not None:
        topics = [topic]
    elif refusal(profile, facts) is None:
        topics = list(dict.fromkeys(one.topic.partition("#")[0] for one in profile.expectations(facts)))
    else:
        topics = []
    lines: list[str] = []
    answered = False
    for place in topics:
        said, names_it = _read(profile, facts, ReceivedMessage(place, payload, correlation_data=None))
        lines += said
        answered = answered or names_it
    return lines, answered


class Played:
    """A command to a device that a person plays; `state` is what its answers have made of it."""

    def __init__(self, profile: DeviceProfile, facts: CommandFacts) -> None:
        self.state = CommandState.PENDING
        self._profile = profile
        self._facts = facts

    def hear(self, said: str) -> list[str]:
        """Return what becomes of what the device says: `TOPIC PAYLOAD`, or a payload on the topic that is expected."""
        said = with_ids(self._facts, said)
        expected = [one.topic.partition("#")[0] for one in self._profile.expectations(self._facts)]
        topic = next((one for one in expected if said.startswith(f"{one} ")), said.partition(" ")[0])
        rest = said[len(topic) + 1 :]
        if any(spec.topic.parse(topic) is not None for spec in self._profile.responses):
            return [*self._read(topic, rest), *self._besides(topic, _bytes(rest))]
        if besides := self._besides(topic, _bytes(rest)):
            return besides
        if not expected:
            return ["nothing is expected"]
        return self._read(expected[0], said)

    def _besides(self, topic: str, payload: bytes) -> list[str]:
        """Return what a message is besides an answer, and what it is replied."""
        return [*unasked(self._profile, topic, payload), *replied(self._profile, self._facts, topic, payload)]

    def _read(self, topic: str, text: str) -> list[str]:
        payload = _bytes(text)
        lines, state = _readings(
            self._profile, self._facts, ReceivedMessage(topic, payload, correlation_data=self._data())
        )
        if state is not None and self.state.final:
            return [*lines, "  it is a duplicate: the command has its outcome"]
        self.state = state or self.state
        return lines

    def _data(self) -> bytes | None:
        """A device that speaks MQTT 5 gives back what it was given."""
        return self._profile.compose(self._facts).correlation_data


def with_ids(facts: CommandFacts, said: str) -> str:
    """Return what a device says, with the ids of the command in the places of {id}, {id_number} and so on."""
    for name in IDS:
        said = said.replace(f"{{{name}}}", str(FACTS[name](facts)))
    return said


def unasked(profile: DeviceProfile, topic: str, payload: bytes) -> list[str]:
    """Return what a message is besides an answer."""
    return [f"at {topic}: {besides(one)}" for one in EventReader([profile]).read(ReceivedMessage(topic, payload))]


def replied(profile: DeviceProfile, facts: CommandFacts, topic: str, payload: bytes) -> list[str]:
    """Return the reply to a message, where the device was sent this command alone, and no last value is known."""
    sent = Command(
        facts.command_id,
        facts.device_id,
        facts.method,
        to_json(facts.params),
        profile.name,
        CommandState.SENT,
        "",
        facts.created_at,
        facts.deadline,
    )
    candidates = ReplyReader([profile]).read(ReceivedMessage(topic, payload), facts.created_at // 1000)
    for one in candidates:
        last = one.spec.last
        command = None if last is None else last.among([sent], profile.name, one.document["message"])
        try:
            if one.spec.state and not one.know({value.name: value.default for value in one.spec.state}):
                continue
            if one.spec.handler is not None:
                return [f"at {topic}: {one.spec.name}: the handler {one.spec.handler} is asked what to reply"]
            reply = one.reply(command)
        except InvalidInputError as error:
            return [f"at {topic}: {one.spec.name}: no reply can be made of it: {error}"]
        if reply is not None:
            return [f"at {topic}: {one.spec.name}: is replied on {reply.topic}:", f"  {text_of(reply.payload)}"]
    return [f"at {topic}: no reply has all that it needs"] if candidates else []


def besides(one: DeviceEvent | PresenceSign) -> str:
    """Return what it says, for people."""
    if isinstance(one, PresenceSign):
        if not one.online:
            return f"{one.device_id} has gone"
        until = "" if one.offline_after is None else f", and counts as gone after {format_duration(one.offline_after)}"
        return f"{one.device_id} is there{until}"
    kind = "" if one.type is None else f" of type {one.type!a}"
    same = "" if one.identity is None else f", known by {value_of(one.identity)}"
    kept = "" if one.database is None else f", for database {one.database}"
    name = one.name or "that cannot be read, so of no known kind,"
    return f"event {name} of {one.device_id or 'no device'}{kind}{same}{kept}"


def _bytes(text: str) -> bytes:
    if not text.startswith("hex:"):
        return text.encode()
    try:
        return bytes.fromhex(text.removeprefix("hex:"))
    except ValueError:
        raise ConfigurationError(f"--answer: {text[:64]!a} is no hexadecimal") from None


def _read(profile: DeviceProfile, facts: CommandFacts, message: ReceivedMessage) -> tuple[list[str], bool]:
    lines, state = _readings(profile, facts, message)
    return lines, state is not None


def _readings(
    profile: DeviceProfile, facts: CommandFacts, message: ReceivedMessage
) -> tuple[list[str], CommandState | None]:
    """Read the message as each kind that takes it; the state that it means for the command, where it names it."""
    reader = ResponseReader([profile])
    try:
        reader.read(message)
    except UndecodableMessageError as error:
        reason = REASONS.get(error.reason, "its codec cannot read it")
        return [f"at {message.topic}: dropped as {error.reason}: {reason}"], None
    found: list[tuple[CommandState | None, list[str]]] = []
    decided = set()
    for kind, values, document in reader.documents(message):
        if isinstance(document, UndecodableMessageError) or kind.scope in decided:
            continue
        if all_hold(kind.spec.match, document):
            decided.add(kind.scope)
            with suppress(UndecodableMessageError):
                number = next(n for n, rule in enumerate(kind.spec.rules) if all_hold(rule.when, document))
                for answer in answers_of(kind, message, values, document):
                    named = names(profile, facts, answer)
                    found.append(
                        (
                            answer.state if named else None,
                            _told(f"{kind.spec.name}, rules.{number}", message, answer, names_it=named),
                        )
                    )
    of_this = [(state, lines) for state, lines in found if state is not None][:1]
    lines = [line for _, lines in of_this or found for line in lines]
    return lines, of_this[0][0] if of_this else None


def _told(rule: str, message: ReceivedMessage, answer: Answer, *, names_it: bool) -> list[str]:
    whose = (
        "this command"
        if names_it
        else f"another command ({answer.value!a})"
        if answer.heard is None
        else "no command like this"
    )
    parts = (("result", answer.result), ("error", answer.error))
    return [
        f"at {message.topic}: {rule}: {answer.state}, of {whose}",
        *(f"  {name}: {part.decode()}" for name, part in parts if part),
    ]


def _properties(publication: Publication) -> str:
    beside = "".join(f", {name}={value}" for name, value in publication.user_properties)
    if publication.response_topic is None:
        return beside
    data = text_of(publication.correlation_data or b"")
    named = data if data.startswith("hex ") else "the id"
    return f", response topic {publication.response_topic}, correlation data {named}{beside}"


def text_of(payload: bytes) -> str:
    """A payload for people: bytes that are no text in hexadecimal."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"hex {payload.hex()}"
    return text if text.isprintable() else f"hex {payload.hex()}"


def value_of(value: str) -> str:
    """The value of a correlation, for people."""
    return " and ".join(f"{part!a}" for part in value.split(BETWEEN))


def _when(conditions: tuple[PathCondition, ...]) -> str:
    return " when " + " and ".join(sentence_of(one) for one in conditions) if conditions else ""


def sentence_of(condition: PathCondition) -> str:
    """Return what it asks for, for people."""
    parts = []
    if condition.present is not None:
        parts.append("is present" if condition.present else "is absent")
    if condition.is_in is not None:
        parts.append(f"is {_choice(condition.is_in)}")
    if condition.is_not is not None:
        parts.append(f"is not {_choice(condition.is_not)}")
    return f"{shown(condition.path)} {' and '.join(parts)}"


def _choice(values: tuple[JsonValue, ...]) -> str:
    return " or ".join(to_json(value).decode() for value in values)
