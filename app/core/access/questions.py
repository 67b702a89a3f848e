"""Questions to the access rules, and the answers to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from app.core.access.callers import Caller, Refusal
from app.core.access.rules import AccessRule, Action


class Question(NamedTuple):
    """The action that somebody wants to do. A name that does not apply is empty, and only `*` fits it.

    `tenant_id` counts only where there is no device. None is then Homing itself, which belongs to no tenant.
    """

    action: Action
    device: str = ""
    profile: str = ""
    method: str = ""
    tenant_id: str | None = None


class Reason(StrEnum):
    """The reason of a decision about somebody whose credential counts."""

    ALLOWED = "allowed"
    DENIED = "denied"
    """A rule says so."""
    NO_RULE = "no_rule"
    """None allows it."""
    NARROWED = "narrowed"
    """The principal may, and this key may not."""
    FOREIGN = "foreign"
    """It is another tenant's, or none's."""


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """The decision whether it is allowed, and why.

    A `Refusal` as reason means that the credential counts for nothing.
    """

    allowed: bool
    reason: Reason | Refusal
    rule: AccessRule | None = None
    """The rule that allows or denies the action."""
    requires: int = 1
    """The number of people who must approve, the caller included."""
    within: timedelta | None = None
    """The time that the second one has, where one is needed."""
    limits: tuple[AccessRule, ...] = ()
    """All rules whose limit the caller must keep."""
    counted: tuple[tuple[str, AccessRule], ...] = ()
    """These, each with the name under which it is counted: all who share it have the same."""
    nearest: tuple[str, ...] = ()
    """Sentences about rules that nearly fit; only `explain` looks for them."""


Asked = tuple[Caller, Action, str, str, str, str | None]
"""The caller, and the parts of a `Question`."""


class AccessAnswer(NamedTuple):
    """A decision, and from when until when it is the right one."""

    decision: AccessDecision
    since_us: int
    until_us: int
