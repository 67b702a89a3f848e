"""From a credential to what it is worth at a moment."""

from __future__ import annotations

from hmac import compare_digest

from app.core.access.callers import EVER, GROUP, Caller, CallerStanding, Refusal
from app.core.access.keys import KeyFault, beginner_of, parse_key
from app.core.access.model import Credential, Principal, Scheme
from app.core.access.snapshot import Snapshot


def identify_key(snapshot: Snapshot, text: str, now_us: int) -> Caller | Refusal:
    """Return the caller who has shown this key, or the reason why it counts for nothing.

    Only keys whose checksum is right are looked for.
    """
    key = parse_key(text)
    if isinstance(key, KeyFault):
        return Refusal(key.value)
    credential_id = snapshot.keys.get(key.digest)
    if credential_id is None or not compare_digest(credential_id.encode(), key.id.encode()):
        return Refusal.UNKNOWN
    caller = Caller.of_key(credential_id)
    standing = standing_at(now_us, standing_of(snapshot, caller))
    return standing if isinstance(standing, Refusal) else caller


def standing_of(snapshot: Snapshot, caller: Caller) -> CallerStanding | Refusal:
    """As `stand`, remembered."""
    standing = snapshot.standings.get(caller)
    if standing is None:
        standing = stand(snapshot, caller)
        snapshot.standings.put(caller, standing)
    return standing


def standing_at(now_us: int, standing: CallerStanding | Refusal) -> CallerStanding | Refusal:
    """The standing as it is at an instant."""
    if isinstance(standing, CallerStanding) and standing.expires_us <= now_us:
        return Refusal.EXPIRED
    return standing


def stand(snapshot: Snapshot, caller: Caller) -> CallerStanding | Refusal:
    """Return the caller's standing by this snapshot, until it expires.

    What is revoked or disabled is so whatever the instant beside it says: clocks differ.
    """
    credential_id, credential = _credential_id(snapshot, caller), credential_of(snapshot, caller)
    if credential_id is not None and credential is None:
        return Refusal.UNKNOWN
    if credential is not None and credential.revoked_us is not None:
        return Refusal.REVOKED
    principal_id = credential.principal_id if credential is not None else caller.principal_id
    if principal_id is None and caller.issuer is not None:
        return _standing(snapshot, caller, None, None)
    principal = snapshot.principals.get(principal_id or "")
    if principal is None:
        return Refusal.UNKNOWN
    if principal.disabled_us is not None:
        return Refusal.DISABLED
    if _begun_us(caller, credential) < principal.not_before_us:
        return Refusal.REVOKED
    return _standing(snapshot, caller, principal, credential)


def credential_of(snapshot: Snapshot, caller: Caller) -> Credential | None:
    """The key that was shown, or what ties a token's subject to a principal."""
    return snapshot.credentials.get(_credential_id(snapshot, caller) or "")


def lasting_caller(snapshot: Snapshot, caller: Caller) -> Caller:
    """The caller as they are kept beside what they have asked for or approved.

    To log out ends nothing of that. To revoke an API key does, also one that has begun a login.
    """
    credential = credential_of(snapshot, caller)
    if credential is None or credential.scheme is not Scheme.LOGIN:
        return caller.lasting()
    if (key_id := beginner_of(credential.name)) is not None:
        return Caller.of_key(key_id)
    return Caller(principal_id=credential.principal_id, issued_us=credential.created_us)


def _credential_id(snapshot: Snapshot, caller: Caller) -> str | None:
    return caller.credential_id or snapshot.identities.get((caller.issuer or "", caller.subject or ""))


def _begun_us(caller: Caller, credential: Credential | None) -> int:
    """The instant at which the caller has logged in; EVER for an API key, which is no login."""
    if credential is None or credential.scheme is Scheme.OIDC:
        return caller.issued_us
    return credential.created_us if credential.scheme is Scheme.LOGIN else EVER


def _standing(
    snapshot: Snapshot, caller: Caller, principal: Principal | None, credential: Credential | None
) -> CallerStanding:
    subjects = (*([principal.id] if principal is not None else []), *[GROUP + name for name in caller.groups])
    own = [caller.expires_us, credential.expires_us if credential is not None else None]
    bindings = [grant.binding.expires_us for subject in subjects for grant in snapshot.grants.get(subject, ())]
    return CallerStanding(
        principal=principal,
        tenant_id=principal.tenant_id if principal is not None else caller.tenant_id,
        subjects=subjects,
        credential=credential,
        expires_us=min([end for end in own if end is not None], default=EVER),
        ends=tuple([end for end in (*own, *bindings) if end is not None]),
    )
