"""The records about people, services and their rights. Instants are microseconds since 1970, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """The kind of a principal."""

    USER = "user"
    SERVICE = "service"


class Scheme(StrEnum):
    """The scheme of a credential."""

    KEY = "key"
    LOGIN = "login"
    """A key that was given for a password. It ends with the password, and after half a day."""
    OIDC = "oidc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A customer, a site, a department: who owns devices. `devices` are patterns, in which `*` is any text."""

    id: str
    name: str
    devices: tuple[str, ...]
    created_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A person or a program. `tenant_id` is None for who operates Homing itself, and so belongs to no tenant."""

    id: str
    tenant_id: str | None
    kind: Kind
    name: str
    email: str | None = None
    password_hash: str | None = field(default=None, repr=False)
    """argon2id, in PHC string format; only people have one."""
    disabled_us: int | None = None
    not_before_us: int = 0
    """Tokens that were issued before are not accepted any more, nor keys that were given for a password."""
    created_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """By what a principal is known: an API key, or an identity of an OIDC issuer."""

    id: str
    """Public: it stands in lists and logs."""
    principal_id: str
    scheme: Scheme
    name: str
    digest: bytes | None = field(default=None, repr=False)
    """The SHA-256 of a key's secret; the secret is not kept."""
    issuer: str | None = None
    subject: str | None = None
    narrow: tuple[str, ...] = ()
    """Rules; when there are any, the key may do only what both they and the principal's roles allow."""
    created_us: int
    expires_us: int | None = None
    """None: never."""
    revoked_us: int | None = None
    last_used_us: int | None = None
    """The last use of the credential, to the minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A named list of rules, each one line of text. `tenant_id` is None for one that every tenant may bind."""

    name: str
    tenant_id: str | None
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Gives a role to a principal's id, or to `group:NAME` of a token's claim."""

    id: str
    subject: str
    role: str
    tenant_id: str | None
    """The tenant in which the binding counts; None: in every tenant."""
    devices: tuple[str, ...] = ("*",)
    """Narrows the role to devices that fit one of these patterns."""
    expires_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The record that a tenant keeps about a device, so that callers need not repeat it."""

    id: str
    tenant_id: str
    profile: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """All of it at one moment, as one transaction read it. `version` grows by one with each change.

    `cluster_id` tells one directory from another: nodes with different ones are no cluster.
    """

    cluster_id: str
    version: int
    tenants: tuple[Tenant, ...] = ()
    principals: tuple[Principal, ...] = ()
    credentials: tuple[Credential, ...] = ()
    roles: tuple[Role, ...] = ()
    bindings: tuple[Binding, ...] = ()
    devices: tuple[Device, ...] = ()
