"""The end of a key, which is also that of the logins that it has begun."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from app.core.access.admins import counts
from app.core.access.changes import Change, Revoke
from app.core.access.keys import by_key
from app.core.access.model import Credential, Scheme


def revocation(key: Credential, credentials: Iterable[Credential], at_us: int) -> list[Change]:
    """End them for ever; one that was revoked stays so."""
    ended = (key, *_begun_by(key, credentials))
    return [Revoke(credential_id=one.id, at_us=at_us) for one in ended if one.revoked_us is None]


def expiry(key: Credential, credentials: Iterable[Credential], at_us: int, now_us: int) -> list[Credential]:
    """The key, and those logins that count now, as they end at that instant if they do not end sooner."""
    ended = (key, *(one for one in _begun_by(key, credentials) if counts(one, now_us)))
    ends = [at_us if one.expires_us is None else min(at_us, one.expires_us) for one in ended]
    return [replace(one, expires_us=end) for one, end in zip(ended, ends, strict=True)]


def _begun_by(key: Credential, credentials: Iterable[Credential]) -> Iterator[Credential]:
    begun = by_key(key.id)
    return (one for one in credentials if one.scheme is Scheme.LOGIN and one.name == begun)
