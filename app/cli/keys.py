"""`homing keys`: API keys of people and services, in the directory of the settings."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.access import Days, Never
from app.cli.directory import (
    FOLLOWED,
    change,
    end_of,
    find,
    instant,
    new_bindings,
    new_id,
    shown,
    taken,
    with_directory,
)
from app.cli.output import Form, Stop, err, out, table, tell
from app.core.access.admins import counts
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.core.access.changes import Change
    from app.core.access.keys import Key
    from app.core.access.model import Credential, Document
    from app.store.directory import AccessDirectory

application = typer.Typer(
    help="Create, list, rotate and revoke API keys, directly in the database of HOMING_ACCESS_URL.",
    no_args_is_help=True,
)

KeyId = Annotated[str, typer.Argument(help="The id of the key, which is part of the key. homing keys list shows it.")]


@application.command()
def create(
    principal: Annotated[
        str,
        typer.Argument(help="The principal that the key is for. If there is none, a service of this name is created."),
    ],
    *,
    role: Annotated[list[str] | None, typer.Option(help="A role to give to the principal. Repeatable.")] = None,
    devices: Annotated[
        list[str] | None, typer.Option(help="The devices that the role is limited to, such as dock-*. Repeatable.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant of the principal. By default, it has none.")] = None,
    narrow: Annotated[list[str] | None, typer.Option(help="A rule that narrows the key. Repeatable.")] = None,
    label: Annotated[str, typer.Option(help="The purpose of the key, shown in lists.")] = "",
    device: Annotated[
        bool,
        typer.Option(
            "--device",
            help="The key is for the device of this id, which may do at the node's broker what its profile says.",
        ),
    ] = False,
    days: Days = 90,
    never: Never = False,
) -> None:
    """Create a key and print it once, on standard output. Exit code: 0 created, 2 it cannot be created."""
    from app.core.access.changes import Put
    from app.core.access.model import Kind, Principal

    if devices and not role:
        raise Stop("--devices: says for which devices a --role counts, and there is none", Exit.USAGE)
    key, now_us = _new_key(), instant()
    if device:
        if role or tenant is not None or narrow:
            raise Stop("--device: its key meets no rules; --role, --tenant and --narrow are for others", Exit.USAGE)
        _create_for_device(key, principal, label, now_us, end_of(days, now_us, never=never))
        return

    def decide(document: Document) -> Sequence[Change]:
        owner = find(document, principal, tenant)
        if owner is not None and owner.tenant_id != tenant:
            raise taken(owner)
        made = owner or Principal(
            id=new_id(document, principal, tenant),
            tenant_id=tenant,
            kind=Kind.SERVICE,
            name=principal,
            created_us=now_us,
        )
        credential = replace(
            _credential(key, made.id, label or principal, now_us, end_of(days, now_us, never=never)),
            narrow=tuple(narrow or ()),
        )
        bindings = new_bindings(document, made.id, role or (), devices or (), made.tenant_id)
        return [*([] if owner else [Put(made)]), *map(Put, bindings), Put(credential)]

    after = with_directory(lambda directory: change(directory, decide))
    owner = find(after, principal, tenant)
    subject = owner.id if owner else principal
    if not any(one.subject == subject for one in after.bindings):
        tell(err, f"{principal} has no role yet, and may do nothing: add --role, or bind it by homing access apply.")
    _show(key, principal)


def _create_for_device(key: Key, device: str, label: str, now_us: int, expires_us: int | None) -> None:
    from app.core.access.changes import Put
    from app.core.access.devices import device_principal
    from app.core.access.snapshot import Snapshot
    from app.core.errors import EntryConflictError, InvalidInputError

    def decide(document: Document) -> Sequence[Change]:
        try:
            owner = device_principal(document, Snapshot.of(document).tenancy, device, now_us)
        except (EntryConflictError, InvalidInputError) as error:
            raise Stop(str(error), Exit.USAGE) from None
        credential = _credential(key, owner.id, label or owner.name, now_us, expires_us)
        return [*([] if owner in document.principals else [Put(owner)]), Put(credential)]

    with_directory(lambda directory: change(directory, decide))
    tell(err, f"At the broker of a node, {device} logs in with its id as the user name and the key as the password.")
    _show(key, device)


@application.command()
def new() -> None:
    """Create a key for HOMING_ACCESS_BOOTSTRAP_KEY. It is stored nowhere, and printed once, on standard output."""
    tell(out, _new_key().text)


@application.command("list")
def list_keys(
    *, everything: Annotated[bool, typer.Option("--all", help="Include revoked and expired keys.")] = False
) -> None:
    """List keys: id, principal, label, when each was created, expires and was used, and whether it is valid."""
    document, now_us = with_directory(_read), instant()
    names = {one.id: one.name for one in document.principals}

    def row(one: Credential) -> tuple[str, ...]:
        ends = "never" if one.expires_us is None else shown(one.expires_us)
        used, state = shown(one.last_used_us), _state(one, now_us)
        return (one.id, names[one.principal_id], one.name, shown(one.created_us), ends, used, state)

    found = [one for one in document.credentials if everything or counts(one, now_us)]
    table(Form.HUMAN, found, row, ("id", "of", "for", "made", "ends", "used", "state"))


@application.command()
def rotate(
    key_id: KeyId,
    *,
    grace: Annotated[
        str, typer.Option(help="The time for which the old key stays valid, such as 24h; 0s ends it now.")
    ] = "24h",
    days: Days = 90,
    never: Never = False,
) -> None:
    """Create a key with the same rights, and let the old one expire. Exit code: 0 done, 2 it cannot be created."""
    from app.core.access.changes import Put
    from app.core.access.endings import expiry
    from app.core.durations import parse_duration

    try:
        left_us = parse_duration(grace) // timedelta(microseconds=1)
    except ValueError as error:
        raise Stop(f"--grace: {error}", Exit.USAGE) from None
    key, now_us = _new_key(), instant()
    ends = now_us + left_us

    def decide(document: Document) -> Sequence[Change]:
        old = _find_key(document, key_id)
        if not counts(old, now_us):
            raise Stop(f"key {key_id!a} is {_state(old, now_us)}: make a new one by homing keys create", Exit.USAGE)
        new = _credential(key, old.principal_id, old.name, now_us, end_of(days, now_us, never=never))
        return [Put(one) for one in (replace(new, narrow=old.narrow), *expiry(old, document.credentials, ends, now_us))]

    after = with_directory(lambda directory: change(directory, decide))
    old = _find_key(after, key_id)
    tell(err, f"The old key {key_id} ends at {shown(old.expires_us)}.")
    _show(key, old.name)


@application.command()
def revoke(key_id: KeyId) -> None:
    """Revoke a key for good. Exit code: 0 revoked, 2 there is no such key."""
    from app.core.access.endings import revocation

    now_us = instant()

    def decide(document: Document) -> Sequence[Change]:
        return revocation(_find_key(document, key_id), document.credentials, now_us)

    after = with_directory(lambda directory: change(directory, decide))
    tell(err, f"Key {key_id} is revoked since {shown(_find_key(after, key_id).revoked_us)}. {FOLLOWED}")


async def _read(directory: AccessDirectory) -> Document:
    return await directory.read()


def _new_key() -> Key:
    from app.core.access.keys import make_key
    from app.runtime.system import random_bytes

    return make_key(random_bytes)


def _credential(key: Key, principal_id: str, name: str, now_us: int, expires_us: int | None) -> Credential:
    from app.core.access.model import Credential, Scheme

    return Credential(
        id=key.id,
        principal_id=principal_id,
        scheme=Scheme.KEY,
        name=name,
        digest=key.digest,
        created_us=now_us,
        expires_us=expires_us,
    )


def _find_key(document: Document, key_id: str) -> Credential:
    found = next((one for one in document.credentials if one.id == key_id), None)
    if found is None:
        # Somebody may have given the whole key, which must not come back on the screen.
        raise Stop("there is no key of this id; homing keys list --all shows all of them", Exit.USAGE)
    return found


def _state(one: Credential, now_us: int) -> str:
    if one.revoked_us is not None:
        return "revoked"
    return "valid" if counts(one, now_us) else "expired"


def _show(key: Key, whose: str) -> None:
    tell(err, f"The key of {whose}, shown once:")
    tell(out, key.text)
