"""Changes of the access directory, as values: what is decided in one place and written in another."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.access.model import Binding, Credential, Device, Principal, Role, Tenant

Entry = Tenant | Principal | Credential | Role | Binding | Device


@dataclass(frozen=True, slots=True)
class Put:
    """Add the entry, or replace all of the one with its identity.

    Two things of a credential are not replaced: `last_used_us`, which nodes write meanwhile, and a revocation, which is
    final.
    """

    entry: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Take the entry away. A role is named by its `id` and its tenant; all else by `id` alone."""

    kind: type[Entry]
    id: str
    tenant_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoke:
    """End a credential for ever. One that was revoked before keeps its first instant."""

    credential_id: str
    at_us: int


Change = Put | Remove | Revoke


def identity_of(entry: Entry) -> tuple[str, str | None]:
    """Its id, or its name when it is a role; and the tenant, which is part of the identity of roles alone."""
    return (entry.name, entry.tenant_id) if isinstance(entry, Role) else (entry.id, None)


def named(change: Change) -> str:
    """The subject of the change, for sentences: `principal 'ci'`."""
    match change:
        case Put(entry=entry):
            return _named(type(entry), *identity_of(entry))
        case Remove():
            return _named(change.kind, change.id, change.tenant_id)
        case Revoke():
            return _named(Credential, change.credential_id)


def _named(kind: type[Entry], identity: str, tenant_id: str | None = None) -> str:
    of_tenant = "" if tenant_id is None else f" of tenant {tenant_id[:64]!a}"
    return f"{kind.__name__.lower()} {identity[:128]!a}{of_tenant}"
