"""Entries of the directory as rows of its tables, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from sys import intern
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, RowMapping, Table

from app.core.access.callers import GROUP
from app.core.access.changes import Entry, Put, named
from app.core.access.model import Binding, Credential, Device, Kind, Principal, Role, Scheme, Tenant
from app.core.errors import InvalidInputError
from app.store.sql import tables

MAX_TEXT: Final = 65_536
"""Characters of one value."""
MAX_INTEGER: Final = 2**63 - 1

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})

Row = dict[str, Any]


class Mapped(NamedTuple):
    """The mapping of entries of one kind to rows of a table."""

    table: Table
    to_row: Callable[[Any], Row]
    from_row: Callable[[RowMapping], Any]

    def is_at(self, identity: str, tenant_id: str | None) -> tuple[ColumnElement[bool], ...]:
        """Conditions that are true of the row of this identity alone."""
        if self.table is tables.roles:
            return (tables.roles.c.name == identity, tables.roles.c.scope == (tenant_id or ""))
        return (self.table.c.id == identity,)


def row_of(put: Put) -> Row:
    """The row of an entry; InvalidInputError when one of its values cannot be kept by every database."""
    row = MAPPED[type(put.entry)].to_row(put.entry)
    for column, value in row.items():
        if (fault := _fault(column, value)) is not None:
            raise InvalidInputError(column, f"{named(put)}: {fault}")
    return row


def _fault(column: str, value: object) -> str | None:
    match value:
        case "" if column in {"id", "tenant_id"}:
            return "is empty"
        case str() if len(value) > MAX_TEXT:
            return f"has {len(value)} characters; allowed: at most {MAX_TEXT}"
        case str() if "\0" in value:
            return "has a NUL character, which PostgreSQL cannot keep"
        case str() if any("\ud800" <= character <= "\udfff" for character in value):
            return "has half of a surrogate pair, which is no character"
        case int() if not 0 <= value <= MAX_INTEGER:
            return f"is {value}; allowed: 0 to 2^63-1"
    return None


def _list(texts: tuple[str, ...]) -> str:
    return json.dumps(texts, ensure_ascii=False)


def _tuple(written: str) -> tuple[str, ...]:
    return tuple(json.loads(written))


def _tenant_row(entry: Tenant) -> Row:
    return {"id": entry.id, "name": entry.name, "devices": _list(entry.devices), "created_us": entry.created_us}


def _tenant(row: RowMapping) -> Tenant:
    return Tenant(id=row["id"], name=row["name"], devices=_tuple(row["devices"]), created_us=row["created_us"])


def _principal_row(entry: Principal) -> Row:
    if entry.id.startswith(GROUP):
        raise InvalidInputError("id", f"{named(Put(entry))}: begins with {GROUP}, as groups do in bindings")
    return {
        "id": entry.id,
        "tenant_id": entry.tenant_id,
        "kind": entry.kind.value,
        "name": entry.name,
        "email": entry.email,
        "password_hash": entry.password_hash,
        "disabled_us": entry.disabled_us,
        "not_before_us": entry.not_before_us,
        "created_us": entry.created_us,
    }


def _principal(row: RowMapping) -> Principal:
    return Principal(**{**row, "kind": Kind(row["kind"])})


def _credential_row(entry: Credential) -> Row:
    return {
        "id": entry.id,
        "principal_id": entry.principal_id,
        "scheme": entry.scheme.value,
        "name": entry.name,
        "digest": entry.digest,
        "issuer": entry.issuer,
        "subject": entry.subject,
        "narrow": _list(entry.narrow),
        "created_us": entry.created_us,
        "expires_us": entry.expires_us,
        "revoked_us": entry.revoked_us,
        "last_used_us": entry.last_used_us,
    }


def _credential(row: RowMapping) -> Credential:
    return Credential(**{**row, "scheme": Scheme(row["scheme"]), "narrow": _tuple(row["narrow"])})


def _role_row(entry: Role) -> Row:
    rules = _list(entry.rules)
    return {"scope": entry.tenant_id or "", "name": entry.name, "tenant_id": entry.tenant_id, "rules": rules}


def _role(row: RowMapping) -> Role:
    return Role(name=row["name"], tenant_id=row["tenant_id"], rules=_tuple(row["rules"]))


def _binding_row(entry: Binding) -> Row:
    group = entry.subject.removeprefix(GROUP) if entry.subject.startswith(GROUP) else None
    return {
        "id": entry.id,
        "principal_id": entry.subject if group is None else None,
        "group_name": group,
        "role": entry.role,
        "tenant_id": entry.tenant_id,
        "devices": _list(entry.devices),
        "expires_us": entry.expires_us,
    }


def _binding(row: RowMapping) -> Binding:
    group = row["group_name"]
    return Binding(
        id=row["id"],
        subject=row["principal_id"] if group is None else GROUP + group,
        role=row["role"],
        tenant_id=row["tenant_id"],
        devices=_tuple(row["devices"]),
        expires_us=row["expires_us"],
    )


def _device_row(entry: Device) -> Row:
    labels = json.dumps(dict(sorted(entry.labels.items())), ensure_ascii=False)
    profile, note = entry.profile, entry.note
    return {"id": entry.id, "tenant_id": entry.tenant_id, "profile": profile, "labels": labels, "note": note}


def _device(row: RowMapping) -> Device:
    labels, profile = row["labels"], row["profile"]
    return Device(  # there may be very many, so what they have in common is there once
        id=row["id"],
        tenant_id=intern(row["tenant_id"]),
        profile=None if profile is None else intern(profile),
        labels=NO_LABELS if labels == "{}" else json.loads(labels),
        note=row["note"],
    )


MAPPED: Final[Mapping[type[Entry], Mapped]] = {
    Tenant: Mapped(tables.tenants, _tenant_row, _tenant),
    Principal: Mapped(tables.principals, _principal_row, _principal),
    Credential: Mapped(tables.credentials, _credential_row, _credential),
    Role: Mapped(tables.roles, _role_row, _role),
    Binding: Mapped(tables.bindings, _binding_row, _binding),
    Device: Mapped(tables.devices, _device_row, _device),
}
