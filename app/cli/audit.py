"""`homing audit`: what was asked, by whom, and how it ended; and whether anybody has changed what is on record."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.directory import with_directory
from app.cli.output import Stop, err, out, plain, tell
from app.cli.standard_input import read_all
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.audit.verification import Verification
    from app.core.audit.chain import ChainHead
    from app.store.audit import AuditEntry
    from app.store.directory import AccessDirectory

application = typer.Typer(
    help="Read and verify the audit log, directly in the database of HOMING_ACCESS_URL.",
    no_args_is_help=True,
)


@application.command()
def tail(
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=1000, help="The number of lines.")] = 20,
    who: Annotated[str | None, typer.Option(help="Show only requests of this principal.")] = None,
    device: Annotated[str | None, typer.Option(help="Show only lines about this device.")] = None,
) -> None:
    """Print the latest lines as JSON, newest last."""
    from app.store.audit import AuditQuery

    async def read(directory: AccessDirectory) -> list[AuditEntry]:
        query = AuditQuery(who=who, device=device)
        found: list[AuditEntry] = []
        while len(found) < lines:
            page = await directory.audit.page(query._replace(limit=lines - len(found)))
            found += page.entries
            if page.before is None:
                break
            query = query._replace(before=page.before)
        return found

    for entry in reversed(with_directory(read)):
        tell(out, plain(entry.body.decode("utf-8", "replace")))


@application.command()
def remove(
    *,
    older: Annotated[
        str, typer.Option("--older", help="Remove lines older than this, such as 400d.", metavar="DURATION")
    ],
) -> None:
    """Remove old lines. A new line records the removal, and `verify` continues from there."""
    from datetime import timedelta

    from app.audit.retention import remove_older
    from app.cli.directory import author
    from app.core.durations import parse_duration
    from app.core.errors import InvalidInputError

    try:
        age = parse_duration(older)
    except (ValueError, InvalidInputError) as error:
        raise Stop(f"--older: {error}", Exit.USAGE) from None
    if age < timedelta(days=1):
        raise Stop("--older: a day at least", Exit.USAGE)
    asks = author()

    async def go(directory: AccessDirectory) -> int:
        return await remove_older(directory.audit, asks.at_us, age, asks)

    tell(err, f"{with_directory(go)} lines removed")


@application.command()
def verify(
    *,
    heads: Annotated[
        str | None,
        typer.Option(
            help="A log file of nodes. Each audit_head in it must be in the audit log. - reads standard input."
        ),
    ] = None,
) -> None:
    """Check the audit log for tampering.

    Exit code: 0 intact, 1 something is wrong, 2 it cannot be read, 9 it is empty, so that there is nothing to verify.

    Anyone who can write to the database can rewrite all of it. Compare it with the heads in the nodes' logs to detect
    that.
    """
    from app.audit.verification import verify as verified
    from app.audit.verification import why_empty

    told = [] if heads is None else list(_heads(heads))

    async def read(directory: AccessDirectory) -> tuple[Verification, int]:
        return await verified(directory.audit, told), await directory.version()

    found, changes = with_directory(read)
    if found.empty:
        tell(err, why_empty(changes))
        raise typer.Exit(Exit.EMPTY)
    for fault in found.faults:
        tell(out, plain(f"{fault.writer} {fault.seq}: {fault.what}"))
    read_ = f"{found.lines} lines of {found.writers} writers, and {found.heads} heads"
    tell(err, f"{read_}: {'nothing is wrong' if not found.faults else f'{len(found.faults)} faults'}")
    raise typer.Exit(Exit.FAILED if found.faults else Exit.OK)


@application.command()
def export() -> None:
    """Print every line with its writer, number and hash as JSON Lines, for later verification."""
    from app.audit.verification import all_lines

    async def read(directory: AccessDirectory) -> None:
        async for kept in all_lines(directory.audit):
            line = kept.line
            body = line.body.decode("utf-8", "replace")
            shown = {"writer": line.writer, "seq": line.seq, "hash": line.hash.hex(), "body": body}
            out.line(json.dumps(shown))

    with_directory(read)


def _heads(file: str) -> Iterator[ChainHead]:
    """The heads in logs, be they lines of text or JSON."""
    from app.core.audit.chain import ChainHead

    try:
        text = read_all() if file == "-" else Path(file).read_text("utf-8", "replace")
    except OSError as error:
        raise Stop(f"{file}: {error.strerror}", Exit.USAGE) from None
    for line in text.splitlines():
        found = _head(line) if "audit_head" in line else None
        if found is not None:
            yield ChainHead(*found)


def _head(line: str) -> tuple[str, int, bytes] | None:
    found = {}
    for name in ("writer", "seq", "hash"):
        value = re.search(rf'(?:[\s,]{name}=|"{name}": ?"?)([\w./-]+)', line)  # not within a node id
        if value is None:
            return None
        found[name] = value[1]
    try:
        return found["writer"], int(found["seq"]), bytes.fromhex(found["hash"])
    except ValueError:
        return None
