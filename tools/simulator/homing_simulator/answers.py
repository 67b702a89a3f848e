"""A device's answers to a command, made of how a profile reads them: rules, sources and paths the other way round.

Whatever is made is read with the profile again; what is not read as it was meant is not sent. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Final

from app.core.commands.command import CommandState
from app.core.errors import InvalidInputError, UndecodableMessageError
from app.core.identifiers import name_of
from app.core.messages import Publication, ReceivedMessage
from app.core.paths import EVERY, Path, first
from app.core.payload import MISSING, JsonValue, Missing
from app.core.profiles.conditions import PathCondition, all_hold
from app.core.profiles.correlation import Correlation
from app.core.profiles.echoes import Comparison, Echo
from app.core.profiles.profile import DeviceProfile, ResponseSpec
from app.core.profiles.response_reader import ResponseReader
from app.core.profiles.sources import BETWEEN, CorrelationSource
from homing_simulator.asked import Known

HALF: Final = 50
"""The progress in per cent, where it is told."""
REPAIRS: Final = 20
"""The number of times that a message is changed, so that no earlier rule takes it, before it is given up."""


class Answering:
    """Makes the answers of a family's devices."""

    def __init__(self, profile: DeviceProfile) -> None:
        self._profile = profile
        self._reader = ResponseReader([profile])

    def kinds(self, method: str) -> list[ResponseSpec]:
        """The kinds of response that commands of this method expect."""
        return [spec for spec in self._profile.responses if spec.answers(method)]

    def answer(
        self,
        state: CommandState,
        method: str,
        device_id: str,
        known: Known,
        asked: ReceivedMessage,
        *,
        result: JsonValue,
    ) -> Publication | None:
        """The message that is read as this state of the command; None when the profile has nothing that could be."""
        for spec in self.kinds(method):
            value = correlation_of(spec, known)
            if value is None:
                continue
            for number, rule in enumerate(spec.rules):
                if rule.state is not state:
                    continue
                for whole in _wholes(result):
                    said = self._said(spec, number, value, device_id, known, asked, whole)
                    if said is not None and self._is_read(said, state, spec, value, device_id):
                        return said
        return None

    def _said(
        self,
        spec: ResponseSpec,
        number: int,
        value: str,
        device_id: str,
        known: Known,
        asked: ReceivedMessage,
        whole: JsonValue,
    ) -> Publication | None:
        made = _Made(spec, known, device_id, value, asked)
        rule = spec.rules[number]
        wanted = (*spec.match, *rule.when)
        made.tell(rule.state, whole)
        for one in wanted:
            made.satisfy(one)
        made.tell_why(rule.state)
        for _ in range(REPAIRS):
            taken = next((one for one in self._avoided(spec, number) if all_hold(one, made.document)), None)
            if taken is None or not made.escape(taken, wanted):
                break
        return made.publication(self._profile, whole)

    def _avoided(self, spec: ResponseSpec, number: int) -> Iterator[tuple[PathCondition, ...]]:
        """Conditions of what comes before this rule: kinds of the same topic, and rules."""
        for other in self._profile.responses:
            if other is spec:
                break
            same = (other.topic, other.methods, other.wide) == (spec.topic, spec.methods, spec.wide)
            if same and not (spec.also or other.also):
                yield other.match
        yield from (rule.when for rule in spec.rules[:number])

    def _is_read(self, said: Publication, state: CommandState, spec: ResponseSpec, value: str, device_id: str) -> bool:
        message = ReceivedMessage(
            said.topic, said.payload, correlation_data=said.correlation_data, user_properties=said.user_properties
        )
        try:
            answer = self._reader.read(message)
        except UndecodableMessageError:
            return False
        meant = state, device_id, spec.correlation, value
        return any((one.state, one.device_id, one.correlation, one.value) == meant for one in (answer, *answer.others))


def correlation_of(spec: ResponseSpec, known: Known) -> str | None:
    """The value by which such a response names the command; None when the request does not tell the device."""
    match spec.correlation:
        case Correlation.ID:
            return known.text("id")
        case Correlation.ORDER:
            return ""
        case Correlation.ECHO:
            return "" if spec.echo is not None and _can_be_told(spec.echo, known) else None
        case _:
            parts = [known.filled(one) for one in spec.value]
            return BETWEEN.join(part or "" for part in parts) if all(parts) else None


