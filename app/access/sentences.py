"""Sentences that tell callers why they are refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from app.core.access.callers import Caller, Refusal, TokenFault
from app.core.access.questions import Reason
from app.core.access.rules import Action

WORTHLESS: Final[Mapping[Refusal, str]] = MappingProxyType(
    {
        Refusal.MALFORMED: "does not have the form of one",
        Refusal.TYPO: "has a wrong checksum: it was mistyped, or something is missing",
        Refusal.UNKNOWN: "is unknown",
        Refusal.EXPIRED: "has expired",
        Refusal.REVOKED: "was revoked",
        Refusal.DISABLED: "belongs to somebody who was disabled",
    }
)
NO_TOKEN: Final[Mapping[TokenFault, str]] = MappingProxyType(
    {
        TokenFault.MALFORMED: "does not have the form of one",
        TokenFault.ALGORITHM: "is signed in a way that is not allowed, or not with this key",
        TokenFault.UNKNOWN_KEY: "is signed with a key that its issuer did not have when it was asked last",
        TokenFault.NO_KEYS: "cannot be checked: the keys of its issuer are not known",
        TokenFault.SIGNATURE: "has a wrong signature",
        TokenFault.ISSUER: "is of another issuer than the one of HOMING_OIDC_ISSUER",
        TokenFault.AUDIENCE: "is for somebody else: HOMING_OIDC_AUDIENCE is not in its aud",
        TokenFault.EXPIRED: "has expired",
        TokenFault.NOT_YET: "does not count yet",
        TokenFault.LIFE: "is valid for longer than a day",
        TokenFault.CLAIMS: "lacks a claim that is needed, or has one of a wrong form",
    }
)
NOT_ON_RECORD: Final = "send Authorization: Bearer with an API key; homing keys create makes one"


def worthless(caller: Caller | None, refusal: Refusal) -> str:
    """The sentence that tells why the caller's credential counts for nothing."""
    what = "the API key" if caller is None or caller.issuer is None else "the token"
    return f"{what} {WORTHLESS[refusal]}"


def why(reason: Reason, action: Action, device: str, rule: str | None) -> str:
    """The sentence that tells why somebody who is known may not do something."""
    about = f"{action} on {device!a}" if device else str(action)
    match reason:
        case Reason.DENIED:
            return f"{about} is denied by the rule: {rule}"
        case Reason.NARROWED:
            return f"{about} is not among what this key was narrowed to"
        case Reason.FOREIGN:
            return f"{about} belongs to another tenant"
        case _:
            return f"{about} is allowed by no rule"
