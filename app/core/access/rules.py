"""Rules: who may do what, one line of text each.

    allow read *:* on *
    deny send *:firmware_* on *
    require 2 send dji:return_home on dock-* within 10m
    limit send *:* on * 100/s burst 200
    limit send *:* on dock-* 1/s burst 5 per device
    limit send *:* on * concurrent 20 per tenant

The first colon divides the profile from the method: names of profiles have none, those of methods may.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from app.core.access.patterns import validate_pattern
from app.core.characters import named
from app.core.durations import format_duration, parse_duration
from app.core.errors import InvalidInputError


class Action(StrEnum):
    """An action that rules allow or deny. Each operation of the API needs one."""

    __hash__ = str.__hash__  # an enumeration's own is a call in Python, several times for each command

    READ = "read"
    SEND = "send"
    CANCEL = "cancel"
    APPROVE = "approve"
    OVERRIDE = "override"
    FLEET = "fleet"
    STREAM = "stream"
    PUBLISH = "publish"
    WEBHOOKS = "webhooks"
    QUEUES = "queues"
    CONSUME = "consume"
    ACCESS = "access"
    AUDIT = "audit"
    NODES = "nodes"
    METRICS = "metrics"
    TRACE = "trace"


QUEUE_PLACE: Final = "queue/"
"""The text before the name of a queue in the place of a device, in rules and in questions."""
EXCHANGE_PLACE: Final = "exchange/"
"""The same of an exchange."""
_PLACES: Final = (QUEUE_PLACE, EXCHANGE_PLACE)
OF_TENANTS: Final = (Action.FLEET, Action.WEBHOOKS, Action.QUEUES, Action.ACCESS, Action.AUDIT)
"""They concern what a tenant has, whatever the device."""
OF_CLUSTER: Final = (Action.NODES, Action.METRICS, Action.TRACE)
"""They concern Homing itself, which belongs to no tenant."""
OF_METHODS: Final = frozenset({Action.SEND, Action.CANCEL, Action.APPROVE, Action.OVERRIDE})
"""They concern one method of one device; without these they are refused."""


class Effect(StrEnum):
    """The effect of a rule where it fits."""

    ALLOW = "allow"
    DENY = "deny"
    REQUIRE = "require"
    LIMIT = "limit"


class Per(StrEnum):
    """The group of callers who share a limit."""

    PRINCIPAL = "principal"
    """All keys of one."""
    TENANT = "tenant"
    """Everybody of the caller's, or of none."""
    DEVICE = "device"
    """Everybody who asks for the device."""


@dataclass(frozen=True, slots=True)
class Limit:
    """`count` in each `per_us` microseconds, and `burst` at once."""

    count: int
    per_us: int
    burst: int
    per: Per = Per.PRINCIPAL


