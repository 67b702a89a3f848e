"""`homing get`, `list`, `cancel`, `watch`: what became of commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.calls import PATIENT, AsJson, ContextName, Output, Url, connected, following, form
from app.cli.completion import commands, devices
from app.cli.outcome import OUTCOMES, follow, report
from app.cli.output import Form, Stop, complain, out, table, tell, written
from app.core.errors import InvalidInputError
from app.core.identifiers import validate_command_id
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_client import Command, Happening

_NO_COMMAND: Final = "urn:homing:problem:command-not-found"

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the command.", autocompletion=commands)]


@contextmanager
def _known(identity: str, shown: Form) -> Iterator[None]:
    """Say of what is no id of a command on record how to find one."""
    from homing_client import NotFoundError

    try:
        validate_command_id(identity)
        yield
    except InvalidInputError:
        raise Stop(f"{identity[:64]!a} is no id of a command: homing list shows them", Exit.USAGE) from None
    except NotFoundError as error:
        if shown is not Form.HUMAN or error.type != _NO_COMMAND:  # a program, or a node that does not know the verb
            raise
        raise Stop(f"there is no command {identity}: homing list shows those on record", Exit.USAGE) from None


def get(
    identity: Id, *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """Show the current state of a command, from any node. Exit code: as for send; 0 while it is open."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing, _known(identity, shown):
        command = homing.get(identity)
    report(command, shown)


def watch(  # noqa: PLR0913 - one per option
    identity: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The id of the command. By default, all commands.", autocompletion=commands),
    ] = None,
    *,
    device: Annotated[
        str | None, typer.Option(help="Without ID: show only devices that match this pattern, such as dock-*.")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Without ID: show only commands of this profile.")] = None,
    method: Annotated[
        str | None, typer.Option(help="Without ID: show only methods that match this pattern, such as cover_*.")
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option(help="Without ID: show only commands in this state. Repeatable.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="Without ID: show only events of this kind: progress, outcome, late or verified. Repeatable."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Without ID: end after this number of events.")
    ] = None,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Wait for the outcome of a command. Without ID, print the events of all commands until Ctrl-C.

    Exit code: as for send; without ID, 0 after --count events.
    """
    shown = form(output, as_json=as_json)
    if identity is None:
        with following(url, context, shown) as homing:
            told = homing.watch_all(device=device, profile=profile, method=method, states=state or (), kinds=kind or ())
            for one in islice((one for one in told if one.kind != "bookmark"), count):
                _happened(one, shown)
        return
    if any((device, profile, method, state, kind, count)):
        raise Stop("ID and filters: give one of the two", Exit.USAGE)
    try:
        with connected(url, context, shown) as homing, _known(identity, shown):
            command = homing.get(identity)
        with connected(url, context, shown, attempts=PATIENT) as homing:
            command = follow(homing, command)
    except KeyboardInterrupt:
        raise Stop(f"{identity} goes on: homing watch {identity}", Exit.INTERRUPTED) from None
    report(command, shown)


def _happened(one: Happening, shown: Form) -> None:
    """A line: for people, or a JSON object."""
    if shown is not Form.HUMAN:
        tell(out, json.dumps({"kind": one.kind, "id": one.id, **one.raw}))
    elif one.kind == "gap":
        complain(f"some are missing: they were dropped before they were read; there are all since {one.raw['since']}")
    else:
        brought = (
            one.progress if one.kind == "progress" else one.raw.get("error" if one.kind == "outcome" else one.kind)
        )
        said = "" if brought is None else f" {json.dumps(brought, ensure_ascii=False)}"
        what = one.state if one.kind == "outcome" else one.kind
        tell(out, f"{one.raw.get('at')} {one.command_id} {one.device_id} {one.method} {what}{said}")


def cancel(
    identity: Id, *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """Cancel a command. The device is not told and may still act. Exit code: 0 cancelled, 2 it had an outcome."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing, _known(identity, shown):
        command = homing.cancel(identity)
    try:
        report(command, shown)
    except Stop:
        raise Stop("", Exit.OK) from None


def probe(
    identity: Id, *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """Check whether a command that has timed out was done, by the state that its device reports now.

    Exit code: 0 it was done, 1 it was not, 3 nobody knows, 2 it needs no probe or its profile has none.
    """
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing, _known(identity, shown):
        found = homing.probe(identity)
    verified = found["command"].get("verified")
    if shown is Form.HUMAN:
        tell(out, f"{found['result']}: {_FOUND.get(found['result'], _FOUND_BY_LATER)}")
        for path, value in (verified or {}).get("value", {}).items():
            tell(out, f"  {path} = {json.dumps(value)} on {verified['topic']}, told at {verified['at']}")
    else:
        out.line(written(found))
    raise Stop("", OUTCOMES[verified["state"] if verified else "timed_out"])


_FOUND: Final = {
    "bound": "the state of the device names the command",
    "goal": "the state of the device is what was asked for, whoever did it",
    "untold": "the device has told no state since",
    "not_so": "the state of the device is not what was asked for, which may be of before or after the command",
    "unknown": "the state of the device cannot be judged",
    "another": "the state of the device names another command, or none",
    "no_puback": "the command has not reached anybody, so its device cannot have done it",
    "blind": "the node has no event log, or it did not answer",
}
"""The results of looking for a command, for people."""
_FOUND_BY_LATER: Final = "the node is newer than this command line, which has no words for that"


def explain(
    identity: Id, *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """Explain what became of a command: what every node knows of it, and what that probably means."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing, _known(identity, shown):
        found = homing.explain(identity)
    if shown is not Form.HUMAN:
        out.line(written(found))
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


def list_commands(  # noqa: PLR0913 - one per option
    *,
    device: Annotated[
        str | None, typer.Option(help="Show only commands of this device.", autocompletion=devices)
    ] = None,
    state: Annotated[str | None, typer.Option(help="Show only commands in this state, such as timed_out.")] = None,
    method: Annotated[
        str | None, typer.Option(help="Show only methods that match this pattern, such as cover_*.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Show only profiles that match this pattern, such as dji*.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Show only commands created at or after this time: -10m, or 2026-11-21T10:00:00Z."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Show only commands created at or before this time, in the same form.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The maximum number of entries.")] = 20,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """List the latest commands, newest first."""
    shown = form(output, as_json=as_json)
    size = min(limit, 200)
    with connected(url, context, shown) as homing:
        those: Any = {"state": state, "method": method, "profile": profile, "since": since, "until": until}
        asked = (
            homing.commands(**those, page_size=size)
            if device is None
            else homing.commands_of(device, **those, page_size=size)
        )
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
