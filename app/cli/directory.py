"""The verbs of access share this: the directory that the settings name, and how they change it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from getpass import getuser
from typing import TYPE_CHECKING, Final, TypeVar

from app.cli.output import Stop
from app.core.clock import wall_us
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from app.core.access.changes import Change
    from app.core.access.model import Binding, Document, Principal
    from app.core.audit.chain import Author
    from app.store.directory import AccessDirectory

T = TypeVar("T")
Decide = Callable[["Document"], "Sequence[Change]"]

FOLLOWED: Final = "Nodes follow within HOMING_ACCESS_REFRESH (0.5 s); one that cannot says so at /readyz."
"""The instant at which a change counts, for whoever wants to be sure."""
_TRIES: Final = 10


def with_directory(work: Callable[[AccessDirectory], Awaitable[T]], *, first: bool = False) -> T:
    """Do `work` with the directory of the settings; its expected errors end the command with exit code 2.

    `first`: `work` will make the tables. So they are not looked for, and the folder of a SQLite file that nobody has
    named is made.
    """
    from app.core.errors import DirectoryError, DirectoryUnavailableError, InvalidInputError
    from app.runtime.system import new_secret
    from app.settings import load_settings
    from app.store.engine import open_directory

    access = load_settings().access
    if first and not access.url:
        access.state_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def run() -> T:
        directory = open_directory(access.directory_url, new_cluster_id=new_secret, budget=access.budget)
        try:
            if not first:
                await directory.start()
            return await work(directory)
        finally:
            await directory.close()

    try:
        return asyncio.run(run())
    except (DirectoryError, DirectoryUnavailableError, InvalidInputError) as error:
        raise Stop(str(error), Exit.USAGE) from None


async def change(directory: AccessDirectory, decide: Decide) -> Document:
    """Make the changes that `decide` finds in the document; what it is after them.

    It decides again when somebody else was quicker. What nodes could not read is refused (InvalidInputError), and so is
    what leaves nobody who may administer.
    """
    from app.core.errors import VersionConflictError

    for _ in range(_TRIES - 1):
        with suppress(VersionConflictError):
            return await _change_once(directory, decide)
    return await _change_once(directory, decide)


async def _change_once(directory: AccessDirectory, decide: Decide) -> Document:
    from app.core.access.admins import check_admins
    from app.core.access.plan import applied
    from app.core.access.snapshot import Snapshot

    current = await directory.read()
    changes = decide(current)
    after = applied(current, changes)
    Snapshot.of(after)
    check_admins(current, after, instant())
    await directory.apply(changes, expected_version=current.version, author=_author())
    return after


def _author() -> Author | None:
    """Return who makes a change, where that is put on record."""
    from app.settings import load_settings

    return None if load_settings().audit == "off" else author()


def author() -> Author:
    """Return who is at the keyboard, for the audit."""
    from app.core.audit.chain import Author

    try:
        name = f"cli:{getuser()}"
    except (OSError, KeyError):  # a container has users without names
        name = "cli"
    return Author(principal=name, via="cli", at_us=instant())


def find(document: Document, name: str, tenant: str | None = None) -> Principal | None:
    """The principal of this id, or else of this name in the tenant.

    Without a tenant also one of a tenant whose id says so: `north/ann`. Stop when another tenant has taken the id.
    """
    of_id = next((one for one in document.principals if one.id == name), None)
    if of_id is not None and (of_id.tenant_id == tenant or (tenant is None and _says_its_tenant(of_id))):
        return of_id
    of_name = next((one for one in document.principals if (one.name, one.tenant_id) == (name, tenant)), None)
    if of_name is None and of_id is not None and tenant is None:
        raise taken(of_id)
    return of_name


def taken(principal: Principal) -> Stop:
    """Return why somebody else cannot have this id."""
    where = "no tenant" if principal.tenant_id is None else f"tenant {principal.tenant_id!a}"
    hint = "" if principal.tenant_id is None else f"; if you mean that one, add --tenant {principal.tenant_id}"
    return Stop(f"{principal.id!a} is on record already, as a principal of {where}{hint}", Exit.USAGE)


def _says_its_tenant(principal: Principal) -> bool:
    return principal.id.startswith(f"{principal.tenant_id}/")


def new_id(document: Document, name: str, tenant: str | None) -> str:
    """The id of a new principal of this name; Stop when it is taken."""
    from app.access.access_file import check_new_id

    identity = name if tenant is None else f"{tenant}/{name}"
    known = next((one for one in document.principals if one.id == identity), None) or find(document, name, tenant)
    if known is not None:
        raise taken(known)
    check_new_id(identity)
    return identity


def new_bindings(
    document: Document, subject: str, roles: Sequence[str], devices: Sequence[str], tenant: str | None
) -> list[Binding]:
    """Bindings to the roles that are not there yet; Stop when one is there with other devices."""
    from app.access.access_file import binding_id
    from app.core.access.model import Binding

    known = {one.id: one for one in document.bindings}
    found = []
    for role in roles:
        new = Binding(
            id=binding_id(subject, role, tenant),
            subject=subject,
            role=role,
            tenant_id=tenant,
            devices=tuple(devices) or ("*",),
        )
        old = known.get(new.id)
        if old is None:
            found.append(new)
        elif old != new:
            has = ", ".join(old.devices)
            raise Stop(
                f"{subject!a} has the role {role!a} on {has} already: homing access apply changes it", Exit.USAGE
            )
    return found


def instant() -> int:
    """Now, in microseconds."""
    from app.runtime.system import SystemClock

    return wall_us(SystemClock())


def end_of(days: int, now_us: int, *, never: bool) -> int | None:
    """The instant at which a key ends that is made now."""
    return None if never else now_us + timedelta(days=days) // timedelta(microseconds=1)


def shown(microseconds: int | None) -> str:
    """An instant to the minute, UTC; a dash for none."""
    from app.access.access_file import instant_of

    return "-" if microseconds is None else f"{instant_of(microseconds):%Y-%m-%d %H:%M}Z"