@dataclass(frozen=True, slots=True)
class Concurrency:
    """A bound on the number of commands that are open at the same time."""

    most: int
    per: Per = Per.PRINCIPAL


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One line of a role. `action` is None for `*`, all of them; profile, method and device are patterns."""

    role: str
    line: int
    """The number of the line, from 1."""
    text: str = field(compare=False)
    effect: Effect
    action: Action | None
    profile: str
    method: str
    device: str
    people: int = 1
    """The number of persons who must want it: the caller, and who approves."""
    limit: Limit | Concurrency | None = None
    within: timedelta | None = None
    """The time that the second one has; None of rules that ask for none."""

    @property
    def name(self) -> str:
        """Names the rule in answers and in the audit: `operator.2`."""
        return f"{self.role}.{self.line}"

    def concerns(self, action: Action) -> bool:
        """True if the rule is about the action."""
        return self.action in (None, action)


SHORTEST_APPROVAL: Final = timedelta(seconds=1)
LONGEST_APPROVAL: Final = timedelta(days=7)
USUAL_APPROVAL: Final = timedelta(minutes=15)
"""The time that a second person has where nothing says otherwise."""
_MAX_LENGTH: Final = 512
_TARGET: Final = "ACTION PROFILE:METHOD on DEVICE"
_SHAPES: Final = {
    Effect.ALLOW: f"allow {_TARGET}",
    Effect.DENY: f"deny {_TARGET}",
    Effect.REQUIRE: "require 2 send PROFILE:METHOD on DEVICE within 15m",
    Effect.LIMIT: f"limit {_TARGET} 100/s burst 200 per device, or limit send PROFILE:METHOD on DEVICE concurrent 20",
}
_UNPRINTABLE: Final = re.compile("[^\t -~]")
_PERIODS_US: Final = {"s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
_RATE: Final = re.compile("([1-9][0-9]{0,5})/(s|min|h)")
_COUNT: Final = re.compile("[1-9][0-9]{0,5}")


def parse_rules(lines: Iterable[str], role: str) -> tuple[AccessRule, ...]:
    """The rules of a role; raises InvalidInputError that names role, line, what is wrong and what is allowed."""
    return tuple(parse_rule(line, role, number) for number, line in enumerate(lines, start=1))


def parse_rule(text: str, role: str, line: int) -> AccessRule:
    """One rule; raises InvalidInputError as `parse_rules` does."""
    try:
        return _parse(text, role, line)
    except InvalidInputError as error:
        place = "" if error.field == "rule" else f"{error.field} "
        raise InvalidInputError("rules", f"role {role!a}, line {line}: {place}{error.reason}") from None


def _parse(text: str, role: str, line: int) -> AccessRule:
    words = _words(text)
    effect = Effect(_one_of("", words.pop(0), Effect))
    if effect is Effect.REQUIRE:
        _expect(words, "2", effect, "the number of people is 2: the caller and one more")
    if not words:
        raise _incomplete(effect)
    action = _action(words.pop(0))
    if effect is Effect.REQUIRE and action is not Action.SEND:
        raise InvalidInputError("rule", f"only send can need a second person; allowed: {_SHAPES[effect]}")
    if not words:
        raise _incomplete(effect)
    profile, method = _target(words.pop(0))
    _expect(words, "on", effect, "the device comes after the word on")
    if not words:
        raise _incomplete(effect)
    device = _place(words.pop(0))
    limit = _limit(words, action) if effect is Effect.LIMIT else None
    within = _within(words) if effect is Effect.REQUIRE else None
    if words:
        raise InvalidInputError("rule", f"'{words[0]}' is too much; allowed: {_SHAPES[effect]}")
    people = 2 if effect is Effect.REQUIRE else 1
    return AccessRule(role, line, text, effect, action, profile, method, device, people, limit, within)


def _within(words: list[str]) -> timedelta:
    """The time that a second person has."""
    if not words:
        return USUAL_APPROVAL
    _expect(words, "within", Effect.REQUIRE, "after the device comes nothing, or within and how long they have")
    if not words:
        raise _incomplete(Effect.REQUIRE)
    word = words.pop(0)
    try:
        within = parse_duration(word)
    except ValueError as error:
        raise InvalidInputError("rule", f"within '{word}': {error}") from None
    if not SHORTEST_APPROVAL <= within <= LONGEST_APPROVAL:
        low, high = format_duration(SHORTEST_APPROVAL), format_duration(LONGEST_APPROVAL)
        raise InvalidInputError("rule", f"within '{word}' is out of range; allowed: {low} to {high}")
    return within


def is_device(place: str) -> bool:
    """True if it is the id of a device, and not empty, nor a queue or an exchange."""
    return bool(place) and not place.startswith(_PLACES)


def _place(word: str) -> str:
    """A pattern of device ids, of queues or of exchanges: the last two have a slash, which no id of a device has."""
    kind, slash, name = word.partition("/")
    if kind + slash in _PLACES:
        return kind + slash + validate_pattern("method", name)
    return validate_pattern("device", word)


def _words(text: str) -> list[str]:
    if len(text) > _MAX_LENGTH:
        raise InvalidInputError("rule", f"has {len(text)} characters; allowed are {_MAX_LENGTH}")
    forbidden = _UNPRINTABLE.search(text)
    if forbidden is not None:
        raise InvalidInputError(
            "rule", f"{named(forbidden[0])} at index {forbidden.start()} is not allowed; a rule is one line of ASCII"
        )
    words = text.split()
    if not words:
        raise InvalidInputError("rule", f"is empty; allowed: {' | '.join(_SHAPES.values())}")
    return words


def _action(word: str) -> Action | None:
    return None if word == "*" else Action(_one_of("action ", word, Action, "*"))


def _one_of(what: str, word: str, kinds: type[StrEnum], *others: str) -> str:
    allowed = [*(kind.value for kind in kinds), *others]
    if word in allowed:
        return word
    close = get_close_matches(word, allowed, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise InvalidInputError("rule", f"{what}'{word}' is unknown; {meant}allowed: {', '.join(allowed)}")


def _target(word: str) -> tuple[str, str]:
    profile, colon, method = word.partition(":")
    if not colon:
        raise InvalidInputError("rule", f"'{word}' has no colon; allowed: PROFILE:METHOD, *:* for all")
    return validate_pattern("profile", profile, of_profiles=True), validate_pattern("method", method)


def _expect(words: list[str], word: str, effect: Effect, why: str) -> None:
    if not words:
        raise _incomplete(effect)
    found = words.pop(0)
    if found != word:
        raise InvalidInputError("rule", f"'{found}' stands where {word} belongs: {why}; allowed: {_SHAPES[effect]}")


def _limit(words: list[str], action: Action | None) -> Limit | Concurrency:
    if words[:1] == ["concurrent"]:
        return _concurrency(words, action)
    rate = _RATE.fullmatch(words.pop(0)) if words else None
    if rate is None:
        raise InvalidInputError(
            "rule",
            "has no rate at its end; allowed: 1 to 999999 and /s, /min or /h, as in 100/s, "
            "or concurrent and 1 to 999999",
        )
    count, burst = int(rate[1]), rate[1]
    if words and words[0] != "per":
        _expect(words, "burst", Effect.LIMIT, "after the rate comes nothing, a burst, or per and who shares it")
        burst = words.pop(0) if words else ""
        if not _COUNT.fullmatch(burst):
            raise InvalidInputError("rule", f"burst '{burst}' is not a number; allowed: 1 to 999999")
    return Limit(count, _PERIODS_US[rate[2]], int(burst), _per(words, "burst"))


def _concurrency(words: list[str], action: Action | None) -> Concurrency:
    if action is not Action.SEND:
        raise InvalidInputError(
            "rule", f"only send leaves something open to be counted; allowed: {_SHAPES[Effect.LIMIT]}"
        )
    del words[0]
    most = words.pop(0) if words else ""
    if not _COUNT.fullmatch(most):
        raise InvalidInputError("rule", f"concurrent '{most}' is not a number; allowed: 1 to 999999")
    return Concurrency(int(most), _per(words, "number"))


def _per(words: list[str], before: str) -> Per:
    if not words:
        return Per.PRINCIPAL
    _expect(words, "per", Effect.LIMIT, f"after the {before} comes nothing, or per and who shares the limit")
    return Per(_one_of("per ", words.pop(0) if words else "", Per))


def _incomplete(effect: Effect) -> InvalidInputError:
    return InvalidInputError("rule", f"ends too early; allowed: {_SHAPES[effect]}")


_VIEWER: Final = ("allow read *:* on *", "allow stream *:* on *", "allow nodes *:* on *", "allow metrics *:* on *")

BUILT_IN: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "viewer": _VIEWER,
        "operator": (
            *_VIEWER,
            "allow send *:* on *",
            "allow cancel *:* on *",
            "allow fleet *:* on *",
            "allow publish *:* on *",
            "allow consume *:* on *",
        ),
        "approver": (*_VIEWER, "allow approve *:* on *"),
        "admin": ("allow * *:* on *",),
    }
)
"""Roles that every tenant may bind, and that nobody can change."""
