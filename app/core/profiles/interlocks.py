"""Interlocks: what must be true of the last words of a device before a command of certain methods is sent to it.

A condition holds, is violated, or is unknown: the value is absent, too old, cannot be read, or is of another kind than
what it is compared with. Only a command whose conditions all hold is sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from app.core.access.patterns import fits_any
from app.core.durations import format_duration
from app.core.errors import UndecodableMessageError
from app.core.payload import A_NUMBER, MISSING, JsonValue, Missing, kind_in_words, lookup
from app.core.profiles.places import GeoCircle, point_of
from app.core.profiles.sources import Decode
from app.core.topics import TopicTemplate

INPUTS: Final = "inputs"
PARAMS: Final = "params"
AHEAD: Final = timedelta(seconds=1)
"""The lead that the clock of the event log may have over the clock of a node; a value from further ahead is unknown."""
MOST_SHOWN: Final = 256
"""Characters of a text that a refusal shows."""
_LARGEST: Final = 2**63


class JudgedAs(StrEnum):
    """The result of a condition, or of a whole interlock."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class InterlockInput:
    """A part of the last value of a topic, by which an interlock judges."""

    name: str
    topic: TopicTemplate
    path: tuple[str, ...]
    max_age: timedelta
    decode: Decode
    database: str | None = None


@dataclass(frozen=True, slots=True)
class InterlockCondition:
    """A comparison of what stands at `path`, below `inputs` or `params`. All parts that are set must hold."""

    path: tuple[str, ...]
    is_in: tuple[JsonValue, ...] | None = None
    is_not: tuple[JsonValue, ...] | None = None
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    within: GeoCircle | None = None

    def wanted(self) -> dict[str, JsonValue]:
        """The parts that are set, as they stand in the profile."""
        said: dict[str, JsonValue] = {
            "is_in": None if self.is_in is None else list(self.is_in),
            "is_not": None if self.is_not is None else list(self.is_not),
            "at_least": self.at_least,
            "at_most": self.at_most,
            "above": self.above,
            "below": self.below,
            "within": None if self.within is None else self.within.wanted(),
        }
        return {name: value for name, value in said.items() if value is not None}

    def judge(self, value: JsonValue) -> tuple[JudgedAs, str | None]:
        """The result for a value, and why it is unknown."""
        if isinstance(value, float) and not math.isfinite(value):
            return JudgedAs.UNKNOWN, "it is no finite number"
        kind = kind_in_words(value)
        listed = [*(self.is_in or ()), *(self.is_not or ())]
        if listed and kind not in {kind_in_words(one) for one in listed}:
            return JudgedAs.UNKNOWN, f"it is {kind}, which is not what it is compared with"
        if self._compares and kind != A_NUMBER:
            return JudgedAs.UNKNOWN, f"it is {kind}, and a number is needed"
        holds = (
            (self.is_in is None or _among(value, self.is_in))
            and (self.is_not is None or not _among(value, self.is_not))
            and self._within(value)
        )
        return (JudgedAs.HOLDS if holds else JudgedAs.VIOLATED), None

    @property
    def _compares(self) -> bool:
        return any(one is not None for one in (self.at_least, self.at_most, self.above, self.below))

    def _within(self, value: JsonValue) -> bool:
        if not isinstance(value, int | float):
            return True
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


@dataclass(frozen=True, slots=True)
class Interlock:
    """A rule of a profile: commands of these methods are sent only while all conditions hold."""

    name: str
    methods: tuple[str, ...]
    """Patterns, in which `*` is any text."""
    inputs: tuple[InterlockInput, ...]
    when: tuple[InterlockCondition, ...]
    say: str

    def binds(self, method: str) -> bool:
        """True if commands of this method are judged by it."""
        return fits_any(self.methods, method)


class LastWord(NamedTuple):
    """The last value of a topic as bytes, and how old it is."""

    data: bytes
    age: timedelta


class InputValue(NamedTuple):
    """An input as it was found. Where it is unknown, `because` says why."""

    value: JsonValue | Missing
    age: timedelta | None
    because: str | None


class InterlockVerdict(NamedTuple):
    """An interlock with its result, and with a row of evidence for each condition, as callers are shown it."""

    interlock: Interlock
    result: JudgedAs
    evidence: Sequence[Mapping[str, Any]]

    def shown(self) -> dict[str, Any]:
        """Return it as callers are shown it."""
        return {"interlock": self.interlock.name, "say": self.interlock.say, "conditions": self.evidence}


