"""Rules, compiled: for each action one regular expression of what is denied, and one of what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from app.core.access.patterns import SEPARATOR, expression
from app.core.access.rules import Action, Effect, Rule


def asked_text(profile: str, method: str, device: str) -> str:
    """What rules are matched against. None of the names may have a SEPARATOR."""
    return f"{profile}{SEPARATOR}{method}{SEPARATOR}{device}"


class Union:
    """The rules of one effect for one action."""

    __slots__ = ("_pattern", "_rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules: Final = tuple(rules)
        self._pattern: Final = re.compile("|".join(f"({_fitting(rule)})" for rule in rules)) if rules else None

    def first(self, asked: str) -> Rule | None:
        """The first rule that fits what `asked_text` made."""
        found = self._pattern.fullmatch(asked) if self._pattern else None
        return self._rules[found.lastindex - 1] if found and found.lastindex else None


class Table:
    """All rules of a rule set about one action."""

    __slots__ = ("_conditions", "allows", "denies")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.denies: Final = Union([rule for rule in rules if rule.effect is Effect.DENY])
        self.allows: Final = Union([rule for rule in rules if rule.effect is Effect.ALLOW])
        conditions = [rule for rule in rules if rule.effect in (Effect.REQUIRE, Effect.LIMIT)]
        self._conditions: Final = [(rule, Union([rule])) for rule in conditions]

    def conditions(self, asked: str) -> list[Rule]:
        """Every rule that fits and requires or limits something."""
        return [rule for rule, union in self._conditions if union.first(asked)]


class RuleSet:
    """The rules of a role, or what narrows a key."""

    __slots__ = ("_tables", "rules")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: Final = tuple(rules)
        self._tables: Final[dict[Action, Table]] = {}
        made: dict[tuple[Rule, ...], Table] = {}  # most actions have the rules of another one
        for action in Action:
            found = tuple(rule for rule in self.rules if rule.concerns(action))
            if found:
                self._tables[action] = made[found] if found in made else made.setdefault(found, Table(found))

    def about(self, action: Action) -> Table | None:
        """The rules about an action; None when there are none."""
        return self._tables.get(action)


class DevicePatterns:
    """Several patterns of device ids."""

    __slots__ = ("_pattern", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns: Final = tuple(patterns)
        self._pattern: Final = None if "*" in self.patterns else _any_of(self.patterns)

    def fit(self, device: str) -> bool:
        """Whether one of them fits."""
        return self._pattern is None or self._pattern.fullmatch(device) is not None


@lru_cache(maxsize=4_096)
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(expression, patterns)) if patterns else r"(?!)")


def _fitting(rule: Rule) -> str:
    return asked_text(expression(rule.profile), expression(rule.method), expression(rule.device))
