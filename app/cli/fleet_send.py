"""`homing fleet send`: a fleet run from options, where `homing fleet run` takes a document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.completion import methods, profiles
from app.cli.devices import labels_of
from app.cli.fleet_follow import OnlyShown, RunKey, Waits, begin
from app.cli.output import Form, Stop
from app.cli.send import parse_params
from app.runtime.exits import Exit

REST: Final = "rest"


def send(  # noqa: PLR0913 - each is something that people type
    method: Annotated[str, typer.Argument(help="The method, such as cover_close.", autocompletion=methods)],
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Params, as of homing send.")
    ] = None,
    *,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", "-d", metavar="PATTERN", help="A device id, or a pattern such as dock-*. Repeatable."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="NAME=VALUE", help="Choose only devices with this label. Repeatable."),
    ] = None,
    online: Annotated[bool, typer.Option("--online", help="Choose only devices that are online now.")] = False,
    waves: Annotated[
        str | None, typer.Option(metavar="SIZES", help="The sizes of waves, such as 5,10%,rest. By default, one wave.")
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="BOUND", help="Pause when this share or number has failed or timed out: 5%, or 3."),
    ] = None,
    in_flight: Annotated[
        int | None, typer.Option(help="The maximum number of targets at once. By default, 100.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="The maximum rate at which targets get their turn, such as 100/s.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(help="The time to wait for each device, such as 30s.")] = None,
    hold: Annotated[
        str | None, typer.Option(help="The time to wait for a device that is away. By default, 5m.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="The device profile. By default, the node decides.", autocompletion=profiles)
    ] = None,
    key: RunKey = None,
    dry_run: OnlyShown = False,
    wait: Waits = False,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Send one command to many devices: homing fleet send cover_close -l site=north --waves 5,10%,rest --stop 5%.

    Exit codes are those of homing fleet run. A document has more: windows, bake times, goals, second persons.
    """
    shown = form(output, as_json=as_json)
    asked = {"timeout": timeout, "hold": hold, "profile": profile}
    members = {
        "waves": None if waves is None else wave_sizes(waves),
        "stop": [stop_rule(one) for one in stop or ()] or None,
        "in_flight": in_flight,
        "rate": rate,
    }
    document = {
        "targets": targets_of(device or (), labels_of(label), online=online),
        "command": {"method": method, "params": parse_params(pairs or (), None), **_given(asked)},
        **_given(members),
    }
    with connected(url, context, shown) as homing:
        begin(homing, document, shown, key=key, dry_run=dry_run, wait=wait)


def targets_of(devices: Sequence[str], labels: Mapping[str, str], *, online: bool) -> dict[str, Any]:
    """The targets that options name, all of which must hold; Stop where nothing names any."""
    conditions: list[dict[str, Any]] = []
    if devices:
        conditions.append({"devices": list(devices)})
    if labels:
        conditions.append({"labels": labels})
    if not conditions:
        raise Stop("nothing names a target; allowed: --device 'dock-*', --label site=north, or both", Exit.USAGE)
    if online:
        conditions.append({"online": True})
    return conditions[0] if len(conditions) == 1 else {"all": conditions}


def wave_sizes(text: str) -> list[int | str]:
    """The sizes of waves, with commas between."""
    sizes = [one.strip() for one in text.split(",")]
    return [
        one if one == REST else _amount("--waves", one, f"a number, a share such as 10%, or {REST}") for one in sizes
    ]


def stop_rule(text: str) -> dict[str, Any]:
    """The rule that a bound means: a share or a count of those that fail or time out."""
    bound = _amount("--stop", text, "a share such as 5%, or a number")
    return {"count" if isinstance(bound, int) else "share": bound, "then": "pause"}


def _amount(option: str, text: str, allowed: str) -> int | str:
    """A number, or a share as it was typed."""
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?%", text):
        return text
    raise Stop(f"{option}: {text[:64]!a} makes no sense; allowed: {allowed}", Exit.USAGE)


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
