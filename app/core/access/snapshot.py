"""All of the access directory at one moment, compiled, so that a decision is a few look-ups.

A document with a fault is refused whole, and the error names it: to leave out the faulty rule alone could open what it
denied. Who writes the directory builds a snapshot of what it is about to write, so that no node ever meets a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import chain, combinations
from types import MappingProxyType
from typing import Final, TypeVar

from app.core.access.callers import GROUP, Caller, CallerStanding, Refusal
from app.core.access.memo import SIZE, Memo
from app.core.access.model import Binding, Credential, Device, Document, Principal, Role, Scheme, Tenant
from app.core.access.patterns import expression, overlap, validate_pattern
from app.core.access.questions import AccessAnswer, Asked
from app.core.access.rules import BUILT_IN, parse_rules
from app.core.access.ruleset import DevicePatterns, RuleSet
from app.core.errors import InvalidInputError

DEFAULT_TENANT: Final = Tenant(id="default", name="default", devices=("*",), created_us=0)
"""Owns every device as long as no tenant is on record."""

_DIGEST_BYTES: Final = 32

E = TypeVar("E")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Grant:
    """A binding with what it gives."""

    binding: Binding
    rules: RuleSet
    devices: DevicePatterns

    def counts(self, device: str, now_us: int) -> bool:
        """True if the grant counts for the device at this instant."""
        expires_us = self.binding.expires_us
        return (expires_us is None or now_us < expires_us) and self.devices.fit(device)


@dataclass(frozen=True, slots=True)
class HeldRules:
    """The rules that somebody's bindings give for the devices of one tenant."""

    always: RuleSet
    """The rules of the bindings that are for all devices and do not expire."""
    sometimes: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Never changes, apart from what it remembers of its answers. All its mappings are read-only."""

    cluster_id: str
    version: int
    tenancy: Tenancy
    principals: Mapping[str, Principal]
    credentials: Mapping[str, Credential]
    keys: Mapping[bytes, str]
    """Ids of credentials by the digest of the key."""
    identities: Mapping[tuple[str, str], str]
    """Ids of credentials by issuer and subject."""
    narrows: Mapping[str, RuleSet]
    """The rules that narrow a key, by the id of the credential."""
    roles: Mapping[tuple[str | None, str], RuleSet]
    """The rules of each role, by tenant and name."""
    grants: Mapping[str, tuple[Grant, ...]]
    """The grants, by the subject of the binding."""
    devices: Mapping[str, Device]
    counts_open: bool = False
    """True if a rule limits how many commands may be open."""
    answers: Memo[Asked, AccessAnswer] = field(default_factory=Memo, init=False, repr=False, compare=False)
    standings: Memo[Caller, CallerStanding | Refusal] = field(
        default_factory=Memo, init=False, repr=False, compare=False
    )
    _held: Memo[tuple[tuple[str, ...], str | None], HeldRules] = field(
        default_factory=Memo, init=False, repr=False, compare=False
    )
    _together: Memo[tuple[RuleSet, ...], RuleSet] = field(default_factory=Memo, init=False, repr=False, compare=False)
    known: Memo[bytes, tuple[Caller, int]] = field(default_factory=Memo, init=False, repr=False, compare=False)
    """The caller who has shown a key, and the instant until which it counts, by the SHA-256 of the key."""

    @classmethod
    def of(cls, document: Document) -> Snapshot:
        """The snapshot of a document; raises InvalidInputError that names what is wrong.

        With thousands of credentials it takes a part of a second: not for the event loop.
        """
        credentials = _by("credentials", document.credentials, lambda one: one.id)
        roles = _roles(document.roles)
        narrows = MappingProxyType({one.id: _narrow(one) for one in credentials.values() if one.narrow})
        return cls(
            cluster_id=document.cluster_id,
            version=document.version,
            tenancy=_tenancy(document.tenants or (DEFAULT_TENANT,), document.devices),
            principals=_principals(document.principals),
            credentials=credentials,
            keys=_keys(credentials.values()),
            identities=_identities(credentials.values()),
            narrows=narrows,
            roles=roles,
            grants=_grants(document.bindings, roles),
            devices=_by("devices", document.devices, lambda one: one.id),
            counts_open=any(one.counts_open for one in chain(roles.values(), narrows.values())),
        )

    def held(self, subjects: tuple[str, ...], owner: str | None) -> HeldRules:
        """The rules that the bindings of these subjects give for devices of this tenant, or of none."""
        held = self._held.get((subjects, owner))
        if held is None:
            every = [one for subject in subjects for one in self.grants.get(subject, ())]
            here = [one for one in every if one.binding.tenant_id in (None, owner)]
            fixed = [one for one in here if one.devices.are_all and one.binding.expires_us is None]
            always = self.together(tuple(one.rules for one in fixed))
            held = HeldRules(always, tuple(one for one in here if one not in fixed))
            self._held.put((subjects, owner), held)
        return held

    def together(self, sets: tuple[RuleSet, ...]) -> RuleSet:
        """The rules of all these sets."""
        rules = self._together.get(sets)
        if rules is None:
            distinct = tuple(dict.fromkeys(sets))
            rules = distinct[0] if len(distinct) == 1 else RuleSet([rule for one in distinct for rule in one.rules])
            self._together.put(sets, rules)
        return rules

    def without(self, credential_ids: Collection[str], now_us: int) -> Snapshot:
        """This one with some credentials revoked: it serves until the next snapshot is there."""
        revoked = {
            one: replace(self.credentials[one], revoked_us=now_us)
            for one in credential_ids
            if one in self.credentials and self.credentials[one].revoked_us is None
        }
        return replace(self, credentials=MappingProxyType({**self.credentials, **revoked}))


class Tenancy:
    """To whom devices belong."""

    __slots__ = ("_on_record", "_owners", "_pattern", "ids", "owner_by_pattern", "patterns")

    def __init__(self, tenants: Iterable[Tenant], devices: Iterable[Device]) -> None:
        tenants = tuple(tenants)
        self.ids: Final = tuple(tenant.id for tenant in tenants)
        self.patterns: Final = {tenant.id: frozenset(tenant.devices) for tenant in tenants}
        owned = [(tenant.id, expression(pattern)) for tenant in tenants for pattern in tenant.devices]
        self._owners: Final = tuple(tenant_id for tenant_id, _ in owned)
        self._pattern: Final = re.compile("|".join(f"({pattern})" for _, pattern in owned) or "(?!)")
        self.owner_by_pattern: Final = lru_cache(SIZE)(self._find)
        """The tenant of a device that is not on record. Any thread may ask."""
        self._on_record: Final = {device.id: device.tenant_id for device in devices}

    def owner(self, device: str) -> str | None:
        """The tenant of its record; of a device without one, the tenant whose pattern fits; else None."""
        tenant_id = self._on_record.get(device)
        return self.owner_by_pattern(device) if tenant_id is None else tenant_id

    def _find(self, device: str) -> str | None:
        found = self._pattern.fullmatch(device)
        return self._owners[found.lastindex - 1] if found and found.lastindex else None


def _tenancy(tenants: Iterable[Tenant], devices: Iterable[Device]) -> Tenancy:
    known = _by("tenants", tenants, lambda one: one.id)
    owned = [(tenant.id, pattern) for tenant in known.values() for pattern in tenant.devices]
    for tenant_id, pattern in owned:
        _check_pattern("tenants", f"tenant {tenant_id!a}", pattern)
    for (one, pattern), (other, other_pattern) in combinations(owned, 2):
        if one != other and overlap(pattern, other_pattern):
            raise InvalidInputError(
                "tenants", f"{pattern} of {one!a} and {other_pattern} of {other!a} overlap; a device has one tenant"
            )
    return Tenancy(known.values(), devices)


def _principals(principals: Iterable[Principal]) -> Mapping[str, Principal]:
    for one in principals:
        if one.id.startswith(GROUP):
            raise InvalidInputError("principals", f"id {one.id!a} begins with {GROUP}, which stands for groups")
    return _by("principals", principals, lambda one: one.id)


def _keys(credentials: Iterable[Credential]) -> Mapping[bytes, str]:
    keys = [one for one in credentials if one.scheme in (Scheme.KEY, Scheme.LOGIN)]
    for one in keys:
        if one.digest is None or len(one.digest) != _DIGEST_BYTES:
            raise InvalidInputError("credentials", f"key {one.id!a} has no digest of {_DIGEST_BYTES} bytes")
    found = _by("credentials", keys, lambda one: one.digest or b"", _shown_digest)
    return MappingProxyType({digest: one.id for digest, one in found.items()})


def _identities(credentials: Iterable[Credential]) -> Mapping[tuple[str, str], str]:
    identities = [one for one in credentials if one.scheme is Scheme.OIDC]
    for one in identities:
        if not one.issuer or not one.subject:
            raise InvalidInputError("credentials", f"identity {one.id!a} has no issuer or no subject; it needs both")
    found = _by("credentials", identities, lambda one: (one.issuer or "", one.subject or ""))
    return MappingProxyType({identity: one.id for identity, one in found.items()})


def _narrow(credential: Credential) -> RuleSet:
    return _compiled(credential.narrow, f"(key {credential.id})")


def _roles(roles: Iterable[Role]) -> Mapping[tuple[str | None, str], RuleSet]:
    """The roles by tenant and name.

    A name is one role each, so that no tenant puts its own in the place of one that binds it.
    """
    roles = tuple(roles)
    everywhere = {role.name for role in roles if role.tenant_id is None}
    for role in roles:
        if role.name in BUILT_IN:
            raise InvalidInputError("roles", f"{role.name!a} is built in; allowed: any other name")
        if role.tenant_id is not None and role.name in everywhere:
            raise InvalidInputError(
                "roles", f"{role.name!a} of {role.tenant_id!a} has the name of a role of all tenants"
            )
    own = _by("roles", roles, lambda role: (role.tenant_id, role.name))
    return MappingProxyType(_built_in() | {key: _compiled(role.rules, role.name) for key, role in own.items()})


@cache
def _built_in() -> dict[tuple[str | None, str], RuleSet]:
    return {(None, name): _compiled(lines, name) for name, lines in BUILT_IN.items()}


@lru_cache(maxsize=1_024)
def _compiled(lines: tuple[str, ...], role: str) -> RuleSet:
    """Most roles are in the next snapshot as they were in the last one."""
    return RuleSet(parse_rules(lines, role))


def _grants(
    bindings: Iterable[Binding], roles: Mapping[tuple[str | None, str], RuleSet]
) -> Mapping[str, tuple[Grant, ...]]:
    grants: dict[str, list[Grant]] = {}
    for binding in _by("bindings", bindings, lambda one: one.id).values():
        rules = roles.get((binding.tenant_id, binding.role)) or roles.get((None, binding.role))
        if rules is None:
            raise InvalidInputError("bindings", f"{binding.id!a} names the role {binding.role!a}, which is not there")
        for pattern in binding.devices:
            _check_pattern("bindings", f"binding {binding.id!a}", pattern)
        grants.setdefault(binding.subject, []).append(Grant(binding, rules, DevicePatterns(binding.devices)))
    return MappingProxyType({subject: tuple(found) for subject, found in grants.items()})


def _check_pattern(what: str, whose: str, pattern: str) -> None:
    try:
        escaped = validate_pattern("devices", pattern)
    except InvalidInputError as error:
        raise InvalidInputError(what, f"{whose}, pattern {pattern!a}: {error.reason}") from None
    if "," in pattern:
        told = "is one pattern with a comma in it: give each by itself (--devices twice, or two members of the list)"
        raise InvalidInputError(what, f"{whose}, pattern {pattern!a}: {told}")
    if escaped != pattern:  # patterns are compared with each other as texts
        raise InvalidInputError(what, f"{whose}, pattern {pattern!a}: is to be escaped, as {escaped}")


def _by(what: str, entries: Iterable[E], key: Callable[[E], K], shown: Callable[[K], object] = ascii) -> Mapping[K, E]:
    """The entries by what is theirs alone; raises InvalidInputError when it is not."""
    found: dict[K, E] = {}
    for entry in entries:
        identity = key(entry)
        if identity in found:
            raise InvalidInputError(what, f"two of them are {shown(identity)}; allowed is one")
        found[identity] = entry
    return MappingProxyType(found)


def _shown_digest(digest: bytes) -> str:
    return f"keys with the digest {digest.hex()[:8]}…"
