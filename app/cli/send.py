"""`homing send`: one command to one device, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.completion import devices, methods, profiles
from app.cli.dry_run import report_dry_run
from app.cli.json_input import RepeatedKeyError, parse_json
from app.cli.outcome import follow, report
from app.cli.output import Form, Stop
from app.core.durations import format_duration, parse_duration
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_client import Command


class OfflineChoice(StrEnum):
    """The choice for the case that nobody is subscribed to the device's topic."""

    FAIL = "fail"
    SEND = "send"


FIRST_WAIT = timedelta(seconds=1)
"""Most commands are answered within a second. Of the others the node says by then which they are, so that whoever
interrupts the wait can be told."""


_Device = Annotated[
    str, typer.Argument(help="The device id, such as dock-1.", show_default=False, autocompletion=devices)
]
_Method = Annotated[
    str, typer.Argument(help="The method, such as cover_open.", show_default=False, autocompletion=methods)
]
_Pairs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Params. A value that is not JSON is taken as text. {…} gives all params.",
    ),
]
_Param = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="KEY=VALUE", help="A param, as an option. Repeatable."),
]
_Params = Annotated[str | None, typer.Option(metavar="OBJECT", help="All params as JSON.")]
_Timeout = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="The time to wait for the device, such as 500ms, 10s or 1.5m. By default, the node decides.",
    ),
]
_Profile = Annotated[
    str | None, typer.Option(help="The device profile. By default, the node decides.", autocompletion=profiles)
]
_OneWay = Annotated[
    bool,
    typer.Option("--one-way", help="Do not expect an answer of the device, only the broker's acknowledgement."),
]
_IfOffline = Annotated[
    OfflineChoice | None,
    typer.Option(
        help="The choice if nobody is subscribed to the device's topic: fail gives up at once, send waits until "
        "--timeout. By default, fail if the broker reports it, else send."
    ),
]
_Hold = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="The time for which the command may wait for a device that is away, such as 8h. It is sent once when the "
        "device is there, and --timeout begins then.",
    ),
]
_NotBefore = Annotated[
    str | None,
    typer.Option(
        metavar="INSTANT",
        help="The instant before which the command is not sent, such as 2026-11-21T10:00:00Z. Needs a --hold that ends "
        "later.",
    ),
]
_Replaces = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="A key. This command takes the place of waiting commands for this device with the same key, which are "
        "cancelled. Needs a --hold.",
    ),
]
_Notify = Annotated[
    list[str] | None,
    typer.Option(metavar="WEBHOOK", help="The id of a webhook that receives the outcome. Repeatable."),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would become of the command, and send nothing.")]
_NoWait = Annotated[bool, typer.Option("--async", help="Print the id of the command and do not wait.")]
_Key = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="An idempotency key. A repeated call with the same key joins the first command."),
]


def send(  # noqa: PLR0913 - each is something that people type
    device: _Device,
    method: _Method,
    pairs: _Pairs = None,
    *,
    param: _Param = None,
    params: _Params = None,
    timeout: _Timeout = None,
    profile: _Profile = None,
    one_way: _OneWay = False,
    if_offline: _IfOffline = None,
    hold: _Hold = None,
    not_before: _NotBefore = None,
    replaces: _Replaces = None,
    notify: _Notify = None,
    no_wait: _NoWait = False,
    dry_run: _DryRun = False,
    idempotency_key: _Key = None,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Send a command to a device and wait for its outcome.

    HOMING_KEY holds the API key if the node requires one and homing login has saved none.

    Exit code: 0 succeeded (or accepted, with --async or --hold), 1 the device refused or failed, 2 wrong input, 3 timed
    out, 4 cancelled, 5 not sent (nobody is subscribed, an interlock, broker or store unavailable, or a limit reached),
    6 no node there, 7 the node answered strangely, 8 not allowed, 130 interrupted. With --dry-run: 0 it would be sent,
    would wait or join, 5 it would be refused.
    """
    _check(device, timeout, hold, idempotency_key)
    body = parse_params([*(pairs or ()), *(param or ())], params)
    shown = form(output, as_json=as_json)
    asked: dict[str, Any] = {
        "profile": profile,
        "timeout": None if timeout is None else format_duration(parse_duration(timeout)),
        "one_way": one_way,
        "if_offline": None if if_offline is None else if_offline.value,
        "hold": None if hold is None else format_duration(parse_duration(hold)),
        "not_before": not_before,
        "replaces": replaces,
        "idempotency_key": idempotency_key,
    }
    command: Command | None = None
    try:
        with connected(url, context, shown) as homing:
            if dry_run:
                report_dry_run(homing.dry_run(device, method, body, **asked), shown)
                return
            command = homing.send(
                device, method, body, notify=notify or (), wait=False if no_wait else FIRST_WAIT, **asked
            )
            if not command.is_final and hold is None and not no_wait:
                command = follow(homing, command)
    except KeyboardInterrupt:
        raise Stop(_interrupted(device, command), Exit.INTERRUPTED) from None
    report(command, shown)


def _interrupted(device: str, command: Command | None) -> str:
    """The command goes on, whoever stops waiting for it."""
    if command is None:
        return f"interrupted before the node said which command it is; it may go on: homing list --device {device}"
    return f"still open: {command.id}; it goes on: homing watch {command.id}"


def parse_params(pairs: Sequence[str], json_params: str | None) -> dict[str, Any]:
    """The params that were typed; Stop with a sentence when they make no sense."""
    params = {} if json_params is None else _object("--params", json_params)
    for pair in pairs:
        if pair.startswith("{"):
            params |= _object("params", pair)
            continue
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise Stop(f"params: {pair[:64]!a} is not KEY=VALUE", Exit.USAGE)
        params[key] = _value(text)
    return params


def _object(where: str, text: str) -> dict[str, Any]:
    try:
        found = parse_json(text)
    except ValueError as error:
        raise Stop(f"{where}: not JSON: {error}", Exit.USAGE) from None
    if not isinstance(found, dict):
        raise Stop(f"{where}: must be an object, such as '{{\"height\": 30}}'", Exit.USAGE)
    return found


def _value(text: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return parse_json(text)
    except RepeatedKeyError as error:
        raise Stop(f"params: {error}", Exit.USAGE) from None
    except ValueError:
        return text


def _check(device: str, timeout: str | None, hold: str | None, idempotency_key: str | None) -> None:
    """Find here what the node could not tell, or would tell in other words than those that were typed."""
    from app.core.errors import InvalidInputError
    from app.core.identifiers import validate_device_id, validate_idempotency_key

    try:
        validate_device_id(device)  # a wrong one would change the path
        if idempotency_key is not None:
            validate_idempotency_key(idempotency_key)
    except InvalidInputError as error:
        where = "device_id" if error.field == "device_id" else "--idempotency-key"
        raise Stop(f"{where}: {error.reason}", Exit.USAGE) from None
    for option, duration in (("--timeout", timeout), ("--hold", hold)):
        try:
            parse_duration(duration or "1s")
        except ValueError as error:
            raise Stop(f"{option}: {error}", Exit.USAGE) from None
