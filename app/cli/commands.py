"""`homing get`, `list`, `cancel`, `watch`: what became of commands."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.completion import commands, devices
from app.cli.outcome import follow, report
from app.cli.output import Exit, Form, Stop, out, table, tell, written

if TYPE_CHECKING:
    from homing_client import Command

Id = Annotated[str, typer.Argument(metavar="ID", help="The command's id.", autocompletion=commands)]


def get(
    identity: Id, *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """Print a command as it stands, from any node. Exit code: as of send, 0 when it is open."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        command = homing.get(identity)
    report(command, shown)


def watch(
    identity: Id, *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """Wait for the outcome of a command. Exit code: as of send."""
    shown = form(output, as_json=as_json)
    try:
        with connected(url, context, shown) as homing:
            command = follow(homing, homing.get(identity))
    except KeyboardInterrupt:
        raise Stop(f"{identity} goes on: homing watch {identity}", Exit.INTERRUPTED) from None
    report(command, shown)


def cancel(
    identity: Id, *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """End a command; the device is not told, and may still act. Exit code: 0 cancelled, 2 it had an outcome."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        command = homing.cancel(identity)
    try:
        report(command, shown)
    except Stop:
        raise Stop("", Exit.OK) from None


def explain(
    identity: Id, *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """Tell what became of a command, and why: what every node knows of it, and what that probably means."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        found = homing.explain(identity)
    if shown is not Form.HUMAN:
        out.print(written(found), markup=False)
        return
    command, verdict = found["command"], found["verdict"]
    tell(out, f"{command['method']} on {command['device_id']}: {command['state']}")
    table(shown, found["timeline"], _moment, ("at", "node", "what", "detail"), head=False)
    tell(out, f"What it was: {verdict['text']}")
    for line in (*verdict["evidence"], *(f"not known: {gap}" for gap in found["gaps"])):
        tell(out, f"  {line}")


def _moment(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    detail = (str(one[name]) for name in ("topic", "reason") if one.get(name))
    return one["at"] or "", one["node"] or "", one["what"], " ".join(detail)


def list_commands(
    *,
    device: Annotated[str | None, typer.Option(help="Only those of this device.", autocompletion=devices)] = None,
    state: Annotated[str | None, typer.Option(help="Only those in this state, such as timed_out.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 20,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Print the latest commands, newest first."""
    shown = form(output, as_json=as_json)
    size = min(limit, 200)
    with connected(url, context, shown) as homing:
        asked = homing.commands(state=state, page_size=size)
        if device is not None:
            asked = homing.commands_of(device, state=state, page_size=size)
        found = list(islice(asked, limit))
    table(shown, [one.raw for one in found], _row, ("id", "device", "method", "state", "created", "took"))


def _row(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    from homing_client import Command

    command = Command.of(one)
    return (
        command.id,
        command.device_id,
        command.method,
        command.state,
        str(one.get("created_at") or ""),
        _took(command),
    )


def _took(command: Command) -> str:
    if command.created_at is None or command.finished_at is None:
        return ""
    return f"{(command.finished_at - command.created_at).total_seconds() * 1000:.0f} ms"
