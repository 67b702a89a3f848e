"""`homing fleet`: one command for many devices, in waves, over the HTTP API of a node."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.json_input import parse_json
from app.cli.output import Form, Stop, err, out, plain, table, tell, written
from app.cli.standard_input import read_all
from app.cli.verbs import COMPLETED, HELP, Verb, cell, group
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_client import Homing

ROUND_SECONDS: Final = 1.0
"""Somebody who waits for the end of a run asks so often how it stands."""
ENDS: Final = {
    "succeeded": Exit.OK,
    "failed": Exit.FAILED,
    "lapsed": Exit.TIMED_OUT,
    "aborted": Exit.CANCELLED,
    "paused": Exit.EMPTY,
}
"""The exit codes of those who wait, by the state in which a run stands still."""

OF_RUN: Final = ("id", "state", "total", "counts")
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


@application.command()
def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The run as JSON; - reads it from standard input.")],
    *,
    key: Annotated[str | None, typer.Option(help="An idempotency key. Repeated with it, it is the same run.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what the run would be, and begin nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run has ended, or is paused.")] = False,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Begin a run. Exit code: 0 begun, 2 wrong input or no target, 8 not allowed.

    With --wait: 0 all succeeded, 1 some did not, 3 its time was over, 4 aborted, 9 paused.
    """
    shown = form(output, as_json=as_json)
    document = _document(file)
    with connected(url, context, shown) as homing:
        begun = homing.fleet.begin(document, idempotency_key=key, dry_run=dry_run)
        if dry_run:
            _show(begun, shown, ("total", "waves", "devices"))
            return
        if wait:
            begun = _stands(homing, begun["id"])
    _show(begun, shown, OF_RUN)
    if wait:
        _exit_as(begun["state"])


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

    Exit code: 0 all succeeded, 1 some did not, 3 its time was over, 4 aborted, 9 paused.
    """
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        found = _stands(homing, run_id)
    _show(found, shown, OF_RUN)
    _exit_as(found["state"])


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


def _stands(homing: Homing, run_id: str) -> Any:  # noqa: ANN401 - a JSON object
    """The run when nothing happens any more; its counts on the way."""
    told = ""
    while True:
        found = homing.fleet.get(run_id)
        now = cell(found, "counts")
        if now != told:
            tell(err, f"{run_id}  {found['state']}  {now}")
            told = now
        if found["state"] in ENDS:
            return found
        time.sleep(ROUND_SECONDS)


def _exit_as(state: str) -> None:
    """Stop with the exit code of the state in which a run stands still."""
    if (code := ENDS[state]) is not Exit.OK:
        raise Stop("", code)


def _show(found: Any, shown: Form, columns: tuple[str, ...]) -> None:  # noqa: ANN401 - a JSON object
    if shown is Form.HUMAN:
        table(shown, [found], lambda one: [cell(one, name) for name in columns], columns)
    else:
        out.line(written(found))
