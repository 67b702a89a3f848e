"""The administrators who may administer all of it: there must always be one."""

from __future__ import annotations

from app.core.access.model import Credential, Document, Principal
from app.core.errors import EntryConflictError

ADMIN = "admin"
"""The built-in role that may do everything."""


def admins(document: Document, now_us: int) -> list[Principal]:
    """The principals who may administer all of it, and have a key or a password to do so."""
    bound = {
        one.subject
        for one in document.bindings
        if one.role == ADMIN and one.tenant_id is None and "*" in one.devices and not is_past(one.expires_us, now_us)
    }
    with_key = {one.principal_id for one in document.credentials if counts(one, now_us) and not one.narrow}
    return [
        one
        for one in document.principals
        if one.id in bound and one.disabled_us is None and (one.id in with_key or one.password_hash)
    ]


def check_admins(before: Document, after: Document, now_us: int) -> None:
    """EntryConflictError when there was somebody who may administer, and will be nobody."""
    if admins(before, now_us) and not admins(after, now_us):
        raise EntryConflictError(
            "nobody could administer access any more: give another one a key and the role admin first"
        )


def counts(credential: Credential, now_us: int) -> bool:
    """True if the credential is neither revoked nor expired."""
    return credential.revoked_us is None and not is_past(credential.expires_us, now_us)


def is_past(instant_us: int | None, now_us: int) -> bool:
    """True if the instant, if there is one, is over."""
    return instant_us is not None and instant_us <= now_us