def _can_be_told(echo: Echo, known: Known) -> bool:
    """True if the request says what state it asks for; no state can be made of a predicate."""
    return any(wish.equals is None or _wanted(wish.equals, known) is not None for wish in echo.wishes)


def _wanted(template: JsonValue, known: Known) -> JsonValue:
    """The value that a wish is for; None when the request does not say it."""
    if isinstance(template, dict):
        members = {name: _wanted(one, known) for name, one in template.items()}
        return {name: one for name, one in members.items() if one is not None} or None
    if isinstance(template, list):
        return [_wanted(one, known) for one in template]
    if not isinstance(template, str):
        return template
    if template.startswith("{") and template.endswith("}") and template.count("{") == 1:
        found = known.fact(template[1:-1])
        return None if isinstance(found, Missing) else found
    return known.filled(template)


def _wholes(result: JsonValue) -> Iterator[JsonValue]:
    """Yield whole payloads, where the profile says no more: an object, text, Base64 of it, nothing."""
    yield from (result, "ok", "b2s=", None)


class _Made:
    """A message in the making. `document` is as the conditions of its kind see it."""

    def __init__(self, spec: ResponseSpec, known: Known, device_id: str, value: str, asked: ReceivedMessage) -> None:
        self._spec = spec
        self._known = known
        self._device_id = device_id
        self._asked = asked
        self._data: bytes | None = None
        self._captured: dict[str, str] = {}
        self._payload: JsonValue | Missing = MISSING
        self._topic: dict[str, JsonValue] = {}
        self._user: dict[str, JsonValue] = {}
        self._name_command(value)
        self._tell_state()
        if spec.device is not None and spec.device.path is not None:
            self._put(spec.device.path, name_of(device_id))

    @property
    def document(self) -> JsonValue:
        """As the conditions of its kind see it."""
        payload = None if self._payload is MISSING else self._payload
        return {"payload": payload, "topic": self._topic, "user": self._user} if self._spec.wide else payload

    def _name_command(self, value: str) -> None:
        for source in self._spec.sources:
            if source.property and self._asked.correlation_data is None:
                continue
            parts = source.parts or (source,)
            texts = value.split(BETWEEN) if source.parts else [value]
            templates = self._spec.value or ("{id}",)
            for part, text, template in zip(parts, texts, templates, strict=True):
                self._put_source(part, text, template)
            break

    def _tell_state(self) -> None:
        for wish in self._spec.echo.wishes if self._spec.echo is not None else ():
            if wish.equals is None:
                self._put(wish.path, "ON")
            elif (wanted := _wanted(wish.equals, self._known)) is None:
                continue
            elif wish.kind is not Comparison.ANY:
                self._put(wish.path, wanted)
            elif wish.path or self._payload is MISSING:
                self._put(wish.path, "ON")

    def _put_source(self, source: CorrelationSource, text: str, template: str) -> None:
        if source.property:
            self._data = self._asked.correlation_data
        elif source.topic_level is not None:
            self._captured[source.topic_level] = text
        elif source.keys is not None:
            self._put((*source.keys, text), "ON")
        else:
            self._put(source.path or (), self._typed(text, template))

    def _typed(self, text: str, template: str) -> JsonValue:
        """Numbers, true and false as JSON has them: devices give back what they got."""
        found = self._known.fact(template[1:-1]) if template.startswith("{") and template.endswith("}") else MISSING
        return text if isinstance(found, Missing) else found

    def satisfy(self, condition: PathCondition) -> None:
        """Make it hold, where that can be."""
        if condition.present is False:
            self._drop(condition.path)
        elif not self._holds(condition):
            self._put(condition.path, _satisfying(condition))

    def tell(self, state: CommandState, result: JsonValue) -> None:
        """Fill in what is kept of it, where there is room."""
        spec = self._spec
        if state is CommandState.RUNNING:
            self._offer(spec.progress, HALF)
        elif state is CommandState.SUCCEEDED:
            self._offer(spec.result, result)

    def tell_why(self, state: CommandState) -> None:
        """Fill in the error, where the conditions have not."""
        if state is CommandState.FAILED:
            self._offer(self._spec.error_code, "refused")
            self._offer(self._spec.error_message, "the simulated device refuses")

    def _offer(self, part: object, value: JsonValue) -> None:
        if not isinstance(part, tuple) or not self._in_payload(part) or self._beside(part) is not None:
            return
        there = first(self.document, part)
        if there is MISSING:
            self._put(part, value)
        elif isinstance(there, dict) and isinstance(value, dict):
            self._put(part, {**value, **there})

    def escape(self, taken: tuple[PathCondition, ...], wanted: tuple[PathCondition, ...]) -> bool:
        """Break one of the conditions that hold, and none that is wanted; False when that cannot be."""
        before = deepcopy((self._payload, self._topic, self._user))
        for one in taken:
            for change in _breaking(one):
                if change is MISSING:
                    self._drop(one.path)
                else:
                    self._put(one.path, change)
                if not self._holds(one) and all(self._holds(other) for other in wanted):
                    return True
                self._payload, self._topic, self._user = deepcopy(before)
        return False

    def _holds(self, condition: PathCondition) -> bool:
        return condition.holds(self.document)

    def _beside(self, path: Path) -> dict[str, JsonValue] | None:
        """The value to which the path leads, when that is not in the payload."""
        return {"topic": self._topic, "user": self._user}.get(str(path[0])) if self._spec.wide else None

    def _in_payload(self, path: Path) -> Path:
        return path[1:] if self._spec.wide else path

    def _put(self, path: Path, value: JsonValue) -> None:
        if (beside := self._beside(path)) is not None:
            beside[str(path[1])] = value
        else:
            self._payload = _with(self._payload, self._in_payload(path), value)

    def _drop(self, path: Path) -> None:
        if (beside := self._beside(path)) is not None:
            beside.pop(str(path[1]), None)
        else:
            self._payload = _without(self._payload, self._in_payload(path))

    def publication(self, profile: DeviceProfile, whole: JsonValue) -> Publication | None:
        """It as it is sent; None when it cannot be."""
        parts = None if profile.device is None else profile.device.parse(self._device_id)
        named = {"device_id": self._device_id, **(parts or {})}
        values = {name: name_of(part) for name, part in named.items()} | self._captured
        values |= {name: str(value) for name, value in self._topic.items()}
        for name in self._spec.topic.names:
            if name not in values:
                values[name] = self._known.text(name) or "1"
        try:
            payload = self._spec.encode(whole if self._payload is MISSING else self._payload)
        except (InvalidInputError, TypeError, ValueError):
            return None
        place = self._spec.topic.rejoined(values)
        if self._asked.response_topic is not None and self._spec is profile.responses[0]:
            place = self._asked.response_topic
        user = tuple((name, str(value)) for name, value in self._user.items())
        return Publication(place, payload, correlation_data=self._data, user_properties=user)


