"""`homing audit`: what was asked, by whom, and how it ended; and whether anybody has changed what is on record."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.directory import with_directory
from app.cli.output import Exit, Stop, err, out, plain, tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from app.access.verification import Verification
    from app.core.audit import Head
    from app.store.audit import Kept
    from app.store.directory import AccessDirectory

application = typer.Typer(help="Who asked what of which device, and how it ended.", no_args_is_help=True)


@application.command()
def tail(
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=1000, help="How many.")] = 20,
    who: Annotated[str | None, typer.Option(help="Only what this principal asked for.")] = None,
    device: Annotated[str | None, typer.Option(help="Only what is about this device.")] = None,
) -> None:
    """Print the latest lines, the newest last, as JSON."""
    from app.store.audit import AuditQuery

    async def read(directory: AccessDirectory) -> Sequence[Kept]:
        return await directory.audit.page(AuditQuery(who=who, device=device, limit=lines))

    for kept in reversed(with_directory(read)):
        tell(out, plain(kept.line.body.decode("utf-8", "replace")))


@application.command()
def verify(
    *,
    heads: Annotated[
        str | None,
        typer.Option(help="A file of logs: each audit_head in it must be on record. - is standard input."),
    ] = None,
) -> None:
    """Look whether anybody has changed the audit. Exit code: 0 intact, 1 something is wrong, 2 it cannot be read.

    Whoever can write the database can write all of it anew. What the nodes have put into their logs shows that.
    """
    from app.access.verification import verify as verified

    told = [] if heads is None else list(_heads(heads))

    async def read(directory: AccessDirectory) -> Verification:
        return await verified(directory.audit, told)

    found = with_directory(read)
    for fault in found.faults:
        tell(out, plain(f"{fault.writer} {fault.seq}: {fault.what}"))
    read_ = f"{found.lines} lines of {found.writers} writers, and {found.heads} heads"
    tell(err, f"{read_}: {'nothing is wrong' if not found.faults else f'{len(found.faults)} faults'}")
    raise typer.Exit(Exit.FAILED if found.faults else Exit.OK)


@application.command()
def export() -> None:
    """Print every line with its writer, number and hash, as JSON, a line each: what a later verification needs."""
    from app.access.verification import all_lines

    async def read(directory: AccessDirectory) -> None:
        async for kept in all_lines(directory.audit):
            line = kept.line
            body = line.body.decode("utf-8", "replace")
            shown = {"writer": line.writer, "seq": line.seq, "hash": line.hash.hex(), "body": body}
            sys.stdout.write(json.dumps(shown) + "\n")

    with_directory(read)


def _heads(file: str) -> Iterator[Head]:
    """The heads in logs, be they lines of text or JSON."""
    from app.core.audit import Head

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8", "replace")
    except OSError as error:
        raise Stop(f"{file}: {error.strerror}", Exit.USAGE) from None
    for line in text.splitlines():
        found = _head(line) if "audit_head" in line else None
        if found is not None:
            yield Head(*found)


def _head(line: str) -> tuple[str, int, bytes] | None:
    found = {}
    for name in ("writer", "seq", "hash"):
        value = re.search(rf"\b{name}\W{{1,4}}([\w./-]+)", line)
        if value is None:
            return None
        found[name] = value[1]
    try:
        return found["writer"], int(found["seq"]), bytes.fromhex(found["hash"])
    except ValueError:
        return None
