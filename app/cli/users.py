"""`homing users`: people, in the directory of the settings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.directory import FOLLOWED, change, find, instant, new_bindings, new_id, shown, with_directory
from app.cli.output import Form, Stop, err, needs_terminal, table, tell
from app.cli.standard_input import read_line
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.core.access.changes import Change
    from app.core.access.model import Document, Principal
    from app.store.directory import AccessDirectory

application = typer.Typer(
    help="Add, list and disable people and set their passwords, directly in the database of HOMING_ACCESS_URL.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The person's name or id.")]
OfTenant = Annotated[
    str | None, typer.Option("--tenant", help="The tenant of the person. By default, the person has none.")
]
FromStdin = Annotated[bool, typer.Option("--password-stdin", "--stdin", help="Read the password from standard input.")]


@application.command()
def add(
    name: Name,
    *,
    tenant: OfTenant = None,
    email: Annotated[str | None, typer.Option(help="The e-mail address of the person.")] = None,
    role: Annotated[list[str] | None, typer.Option(help="A role to give. Repeatable.")] = None,
    devices: Annotated[
        list[str] | None, typer.Option(help="The devices that the role is limited to, such as dock-*. Repeatable.")
    ] = None,
    password_stdin: FromStdin = False,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Do not set a password; the person cannot log in with one.")
    ] = False,
) -> None:
    """Add a person. It asks for the password. Exit code: 0 added, 2 it cannot be done."""
    from app.core.access.changes import Put
    from app.core.access.model import Kind, Principal

    if devices and not role:
        raise Stop("--devices: says for which devices a --role counts, and there is none", Exit.USAGE)
    hashed = None if no_password else _ask(from_stdin=password_stdin)
    now_us = instant()

    def decide(document: Document) -> Sequence[Change]:
        person = Principal(
            id=new_id(document, name, tenant),
            tenant_id=tenant,
            kind=Kind.USER,
            name=name,
            email=email,
            password_hash=hashed,
            created_us=now_us,
        )
        return [Put(person), *map(Put, new_bindings(document, person.id, role or (), devices or (), tenant))]

    with_directory(lambda directory: change(directory, decide))
    tell(err, f"{name} is on record." if role else f"{name} is on record, and may do nothing yet: no --role was given.")


@application.command()
def passwd(name: Name, *, tenant: OfTenant = None, password_stdin: FromStdin = False) -> None:
    """Set a password. Logins with the old one end. Exit code: 0 set, 2 it cannot be done."""
    from app.core.access.changes import Put

    hashed, now_us = _ask(from_stdin=password_stdin), instant()

    def decide(document: Document) -> Sequence[Change]:
        person = _find(document, name, tenant)
        return [Put(replace(person, password_hash=hashed, not_before_us=max(now_us, person.not_before_us)))]

    with_directory(lambda directory: change(directory, decide))
    tell(err, f"{name} has a new password.")


@application.command()
def disable(
    name: Name,
    *,
    tenant: OfTenant = None,
    undo: Annotated[bool, typer.Option("--undo", help="Enable the person again.")] = False,
) -> None:
    """Disable a person or service, with all keys and passwords. Exit code: 0 done, 2 it cannot be done."""
    from app.core.access.changes import Put

    now_us = instant()

    def decide(document: Document) -> Sequence[Change]:
        one = _find(document, name, tenant, people_only=False)
        if undo == (one.disabled_us is None):
            return ()
        return [Put(replace(one, disabled_us=None if undo else now_us))]

    with_directory(lambda directory: change(directory, decide))
    tell(err, f"{name} is {'let in again' if undo else 'disabled'}. {FOLLOWED}")


@application.command("list")
def list_users(*, services: Annotated[bool, typer.Option("--services", help="Include services.")] = False) -> None:
    """List people: id, name, tenant, roles, and whether they are disabled."""
    from app.core.access.model import Kind

    async def read(directory: AccessDirectory) -> Document:
        return await directory.read()

    document = with_directory(read)

    def row(one: Principal) -> tuple[str, ...]:
        roles = [f"{by.role} on {' '.join(by.devices)}" for by in document.bindings if by.subject == one.id]
        state = "" if one.disabled_us is None else f"disabled since {shown(one.disabled_us)}"
        return (one.id, one.name, one.kind.value, one.tenant_id or "-", ", ".join(roles) or "-", state)

    found = [one for one in document.principals if services or one.kind is Kind.USER]
    table(Form.HUMAN, found, row, ("id", "name", "kind", "tenant", "roles", "state"))


def _find(document: Document, name: str, tenant: str | None, *, people_only: bool = True) -> Principal:
    from app.core.access.model import Kind

    found = find(document, name, tenant)
    if found is None:
        raise Stop(f"{name!a} is not on record; homing users list --services shows who is", Exit.USAGE)
    if people_only and found.kind is not Kind.USER:
        raise Stop(f"{name!a} is a service, and has keys and no password", Exit.USAGE)
    return found


def _ask(*, from_stdin: bool) -> str:
    """The hash of a password that was typed twice, or came from a program."""
    from app.access.login.passwords import MAX_LENGTH, Passwords
    from app.core.errors import InvalidInputError

    if from_stdin:
        password = read_line(MAX_LENGTH)
    else:
        needs_terminal("--password-stdin")
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    passwords = Passwords()
    try:
        return asyncio.run(passwords.hash(password))
    except InvalidInputError as error:
        raise Stop(str(error), Exit.USAGE) from None
    finally:
        passwords.close()
