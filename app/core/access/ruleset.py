"""Rules that count together, and which of them are about a method: found once, and then a look-up and two matches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from app.core.access.memo import Memo
from app.core.access.patterns import SEPARATOR, expression
from app.core.access.rules import AccessRule, Action, Concurrency, Effect

_METHODS: Final = 512
"""The number of methods that a rule set remembers; callers name them, and may invent some."""


class Union:
    """Rules of one effect, about one method."""

    __slots__ = ("_pattern", "_rules")

    def __init__(self, rules: Sequence[AccessRule]) -> None:
        self._rules: Final = tuple(rules)
        self._pattern: Final = _devices(tuple(rule.device for rule in rules)) if rules else None

    def first(self, device: str) -> AccessRule | None:
        """The first rule that fits the device."""
        found = self._pattern.fullmatch(device) if self._pattern else None
        return self._rules[found.lastindex - 1] if found and found.lastindex else None

    def all(self, device: str) -> list[AccessRule]:
        """Every rule that fits the device."""
        if self.first(device) is None:
            return []
        return [rule for rule in self._rules if _devices((rule.device,)).fullmatch(device)]


class CompiledRules:
    """The rules about one action and one method."""

    __slots__ = ("allows", "conditions", "denies")

    def __init__(self, rules: Sequence[AccessRule]) -> None:
        self.denies: Final = Union([rule for rule in rules if rule.effect is Effect.DENY])
        self.allows: Final = Union([rule for rule in rules if rule.effect is Effect.ALLOW])
        self.conditions: Final = Union([rule for rule in rules if rule.effect in (Effect.REQUIRE, Effect.LIMIT)])
        """The rules that require or limit something."""


class RuleSet:
    """The rules of a role, of several roles together, or what narrows a key."""

    __slots__ = ("_tables", "counts_open", "rules")

    def __init__(self, rules: Iterable[AccessRule]) -> None:
        self.rules: Final = tuple(rules)
        self.counts_open: Final = any(isinstance(rule.limit, Concurrency) for rule in self.rules)
        """True if one of them limits how many commands may be open."""
        self._tables: Final[Memo[tuple[Action, str, str], CompiledRules]] = Memo(_METHODS)

    def about(self, action: Action, profile: str, method: str) -> CompiledRules:
        """The rules about an action and a method."""
        key = (action, profile, method)
        table = self._tables.get(key)
        if table is None:
            target = f"{profile}{SEPARATOR}{method}"
            table = CompiledRules([rule for rule in self.rules if rule.concerns(action) and _fits(rule, target)])
            self._tables.put(key, table)
        return table

    def allows_some(self, action: Action, device: str) -> bool:
        """True if a rule allows it for some method of the device, and none denies it for all of them."""
        about = [rule for rule in self.rules if rule.concerns(action) and _devices((rule.device,)).fullmatch(device)]
        denied = any(rule.effect is Effect.DENY and rule.profile == rule.method == "*" for rule in about)
        return not denied and any(rule.effect is Effect.ALLOW for rule in about)


class DevicePatterns:
    """Several patterns of device ids."""

    __slots__ = ("_pattern", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns: Final = tuple(patterns)
        self._pattern: Final = None if "*" in self.patterns else _devices(self.patterns)

    @property
    def are_all(self) -> bool:
        """True if every device fits."""
        return self._pattern is None

    def fit(self, device: str) -> bool:
        """True if one of the patterns fits the device."""
        return self._pattern is None or self._pattern.fullmatch(device) is not None


def _fits(rule: AccessRule, target: str) -> bool:
    return _target(rule.profile, rule.method).fullmatch(target) is not None


@lru_cache(maxsize=8_192)
def _target(profile: str, method: str) -> re.Pattern[str]:
    return re.compile(f"{expression(profile)}{SEPARATOR}{expression(method)}")


@lru_cache(maxsize=8_192)
def _devices(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"({expression(pattern)})" for pattern in patterns) or "(?!)")