def _satisfying(condition: PathCondition) -> JsonValue:
    if condition.is_in is not None:
        return next((one for one in condition.is_in if one not in (condition.is_not or ())), None)
    return _other_than(condition.is_not or ())


def _breaking(condition: PathCondition) -> Iterator[JsonValue | Missing]:
    """Yield values to put in its place, so that the condition does not hold."""
    if condition.is_not is not None:
        yield from condition.is_not
    if condition.present is False:
        yield from (1, "1")
    if condition.is_in is not None:
        yield _other_than(condition.is_in)
    yield MISSING


def _other_than(values: Sequence[JsonValue]) -> JsonValue:
    numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    if any(isinstance(one, str) for one in values):
        return "other"
    return max(numbers) + 1 if numbers else 1


def _with(value: JsonValue | Missing, path: Path, put: JsonValue) -> JsonValue:
    """The value with `put` at the path; what is in its way is replaced."""
    if not path:
        return put
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        elements = list(value) if isinstance(value, list) else []
        elements += [None] * (step + 1 - len(elements))
        elements[step] = _with(elements[step], rest, put)
        return elements
    members = dict(value) if isinstance(value, dict) else {}
    if isinstance(step, str):
        members[step] = _with(members.get(step, MISSING), rest, put)
        return members
    if isinstance(value, list) and value:
        return [_with(one, rest, put) for one in value]
    return {name: _with(members.get(name, MISSING), rest, put) for name in members or ("value",)}


def _without(value: JsonValue | Missing, path: Path) -> JsonValue | Missing:
    if not path:
        return MISSING
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        members = {}
        for name, one in value.items():
            left = _without(one, rest) if step in (name, EVERY) else one
            if left is not MISSING:
                members[name] = left
        return members
    return value


def echoed(method: str, params: JsonValue | Missing, key: str) -> JsonValue:
    """The result of a command: its method, and the param `key` where it has one."""
    result: dict[str, JsonValue] = {"method": method}
    if isinstance(params, dict) and key in params:
        result[key] = deepcopy(params[key])
    return result
