"""Conditions over what devices have said last, by which targets of a run are chosen.

A condition holds, is violated, or is unknown, as those of interlocks. A device of which it is unknown is no target,
whatever stands around the condition: also not for `not`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from app.core.errors import ConfigurationError, InvalidInputError
from app.core.fleets.fields import check_length, in_short, list_of, members_of, read_length
from app.core.payload import MISSING, decode_json, kind_in_words, lookup
from app.core.profiles.interlocks import InterlockCondition, InterlockInput, JudgedAs, LastWord, read_input, worst_of
from app.core.topics import TopicTemplate

MOST_CONDITIONS: Final = 8
MOST_VALUES: Final = 32
SHORTEST_AGE: Final = timedelta(seconds=2)
LONGEST_AGE: Final = timedelta(days=30)
_LISTS: Final = ("is_in", "is_not")
_NUMBERS: Final = ("at_least", "at_most", "above", "below")
_LARGEST: Final = 1e300
_PATH: Final = re.compile(r'[^.\[\]*"{}$]+(\.[^.\[\]*"{}$]+)*')


@dataclass(frozen=True, slots=True)
class StateCondition:
    """Comparisons of what stands in the last value of a topic, all of which must hold. Values are JSON."""

    topic: TopicTemplate
    max_age: timedelta
    when: tuple[InterlockCondition, ...]

    def judge(self, word: LastWord | None) -> bool | None:
        """Return whether they hold; None where that is unknown."""
        found = read_input(InterlockInput("state", self.topic, (), self.max_age, decode_json), word)
        if found.value is MISSING:
            return None
        values = [(one, lookup(found.value, one.path)) for one in self.when]
        result = worst_of(JudgedAs.UNKNOWN if value is MISSING else one.judge(value)[0] for one, value in values)
        return None if result is JudgedAs.UNKNOWN else result is JudgedAs.HOLDS


def read_state(field: str, value: object) -> StateCondition:
    """Return the condition that a caller asks for; InvalidInputError."""
    members = members_of(field, value, ("topic", "max_age", "when"))
    for name in ("topic", "when"):
        if name not in members:
            raise InvalidInputError(f"{field}.{name}", "is missing")
    topic = _topic(f"{field}.topic", members["topic"])
    when = list_of(f"{field}.when", members["when"], MOST_CONDITIONS)
    if not when:
        raise InvalidInputError(f"{field}.when", "is empty; one condition or more is needed")
    age = LONGEST_AGE
    if "max_age" in members:
        age = read_length(f"{field}.max_age", members["max_age"], LONGEST_AGE, SHORTEST_AGE)
    conditions = tuple(_condition(f"{field}.when.{index}", one) for index, one in enumerate(when))
    return StateCondition(topic, age, conditions)


def _topic(field: str, value: object) -> TopicTemplate:
    if not isinstance(value, str):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; a topic with {{device_id}} in it is needed")
    try:
        template = TopicTemplate(value, allowed=("device_id",))
    except ConfigurationError as error:
        raise InvalidInputError(field, str(error)) from None
    if not template.names:
        raise InvalidInputError(field, "names no device; a topic with {device_id} in it is needed")
    return template


def _condition(field: str, value: object) -> InterlockCondition:
    members = members_of(field, value, ("path", *_LISTS, *_NUMBERS))
    path = members.get("path")
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise InvalidInputError(
            f"{field}.path", f"{in_short(path)} is no path; allowed: keys of nested objects with dots between"
        )
    check_length(f"{field}.path", path)
    if len(members) == 1:
        raise InvalidInputError(field, f"compares with nothing; allowed: {', '.join((*_LISTS, *_NUMBERS))}")
    lists = {name: _values(f"{field}.{name}", members[name]) for name in _LISTS if name in members}
    numbers = {name: _number(f"{field}.{name}", members[name]) for name in _NUMBERS if name in members}
    parts: Mapping[str, Any] = {**lists, **numbers}
    return InterlockCondition(tuple(path.split(".")), **parts)


def _values(field: str, value: object) -> tuple[Any, ...]:
    listed = list_of(field, value, MOST_VALUES)
    if not listed:
        raise InvalidInputError(field, "is empty; one value or more is needed")
    for one in listed:
        if isinstance(one, dict | list):
            raise InvalidInputError(field, f"has {kind_in_words(one)} in it; allowed: text, numbers, true, false, null")
        if isinstance(one, str):
            check_length(field, one)
    return tuple(listed)


def _number(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST < value < _LARGEST:
        raise InvalidInputError(field, f"is {kind_in_words(value)}; a finite number is needed")
    return value
