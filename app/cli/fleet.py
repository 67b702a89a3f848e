"""`homing fleet`: one command for many devices, in waves, over the HTTP API of a node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.fleet_follow import OnlyShown, RunKey, Waits, begin, follow
from app.cli.fleet_send import send
from app.cli.json_input import parse_json
from app.cli.output import Form, Stop, out, plain, table
from app.cli.standard_input import read_all
from app.cli.verbs import COMPLETED, HELP, Verb, cell, group
from app.runtime.exits import Exit

RESULTS: Final = ("device_id", "wave", "state", "ended_at", "command_id", "code", "message", "result")

application = group(
    "One command for many devices, in waves that stop when too many fail.",
    {
        "list": Verb("fleet.all", "id state created_at total counts"),
        "show": Verb("fleet.get"),
        "targets": Verb("fleet.targets", "device_id wave state command_id code message"),
        "pause": Verb("fleet.pause"),
        "resume": Verb("fleet.resume"),
        "abort": Verb("fleet.abort"),
        "retry": Verb("fleet.retry"),
        "explain": Verb("fleet.explain"),
    },
)

application.command()(send)


@application.command()
def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The run as JSON; - reads it from standard input.")],
    *,
    key: RunKey = None,
    dry_run: OnlyShown = False,
    wait: Waits = False,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Begin a run. Exit code: 0 begun, 2 wrong input or no target, 8 not allowed.

    With --wait: 0 all succeeded, 1 some did not, 3 it ran out of time, 4 aborted, 9 paused.
    """
    shown = form(output, as_json=as_json)
    document = _document(file)
    with connected(url, context, shown) as homing:
        begin(homing, document, shown, key=key, dry_run=dry_run, wait=wait)


@application.command()
def watch(
    run_id: Annotated[str, typer.Argument(help=HELP["run_id"], autocompletion=COMPLETED["run_id"])],
    *,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Follow a run until it has ended, or is paused.

    Exit code: 0 all succeeded, 1 some did not, 3 it ran out of time, 4 aborted, 9 paused.
    """
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        follow(homing, run_id, shown)


@application.command()
def results(
    run_id: Annotated[str, typer.Argument(help=HELP["run_id"], autocompletion=COMPLETED["run_id"])],
    *,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for spreadsheets, whatever --output says.")] = False,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write a Parquet file, and print nothing.")
    ] = None,
    state: Annotated[str | None, typer.Option(help=HELP["state"])] = None,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Print how all targets of a run have ended, and what they answered, in the order of their turns."""
    shown = form(output, as_json=as_json)
    if csv and parquet is not None:
        raise Stop("--csv and --parquet are two forms of one table; leave one of them out", Exit.USAGE)
    with connected(url, context, shown) as homing:
        if parquet is not None:
            _write(parquet, homing.fleet.targets_parquet(run_id, state=state))
            return
        if csv:
            text = homing.fleet.targets_csv(run_id, state=state).removesuffix("\r\n")
            out.line("\n".join(map(plain, text.splitlines())) if out.is_terminal else text)
            return
        found = list(homing.fleet.targets(run_id, state=state))
    table(shown, found, lambda one: [cell(one, name) for name in RESULTS], RESULTS)


def _write(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        raise Stop(f"{file}: {error.strerror}", Exit.USAGE) from None


def _document(file: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return parse_json(read_all() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise Stop(f"{file}: {error.strerror}", Exit.USAGE) from None
    except ValueError as error:
        raise Stop(f"{file}: not JSON: {error}", Exit.USAGE) from None