def worst_of(results: Iterable[JudgedAs]) -> JudgedAs:
    """Return the result of several together: one that is violated makes it so, else one that is unknown."""
    found = frozenset(results)
    return next((one for one in (JudgedAs.VIOLATED, JudgedAs.UNKNOWN) if one in found), JudgedAs.HOLDS)


def judge(interlock: Interlock, words: Mapping[str, LastWord | None], params: JsonValue) -> InterlockVerdict:
    """The verdict about a command with these params. `words` are the last words by the names of the inputs."""
    inputs = {one.name: read_input(one, words.get(one.name)) for one in interlock.inputs}
    rows = [_row(condition, inputs, params) for condition in interlock.when]
    return InterlockVerdict(interlock, worst_of(row["result"] for row in rows), rows)


def read_input(spec: InterlockInput, word: LastWord | None) -> InputValue:
    """The value of an input, if its last word is there, young enough and readable."""
    if word is None:
        return InputValue(MISSING, None, "nothing was ever said on its topic")
    if word.age > spec.max_age:
        return InputValue(MISSING, word.age, f"it is older than {format_duration(spec.max_age)}")
    if word.age < -AHEAD:
        return InputValue(MISSING, word.age, "it comes from the future: clocks differ")
    try:
        document = spec.decode(word.data)
    except UndecodableMessageError as error:
        return InputValue(MISSING, word.age, f"it cannot be read: {error.reason}")
    value = lookup(document, spec.path)
    return InputValue(value, word.age, "its last value has no such member" if value is MISSING else None)


def _row(condition: InterlockCondition, inputs: Mapping[str, InputValue], params: JsonValue) -> dict[str, Any]:
    found = _found(condition.path, inputs, params)
    value: JsonValue | Missing = found.value
    because = found.because
    if value is MISSING:
        result = JudgedAs.UNKNOWN
    elif condition.within is not None:
        result, value, because = _judge_distance(condition.within, value, inputs, params)
    else:
        result, because = condition.judge(value)
    row: dict[str, Any] = {"path": ".".join(condition.path), "wanted": condition.wanted(), "result": result}
    if value is not MISSING:
        row["value"] = presentable(value)
    if found.age is not None:
        row["age"] = f"{max(0.0, found.age.total_seconds()):.1f}s"
    if because is not None:
        row["because"] = because
    return row


def _found(path: tuple[str, ...], inputs: Mapping[str, InputValue], params: JsonValue) -> InputValue:
    head, *rest = path
    found = InputValue(params, None, None)
    if head == INPUTS:
        found, rest = inputs[rest[0]], rest[1:]
    value = MISSING if found.value is MISSING else lookup(found.value, tuple(rest))
    return InputValue(value, found.age, (found.because or "it is absent") if value is MISSING else None)


def _judge_distance(
    circle: GeoCircle, value: JsonValue, inputs: Mapping[str, InputValue], params: JsonValue
) -> tuple[JudgedAs, JsonValue, str | None]:
    """The result for a place, with its distance as it is shown, or else the value and why it is unknown."""
    point, centre = point_of(value), circle.centre
    if point is None:
        return JudgedAs.UNKNOWN, value, "it tells no place: latitude and longitude in degrees, and not 0, 0"
    if centre is None:
        other = _found(circle.of, inputs, params)
        centre = None if other.value is MISSING else point_of(other.value)
        if centre is None:
            because = other.because or "it tells no place"
            return JudgedAs.UNKNOWN, value, f"its distance from {'.'.join(circle.of)} is unknown: {because}"
    metres = point.metres_to(centre)
    result = JudgedAs.HOLDS if metres <= circle.metres else JudgedAs.VIOLATED
    return result, f"{metres:.1f} m away", None


def _among(value: JsonValue, wanted: Sequence[JsonValue]) -> bool:
    """Equality with one of them as in JSON, where `true` is not `1`."""
    return any(value == one and kind_in_words(value) == kind_in_words(one) for one in wanted)


def presentable(value: JsonValue) -> JsonValue:
    """Return the value, or in its place a word about one that is too long or too odd to be shown."""
    match value:
        case None | bool():
            return value
        case str() if len(value) <= MOST_SHOWN:
            return value
        case int() | float() if -_LARGEST < value < _LARGEST:
            return value
        case int() | float():
            return "(a number out of range)"
        case _:
            return f"({kind_in_words(value)})"
