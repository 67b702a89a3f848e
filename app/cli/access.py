"""`homing access`: sets up the directory of people, services and their rights, and keeps it like a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.cli.directory import change, end_of, find, instant, with_directory
from app.cli.output import Stop, err, out, tell
from app.cli.standard_input import read_bytes
from app.core.access.admins import ADMIN, admins, check_admins
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.core.access.changes import Change
    from app.core.access.model import Document
    from app.store.directory import AccessDirectory

application = typer.Typer(
    help="Set up and change the access directory, directly in the database of HOMING_ACCESS_URL.",
    no_args_is_help=True,
)

MAX_BYTES: Final = 16 * 2**20
"""The size of a file to apply."""

Days = Annotated[int, typer.Option(min=1, max=3650, help="The number of days until the key expires.")]
Roles = Annotated[list[str] | None, typer.Option(help="A role to give. Repeatable.")]
Devices = Annotated[
    list[str] | None, typer.Option(help="The devices that the role is limited to, such as dock-*. Repeatable.")
]
Never = Annotated[bool, typer.Option("--never", help="The key never expires.")]


@application.command()
def init(*, days: Days = 90, never: Never = False) -> None:
    """Create the tables and the first key, which has all rights. The key is printed once, on standard output.

    If an administrator exists already, nothing is changed. Exit code: 0 done or nothing to do, 2 it cannot be done.
    """
    from app.core.access.changes import Put
    from app.core.access.keys import make_key
    from app.core.access.model import Binding, Credential, Kind, Principal, Scheme
    from app.core.access.snapshot import DEFAULT_TENANT
    from app.runtime.system import random_bytes

    key, now_us = make_key(random_bytes), instant()
    made = False

    def decide(document: Document) -> Sequence[Change]:
        nonlocal made
        made = not admins(document, now_us)
        if not made:
            return ()
        tenants = [] if document.tenants else [Put(DEFAULT_TENANT)]
        new = Principal(id=ADMIN, tenant_id=None, kind=Kind.SERVICE, name=ADMIN, created_us=now_us)
        admin = replace(find(document, ADMIN) or new, disabled_us=None)
        binding = Binding(id=f"{ADMIN}:{ADMIN}@*", subject=ADMIN, role=ADMIN, tenant_id=None)
        credential = Credential(
            id=key.id,
            principal_id=ADMIN,
            scheme=Scheme.KEY,
            name="first key",
            digest=key.digest,
            created_us=now_us,
            expires_us=end_of(days, now_us, never=never),
        )
        return [*tenants, Put(admin), Put(binding), Put(credential)]

    async def work(directory: AccessDirectory) -> Document:
        await directory.migrate()
        await directory.start()
        return await change(directory, decide)

    document = with_directory(work, first=True)
    if not made:
        names = ", ".join(sorted(one.name for one in admins(document, now_us)))
        tell(err, f"Access is set up already, and nothing was changed. It is administered by {names}.")
        return
    tell(err, "The key of admin, shown once. It may do everything:")
    tell(out, key.text)
    tell(err, "Next: homing keys create ci --role operator --devices 'dock-*'")


@application.command()
def migrate() -> None:
    """Migrate the tables to this version of Homing. Run it as a job before the new nodes start.

    Several may run at once. Nodes of the previous version keep working. Exit code: 0 done or nothing to do, 2 it cannot
    be done.
    """

    async def work(directory: AccessDirectory) -> bool:
        migrated = await directory.migrate()
        await directory.start()
        return migrated

    migrated = with_directory(work, first=True)
    tell(err, "The tables were migrated." if migrated else "The tables are as this version of Homing needs them.")


@application.command()
def backup(
    file: Annotated[Path, typer.Argument(help="The path of the copy. The file must not exist yet.")],
) -> None:
    """Copy the directory with keys, passwords and audit log while nodes use it. For PostgreSQL, use pg_dump instead.

    To restore it, stop all nodes and replace the file with the copy. Exit code: 0 done, 2 it cannot be done.
    """
    from app.core.errors import DirectoryUnavailableError
    from app.settings import load_settings
    from app.store.engine import back_up_directory

    try:
        back_up_directory(load_settings().access.directory_url, file)
    except DirectoryUnavailableError as error:
        raise Stop(str(error), Exit.USAGE) from None
    tell(err, f"The directory is in {file}. Keep that file as secret as the directory itself.")


@application.command()
def export() -> None:
    """Print tenants, principals, roles, bindings and devices as JSON, without keys and passwords."""
    from app.access.access_file import written

    async def read(directory: AccessDirectory) -> Document:
        return await directory.read()

    out.console.out(written(with_directory(read)), highlight=False)


@application.command()
def apply(
    file: Annotated[
        str, typer.Argument(help="A document in the format of homing access export; - reads standard input.")
    ],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes without making them.")] = False,
) -> None:
    """Apply a file to the directory in one change, and print what is added (+), removed (-) and changed (~).

    A section that the file does not have is left alone. Keys and passwords stay as they are, but a principal that is
    removed loses them. Exit code: 0 done or nothing to do, 2 the file cannot be applied.
    """
    from app.access.access_file import read_file, wanted
    from app.core.access.plan import differences, plan
    from app.core.access.snapshot import Snapshot

    name = "standard input" if file == "-" else file
    asked, now_us = read_file(_text_of(file), name), instant()
    lines: list[str] = []

    def decide(document: Document) -> Sequence[Change]:
        after = wanted(asked, document, now_us)
        lines[:] = differences(document, after)
        return plan(document, after)

    async def work(directory: AccessDirectory) -> None:
        if not dry_run:
            await change(directory, decide)
            return
        current = await directory.read()
        decide(current)
        after = wanted(asked, current, now_us)
        Snapshot.of(after)
        check_admins(current, after, now_us)

    with_directory(work)
    for line in lines:
        tell(out, line)
    if not lines:
        tell(err, "Nothing to change.")
    elif dry_run:
        tell(err, "Nothing was changed: --dry-run.")


def _text_of(file: str) -> str:
    try:
        data = read_bytes(MAX_BYTES + 1) if file == "-" else Path(file).read_bytes()
        if len(data) > MAX_BYTES:
            raise Stop(f"{file}: is larger than {MAX_BYTES} bytes", Exit.USAGE)
        return data.decode()
    except OSError as error:
        raise Stop(f"{file}: {error.strerror}", Exit.USAGE) from None
    except UnicodeDecodeError:
        raise Stop(f"{file}: is not UTF-8", Exit.USAGE) from None


@application.command()
def explain(
    principal: Annotated[str, typer.Argument(help="The id or name of a principal.")],
    action: Annotated[str, typer.Argument(help="The action: read, send, cancel, …")],
    target: Annotated[str, typer.Argument(help="The method as PROFILE:METHOD, as in a rule.")] = ":",
    on: Annotated[str, typer.Argument(help="The literal word `on`.", metavar="on")] = "on",
    device: Annotated[str, typer.Argument(help="The device id, such as dock-1.")] = "",
    *,
    tenant: Annotated[str | None, typer.Option(help="The tenant of the principal.")] = None,
) -> None:
    """Show whether a principal may do something, and which rule decides it or which rules nearly allow it.

    Example: homing access explain ci send dji:cover_open on dock-1. Exit code: 0 allowed, 1 not allowed, 2 it cannot be
    checked.
    """
    from app.core.access.callers import EVER, Caller
    from app.core.access.explain import explain as explained
    from app.core.access.questions import Question
    from app.core.access.rules import Action
    from app.core.access.snapshot import Snapshot

    if on != "on" or ":" not in target:
        raise Stop("homing access explain PRINCIPAL ACTION PROFILE:METHOD on DEVICE", Exit.USAGE)
    if action not in list(Action):
        raise Stop(f"{action!a} is no action; allowed: {', '.join(Action)}", Exit.USAGE)

    async def read(directory: AccessDirectory) -> Document:
        return await directory.read()

    document = with_directory(read)
    found = find(document, principal, tenant)
    if found is None:
        raise Stop(f"there is no principal {principal!a}: homing users list --services shows all", Exit.USAGE)
    profile, _, method = target.partition(":")
    question = Question(Action(action), device, profile, method, found.tenant_id)
    caller = Caller.of_login(found.id, issued_us=EVER, expires_us=EVER)
    decision = explained(Snapshot.of(document), caller, question, instant())
    rule = "" if decision.rule is None else f" by {decision.rule.name}: {decision.rule.text}"
    tell(out, f"{'allowed' if decision.allowed else 'denied'}: {decision.reason}{rule}")
    if decision.requires > 1:
        tell(out, f"  {decision.requires} people must approve it")
    for limit in decision.limits:
        tell(out, f"  limited by {limit.name}: {limit.text}")
    for miss in decision.nearest:
        tell(out, f"  nearest  {miss}")
    raise typer.Exit(0 if decision.allowed else 1)
