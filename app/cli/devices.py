"""`homing devices`: what is on record about devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.calls import AsJson, ContextName, DeviceArgument, Output, Url, connected, form
from app.cli.completion import profiles
from app.cli.output import Form, Stop, err, out, table, tell, written
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_client import DeviceRecord

application = typer.Typer(help="Manage the records of devices: profile, labels, note.", no_args_is_help=True)

Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="A label, for people and filters. Repeatable.")
]
Profile = Annotated[str | None, typer.Option(help="The profile of the device.", autocompletion=profiles)]
IfMatch = Annotated[
    str | None, typer.Option(metavar="TAG", help="Write only if the current tag is this one; show prints it.")
]
_COLUMNS = ("device", "profile", "tenant", "labels", "note")
_HEARD_COLUMNS = ("device", "online", "last seen", "failures", *_COLUMNS[1:])
_PRESENCE = {True: "yes", False: "no"}


@application.command("list")
def list_devices(
    pattern: Annotated[
        str | None, typer.Argument(help="Show only devices whose id matches this pattern, such as 'dock-*'.")
    ] = None,
    *,
    profile: Profile = None,
    label: Labels = None,
    tenant: Annotated[str | None, typer.Option(help="Show only devices of this tenant.")] = None,
    heard: Annotated[
        bool, typer.Option("--heard", help="Show also devices that only events or recent commands name.")
    ] = False,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """List devices by id."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        listed = homing.devices(pattern, profile=profile, tenant=tenant, labels=labels_of(label), heard=heard)
        found = [one.raw for one in listed]
    if heard:
        table(shown, found, _heard_row, _HEARD_COLUMNS)
    else:
        table(shown, found, _row, _COLUMNS)


@application.command()
def show(
    device: DeviceArgument,
    *,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Show the record of a device. Exit code: 0 found, 2 there is none."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        record = homing.device_record(device)
    _print(record, shown)


@application.command()
def put(
    device: DeviceArgument,
    *,
    profile: Profile = None,
    label: Labels = None,
    note: Annotated[str, typer.Option(help="A note for people.")] = "",
    tenant: Annotated[
        str | None, typer.Option(help="The tenant that owns the device. By default, the owner does not change.")
    ] = None,
    if_match: IfMatch = None,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Create or replace the record of a device. Exit code: 0 done, 2 it cannot be done."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        record = homing.put_device(
            device, profile=profile, labels=labels_of(label), note=note, tenant=tenant, if_match=if_match
        )
    _print(record, shown)


@application.command()
def remove(device: DeviceArgument, *, if_match: IfMatch = None, url: Url = None, context: ContextName = None) -> None:
    """Delete the record of a device. Exit code: 0 done, 2 there is none."""
    with connected(url, context) as homing:
        homing.remove_device(device, if_match=if_match)
    tell(err, f"{device} is not on record any more.")


def labels_of(pairs: list[str] | None) -> dict[str, str]:
    """The labels that were typed; Stop with a sentence where one makes no sense."""
    labels = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise Stop(f"--label: {pair[:64]!a} is not NAME=VALUE", Exit.USAGE)
        labels[name] = value
    return labels


def _row(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    labels = " ".join(f"{name}={value}" for name, value in sorted((one.get("labels") or {}).items()))
    return one["id"], one.get("profile") or "", one.get("tenant") or "", labels, one.get("note") or ""


def _heard_row(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    device, *others = _row(one)
    online = _PRESENCE.get(one.get("online"), "unknown")
    return device, online, one.get("last_seen") or "", str(one.get("failures")), *others


def _print(record: DeviceRecord, form: Form) -> None:
    if form is not Form.HUMAN:
        out.line(written(record.raw))
        return
    for name, value in zip(_COLUMNS, _row(record.raw), strict=True):
        tell(out, f"{name:<9}{value or '-'}")
    tell(out, f"tag      {record.tag or '-'}")
