"""Timeouts that were learned from the latency log, for commands whose caller gives none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

VERSION: Final = 1
"""The version of the file; a node refuses any other."""
LONGEST: Final = timedelta(days=30)
NO_GROUP: Final = ""
"""The group of devices whose id does not match the rule, and of rows that hold for all devices of a method."""

_MOST_GROUPS_KEPT: Final = 65_536


def group_rule(pattern: str) -> re.Pattern[str]:
    """The rule that tells the group of a device id; ValueError says what is wrong with it.

    Only what Python's and Java's regular expressions share makes sense here: the analysis runs in a JVM.
    """
    try:
        rule = re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(f"{pattern[:64]!a} is no regular expression: {error}") from None
    if rule.groups != 1:
        raise ValueError(f"{pattern[:64]!a} has {rule.groups} groups in parentheses; allowed: exactly one, the group")
    return rule


def group_of(rule: re.Pattern[str], device_id: str) -> str:
    """The group of a device; NO_GROUP when its id does not match."""
    found = rule.search(device_id)
    return (found[1] or NO_GROUP) if found else NO_GROUP


@dataclass(slots=True)
class LearnedTimeouts:
    """A table of timeouts; the key is (profile, method, group), where NO_GROUP stands for all devices."""

    timeouts: Mapping[tuple[str, str, str], timedelta] = field(default_factory=dict)
    rule: re.Pattern[str] | None = None
    _groups: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def timeout(self, profile: str, method: str, device_id: str) -> timedelta | None:
        """The timeout of the device's group, else that of the method, else None."""
        if not self.timeouts:
            return None
        found = self.timeouts.get((profile, method, self._group(device_id))) if self.rule else None
        return found or self.timeouts.get((profile, method, NO_GROUP))

    def _group(self, device_id: str) -> str:
        """Remembered: the rule is the operator's, and may be slow."""
        group = self._groups.get(device_id)
        if group is None:
            if len(self._groups) >= _MOST_GROUPS_KEPT:
                self._groups.clear()
            group = self._groups[device_id] = group_of(self.rule, device_id) if self.rule else NO_GROUP
        return group
