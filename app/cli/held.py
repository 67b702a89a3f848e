"""`homing held`: commands that wait to be sent, an end to such waits, lanes that go on, decisions of second persons."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.calls import AsJson, ContextName, DeviceArgument, Output, Url, connected, form
from app.cli.completion import devices
from app.cli.output import Form, complain, err, table, tell
from app.cli.verbs import group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homing_client import Command, Homing

_Id = Annotated[str, typer.Argument(metavar="ID", help="The command id.")]
_Note = Annotated[str, typer.Option(help="A note, which stays with the command.")]
_Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_OF_HOLD: Final = ("lane", "not_before", "until", "claims")

application = group(
    "List, cancel and approve commands that wait: for their device, their turn, or a second person.", {}
)


@application.command("list")
def list_held(
    *,
    device: Annotated[
        str | None, typer.Option(help="Show only commands of this device.", autocompletion=devices)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The maximum number of entries.")] = 100,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """List the commands that are held, newest first: what each waits for, until when, and how often it was tried."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        asked = homing.commands(state="held") if device is None else homing.commands_of(device, state="held")
        found = list(islice(asked, limit))
    table(shown, [one.raw for one in found], _row, ("id", "device", "method", "waits_for", *_OF_HOLD))


@application.command()
def cancel(
    device: DeviceArgument,
    *,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Cancel all commands that are held for a device. Exit code: 0 none of them waits any more, 8 not allowed.

    If a command was being sent at that moment, a line says so: the device may still act on it.
    """
    from homing_client import ConflictError

    shown = form(output, as_json=as_json)
    cancelled = []
    with connected(url, context, shown) as homing:
        for held in [*homing.commands_of(device, state="held")]:  # all pages first: what is cancelled leaves the list
            try:
                now = homing.cancel(held.id)
            except ConflictError:
                complain(f"{held.id} had an outcome first: homing get {held.id}")
                continue
            if _claims(now) > _claims(held):
                complain(f"{held.id} was being sent when it was cancelled: the device may act")
            cancelled.append(now)
    _print_ended(cancelled, shown)


@application.command()
def resume(
    device: DeviceArgument,
    lane: Annotated[str, typer.Argument(metavar="LANE", help="The lane, as the profile names it.")],
    *,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Resume a lane of a device that a failed command has stopped. Exit code: 0 it is not stopped, 8 not allowed.

    The next command in line is tried at once. First cancel the commands that you do not want any more.
    """
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        found = homing.resume_lane(device, lane)
    table(shown, [found], _resumed, ("device", "lane", "resumed", "stopped_by", "next"))


@application.command()
def approvals(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="The maximum number of entries.")] = 50,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """List the commands that wait for a second person. Those that expire first come first."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        found = homing.approvals(limit)
    table(shown, found, _proposal, ("id", "device", "method", "params", "asked_by", "until", "may_decide"))


@application.command()
def approve(
    command_id: _Id,
    *,
    note: _Note = "",
    yes: _Yes = False,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Approve a command that somebody else has asked for, after you have seen all of it. Exit code: 8 not allowed."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        decided = homing.approve(command_id, _seen(homing, command_id, "Approve it?", yes=yes), note=note)
    _print_ended([decided], shown)


@application.command()
def refuse(
    command_id: _Id,
    *,
    note: _Note = "",
    yes: _Yes = False,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Refuse a command that somebody else has asked for: it is cancelled. Exit code: 8 not allowed."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        decided = homing.refuse(command_id, _seen(homing, command_id, "Refuse it?", yes=yes), note=note)
    _print_ended([decided], shown)


def _seen(homing: Homing, command_id: str, question: str, *, yes: bool) -> str:
    """Show a command that waits for a second person, and ask; the fingerprint of what was shown."""
    entry = homing.approval(command_id)
    command = entry["command"]
    for name in ("device_id", "profile", "method", "params", "created_at", "hold"):
        tell(err, f"{name}: {json.dumps(command.get(name))}")
    tell(err, f"asked by: {entry['asked_by']}, until {command['hold']['approval']['until']}")
    if not yes:
        typer.confirm(question, abort=True, err=True)
    return str(entry["fingerprint"])


def _proposal(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    command = one["command"]
    return (
        *(command["id"], command["device_id"], command["method"], json.dumps(command.get("params"))),
        *(one["asked_by"] or "", command["hold"]["approval"]["until"], "yes" if one["may_decide"] else "no"),
    )


def _row(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    hold = one.get("hold") or {}
    return (
        *(one["id"], one["device_id"], one["method"], ", ".join(hold.get("waits_for", ()))),
        *(str(hold.get(name, "")) for name in _OF_HOLD),
    )


def _resumed(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    resumed = "yes" if one["resumed"] else "nothing was changed"
    return one["device_id"], one["lane"], resumed, one.get("stopped_by", ""), one.get("next", "")


def _print_ended(commands: Sequence[Command], shown: Form) -> None:
    table(shown, [one.raw for one in commands], _ended, ("id", "device", "method", "state"))


def _ended(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    return one["id"], one["device_id"], one["method"], one["state"]


def _claims(command: Command) -> int:
    return int((command.raw.get("hold") or {}).get("claims", 0))
