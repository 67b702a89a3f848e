"""The caller who asks: what a credential has told, before anybody looks up what it is worth."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from app.core.access.model import Credential, Principal

GROUP: Final = "group:"
"""The beginning of a binding's subject that is a group; no principal's id has it."""


OIDC: Final = "oidc:"
"""The beginning of the name of somebody whom only a token tells of; the id of no new principal has it."""


class Caller(NamedTuple):
    """By what a caller is known. Each decision looks up anew what that is worth, in the snapshot of that moment.

    So a caller may be kept for as long as a stream lasts. There is either a key's `credential_id`, or a token's
    `issuer` and `subject`, or the `principal_id` of somebody who has logged in with a password.
    """

    credential_id: str | None = None
    issuer: str | None = None
    subject: str | None = None
    principal_id: str | None = None
    groups: tuple[str, ...] = ()
    tenant_id: str | None = None
    """The tenant of a token whose subject is nobody on record; a principal has its own."""
    issued_us: int = 0
    """The instant at which the token was made, or the login."""
    expires_us: int | None = None

    @classmethod
    def of_key(cls, credential_id: str) -> Caller:
        """The caller who has shown a key."""
        return cls(credential_id=credential_id)

    @classmethod
    def of_token(
        cls,
        issuer: str,
        subject: str,
        *,
        groups: Iterable[str],
        tenant_id: str | None,
        issued_us: int,
        expires_us: int,
    ) -> Caller:
        """The caller who has shown a token that was verified."""
        return cls(None, issuer, subject, None, tuple(sorted(set(groups))), tenant_id, issued_us, expires_us)

    def lasting(self) -> Caller:
        """The same caller for as long as their principal has rights: a token or a login ends sooner."""
        return self._replace(expires_us=None)

    def to_text(self) -> str:
        """The text that is kept beside a held command."""
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def of_text(cls, text: str) -> Caller:
        """The caller that `to_text` wrote; ValueError."""
        credential_id, issuer, subject, principal_id, groups, tenant_id, issued_us, expires_us = json.loads(text)
        return cls(credential_id, issuer, subject, principal_id, tuple(groups), tenant_id, issued_us, expires_us)

    @property
    def outsider(self) -> str | None:
        """The name of a token's subject, which is no id: `oidc:<issuer>#<subject>`. None for all other callers."""
        return None if self.issuer is None else f"{OIDC}{self.issuer}#{self.subject}"

    @classmethod
    def of_login(cls, principal_id: str, *, issued_us: int, expires_us: int) -> Caller:
        """The caller who has logged in with a password."""
        return cls(principal_id=principal_id, issued_us=issued_us, expires_us=expires_us)


EVER: Final = 2**63
"""An instant after all others."""


class Refusal(StrEnum):
    """The reason why a credential counts for nothing."""

    MALFORMED = "malformed"
    TYPO = "typo"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    REVOKED = "revoked"
    DISABLED = "disabled"
    """The principal is."""


class TokenFault(StrEnum):
    """The reason why a token is not accepted."""

    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown_key"
    NO_KEYS = "no_keys"
    """The keys of the issuer were not fetched yet, or too long ago."""
    SIGNATURE = "signature"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    EXPIRED = "expired"
    NOT_YET = "not_yet"
    LIFE = "life"
    """It is valid for longer than a day."""
    CLAIMS = "claims"
    """One that is needed is missing, or none of those that are allowed."""


@dataclass(frozen=True, slots=True)
class CallerStanding:
    """The standing of a caller: what their credential is worth, until it expires."""

    principal: Principal | None
    """None for a token whose subject is nobody on record, but whose groups may have rights."""
    tenant_id: str | None
    subjects: tuple[str, ...]
    """The subjects whose bindings count: the principal's id, and `group:NAME` for each group."""
    credential: Credential | None
    expires_us: int
    """The instant from which on all of it counts for nothing; EVER when it does not expire."""
    ends: tuple[int, ...]
    """All instants at which it or one of its bindings expires."""
