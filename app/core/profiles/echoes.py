"""Answers that are echoes of state: a device that gives no answers tells what its state is, and that may be enough.

What makes an echo an answer is stated and bounded: the topic, what of the state the command has asked for, and within
which time after the command it must be told. Nothing here reads a clock or a store.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final, NamedTuple

from app.core.errors import InvalidInputError
from app.core.identifiers import name_of
from app.core.paths import Path, first
from app.core.payload import MISSING, JsonValue
from app.core.profiles.templates import CommandFacts, any_absent, render_present, scalar_text


class Comparison(StrEnum):
    """As what a value of the state and what the command asked for are compared."""

    JSON = "json"
    """Values are compared as they are: `true` is not `1`, and 21 is 21.0."""
    NUMBER = "number"
    """Numbers, also written as text."""
    BOOLEAN = "boolean"
    """Words for on and off, those of `_TRUTHS`."""
    TEXT = "text"
    """Values are compared as text, whatever their type: without regard to upper and lower case, and `true` is "True",
    40 is "40.0"."""
    CONTAINS = "contains"
    """An object with at least these members, a list with at least such elements, at any depth; numbers by tolerance."""
    ANY = "any"
    """Any value will do, as soon as the command asks for something."""


_NUMBER: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE: Final = re.compile("-?[0-9]{1,40}")
_TRUTHS: Final = {
    **dict.fromkeys(("on", "true", "1", "yes"), True),
    **dict.fromkeys(("off", "false", "0", "no"), False),
}


@dataclass(frozen=True, slots=True)
class Wish:
    """The value at `path` of the state is to be what the template `equals` makes of the command, or just there.

    A command that does not have what the template names does not wish for it. Numbers may differ by `tolerance`.
    """

    path: Path
    equals: JsonValue = None
    kind: Comparison = Comparison.JSON
    tolerance: float = 0.0

    def concerns(self, facts: CommandFacts) -> bool:
        """True if the command wishes for it."""
        return not isinstance(self.equals, str) or not any_absent(self.equals, facts)

    def granted(self, state: JsonValue, facts: CommandFacts) -> bool:
        """True if the state has it."""
        found = first(state, self.path)
        if found is MISSING:
            return False
        return self.equals is None or self._same(found, render_present(self.equals, facts))

    def _same(self, found: JsonValue, wanted: JsonValue) -> bool:
        match self.kind:
            case Comparison.BOOLEAN:
                return _truth(found) is not None and _truth(found) == _truth(wanted)
            case Comparison.TEXT:
                return _same_text(found, wanted)
            case Comparison.ANY:
                return True
            case Comparison.CONTAINS:
                return self._contains(found, wanted)
            case Comparison.NUMBER:
                return self._near(_number(found), _number(wanted))
            case _ if _is_number(found) and _is_number(wanted):
                return self._near(_number(found), _number(wanted))
            case _:
                return type(found) is type(wanted) and found == wanted

    def _contains(self, found: JsonValue, wanted: JsonValue) -> bool:
        match wanted:
            case dict():
                return isinstance(found, dict) and all(
                    key in found and self._contains(found[key], one) for key, one in wanted.items()
                )
            case list():
                return isinstance(found, list) and all(
                    any(self._contains(element, one) for element in found) for one in wanted
                )
            case _ if _is_number(found) and _is_number(wanted):
                return self._near(_number(found), _number(wanted))
            case _:
                return type(found) is type(wanted) and found == wanted

    def _near(self, found: float | None, wanted: float | None) -> bool:
        """True if both are numbers and near enough; whole numbers are compared as they are, however many digits."""
        return found is not None and wanted is not None and abs(found - wanted) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Echo:
    """A state is the answer to a command if it has all that it wishes for, or `predicate` finds it to be true.

    `within` is how long after its registration a command takes an echo; `no_op` how old the last state that was told
    may be, if it is to answer a command that asks for nothing else (None where it never does).
    """

    wishes: tuple[Wish, ...]
    within: timedelta
    predicate: Callable[[JsonValue], JsonValue] | None = None
    no_op: timedelta | None = None

    def expected(self, facts: CommandFacts) -> bool:
        """True if there is a state that this command waits for."""
        return self.predicate is not None or any(wish.concerns(facts) for wish in self.wishes)

    def answers(self, state: JsonValue, facts: CommandFacts) -> bool:
        """True if the state is what the command asked for."""
        wishes = [wish for wish in self.wishes if wish.concerns(facts)]
        if self.predicate is None:
            return bool(wishes) and all(wish.granted(state, facts) for wish in wishes)
        return all(wish.granted(state, facts) for wish in wishes) and self._found_true(self.predicate, state, facts)

    @staticmethod
    def _found_true(predicate: Callable[[JsonValue], JsonValue], state: JsonValue, facts: CommandFacts) -> bool:
        document: JsonValue = {
            "message": state,
            "params": facts.params,
            "method": facts.method,
            "device_id": name_of(facts.device_id),
        }
        try:
            return predicate(document) is True
        except InvalidInputError:  # the state is none that it was written for
            return False


class HeardState(NamedTuple):
    """A state that a device has told, and what makes it an answer."""

    echo: Echo
    state: JsonValue


def _same_text(found: JsonValue, wanted: JsonValue) -> bool:
    """Numbers are told from others by how they are written, and only where one of both is a number."""
    if found is None or wanted is None:
        return found is wanted
    one, other = scalar_text(found), scalar_text(wanted)
    if one is None or other is None:
        return False
    if one.casefold() == other.casefold():
        return True
    if not (_is_number(found) or _is_number(wanted)) or not _NUMBER.fullmatch(one) or not _NUMBER.fullmatch(other):
        return False
    return Decimal(one) == Decimal(other)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int) or (isinstance(value, str) and _WHOLE.fullmatch(value)):
        return int(value)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _truth(value: JsonValue) -> bool | None:
    if isinstance(value, bool):
        return value
    return _TRUTHS.get(str(value).casefold()) if isinstance(value, str | int) else None
