"""`homing held`: commands that wait for devices that are away, and an end to the wait of one device."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.completion import devices
from app.cli.output import Form, complain, table
from app.cli.verbs import group

if TYPE_CHECKING:
    from homing_client import Command

_OF_HOLD: Final = ("lane", "not_before", "until", "claims")

application = group("Commands that wait to be sent to a device that is away.", {})


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
    device: Annotated[
        str, typer.Argument(metavar="DEVICE", help="The device id, such as dock-1.", autocompletion=devices)
    ],
    *,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Cancel all commands that are held for a device. Exit code: 0 none of them waits any more, 8 not allowed.

    Of one that leaves in this moment it says so: the device may act.
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
    table(shown, [one.raw for one in cancelled], _ended, ("id", "device", "method", "state"))


def _row(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    hold = one.get("hold") or {}
    return (
        *(one["id"], one["device_id"], one["method"], ", ".join(hold.get("waits_for", ()))),
        *(str(hold.get(name, "")) for name in _OF_HOLD),
    )


def _ended(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    return one["id"], one["device_id"], one["method"], one["state"]


def _claims(command: Command) -> int:
    return int((command.raw.get("hold") or {}).get("claims", 0))
