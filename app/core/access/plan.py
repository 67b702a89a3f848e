"""Plans of changes: how a document becomes another one, and what a document is after changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from app.core.access.changes import Change, Entry, Put, Remove, Revoke, identity_of
from app.core.access.model import Binding, Credential, Device, Document, Principal, Role, Tenant

Key = tuple[type[Entry], str, str | None]
"""The parts that tell an entry from all others."""
E = TypeVar("E")

_SECTIONS: Final[Mapping[type[Entry], str]] = {
    Tenant: "tenants",
    Principal: "principals",
    Credential: "credentials",
    Role: "roles",
    Binding: "bindings",
    Device: "devices",
}


def plan(current: Document, wanted: Document) -> tuple[Change, ...]:
    """The changes that make the entries of `current` those of `wanted`, in an order in which they can be made.

    Of credentials only those are looked at that go: they come and change one by one.
    """
    return (
        *_puts(current, wanted, Tenant),
        # One that changes is made anew, as it may still name a principal that goes.
        *_removals(_changed(current, wanted, Binding) & entries_of(current, Binding).keys()),
        *_removals(entries_of(current, Binding).keys() - entries_of(wanted, Binding).keys()),
        *_removals(entries_of(current, Credential).keys() - entries_of(wanted, Credential).keys()),
        *_removals(entries_of(current, Principal).keys() - entries_of(wanted, Principal).keys()),
        *_puts(current, wanted, Principal),
        *_puts(current, wanted, Role),
        *_puts(current, wanted, Device),
        *_puts(current, wanted, Binding),
        *_removals(entries_of(current, Role).keys() - entries_of(wanted, Role).keys()),
        *_removals(entries_of(current, Device).keys() - entries_of(wanted, Device).keys()),
        *_removals(entries_of(current, Tenant).keys() - entries_of(wanted, Tenant).keys()),
    )


def applied(document: Document, changes: Sequence[Change]) -> Document:
    """The document after changes that can be made, with the next version."""
    entries = {key: entry for kind in _SECTIONS for key, entry in entries_of(document, kind).items()}
    for change in changes:
        match change:
            case Put(entry=entry):
                entries[_key(entry)] = entry
            case Remove():
                entries.pop((change.kind, change.id, change.tenant_id), None)
            case Revoke():
                key = (Credential, change.credential_id, None)
                credential = entries.get(key)
                if isinstance(credential, Credential) and credential.revoked_us is None:
                    entries[key] = replace(credential, revoked_us=change.at_us)
    after = entries.values()
    return replace(
        document,
        version=document.version + bool(changes),
        tenants=_only(after, Tenant),
        principals=_only(after, Principal),
        credentials=_only(after, Credential),
        roles=_only(after, Role),
        bindings=_only(after, Binding),
        devices=_only(after, Device),
    )


def differences(current: Document, wanted: Document) -> list[str]:
    """List what comes (+), goes (-) and changes (~), a line each: `+ role 'pilot' of tenant 'north'`."""
    lines = []
    for kind in _SECTIONS:
        before, after = entries_of(current, kind), entries_of(wanted, kind)
        signs = dict.fromkeys(before.keys() - after.keys(), "-") | dict.fromkeys(after.keys() - before.keys(), "+")
        signs |= {key: "~" for key in before.keys() & after.keys() if before[key] != after[key]}
        entries = before | after
        lines += [
            f"{signs[key]} {_shown(entries[key])}" for key in sorted(signs, key=lambda key: (key[1], str(key[2])))
        ]
    return lines


def _shown(entry: Entry) -> str:
    identity, tenant_id = identity_of(entry)
    return f"{type(entry).__name__.lower()} {identity!a}{'' if tenant_id is None else f' of tenant {tenant_id!a}'}"


def _key(entry: Entry) -> Key:
    return (type(entry), *identity_of(entry))


def entries_of(document: Document, kind: type[Entry]) -> dict[Key, Entry]:
    """All of a kind, by what tells each from all others."""
    found: Iterable[Entry] = getattr(document, _SECTIONS[kind])
    return {_key(entry): entry for entry in found}


def _only(entries: Iterable[object], kind: type[E]) -> tuple[E, ...]:
    return tuple(entry for entry in entries if isinstance(entry, kind))


def _changed(current: Document, wanted: Document, kind: type[Entry]) -> set[Key]:
    before = entries_of(current, kind)
    return {key for key, entry in entries_of(wanted, kind).items() if before.get(key) != entry}


def _puts(current: Document, wanted: Document, kind: type[Entry]) -> Iterator[Change]:
    changed = _changed(current, wanted, kind)
    return (Put(entry) for key, entry in entries_of(wanted, kind).items() if key in changed)


def _removals(keys: Iterable[Key]) -> Iterator[Change]:
    return (Remove(kind=kind, id=identity, tenant_id=tenant_id) for kind, identity, tenant_id in sorted(keys, key=str))
