"""`homing send`: one command to one device, and what became of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from app.cli.output import Exit, Stop, err, out, tell
from app.core.durations import format_duration, parse_duration

if TYPE_CHECKING:
    from app.cli.client import Answer, NodeClient

MARGIN: Final = timedelta(seconds=10)
"""How much longer than the command's timeout we wait for the HTTP answer."""
FIRST_WAIT: Final = "wait=1"
"""Most commands are answered within a second. Of the others the node says by then which they are, so that whoever
interrupts the wait can be told."""
LOOK_AGAIN: Final = 0.3
"""Seconds between two looks at a command that the node answered before it had an outcome."""

KEY: Final = "HOMING_KEY"
"""The variable that holds the API key of who calls; there is no option, as others on the machine see those."""
OUTCOMES: Final = {
    "succeeded": Exit.OK,
    "failed": Exit.FAILED,
    "timed_out": Exit.TIMED_OUT,
    "cancelled": Exit.CANCELLED,
    "unsent": Exit.UNSENT,
}
STATUSES: Final[Mapping[int, Exit]] = {
    HTTPStatus.TOO_MANY_REQUESTS: Exit.UNSENT,
    HTTPStatus.SERVICE_UNAVAILABLE: Exit.UNSENT,
    HTTPStatus.GATEWAY_TIMEOUT: Exit.TIMED_OUT,
}


class IfOffline(StrEnum):
    """What to do when nobody is subscribed to the device's topic."""

    FAIL = "fail"
    SEND = "send"


class Output(StrEnum):
    """How the outcome is printed."""

    HUMAN = "human"
    JSON = "json"


def send(  # noqa: PLR0913 - each is something that people type
    device: Annotated[str, typer.Argument(help="The device id, such as dock-1.", show_default=False)],
    method: Annotated[str, typer.Argument(help="What it is to do, such as cover_open.", show_default=False)],
    *,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", metavar="KEY=VALUE", help="Repeatable. JSON, else a string.")
    ] = None,
    json_params: Annotated[str | None, typer.Option("--json", metavar="OBJECT", help="All params as JSON.")] = None,
    timeout: Annotated[str | None, typer.Option(help="Such as 500ms, 10s, 1.5m. The node decides if absent.")] = None,
    profile: Annotated[str | None, typer.Option(help="Device profile. The node decides if absent.")] = None,
    one_way: Annotated[bool, typer.Option("--one-way", help="The device does not answer; the broker has to.")] = False,
    if_offline: Annotated[
        IfOffline | None, typer.Option(help="When nobody is subscribed: fail at once, or send and wait.")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--async", help="Print the command's id and do not wait.")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="Sent again, it joins the first command.")] = None,
    node: Annotated[
        str | None, typer.Option(metavar="URL", help="[default: port HOMING_API_PORT of this machine]")
    ] = None,
    output: Annotated[Output, typer.Option(help="For people or for programs.")] = Output.HUMAN,
) -> None:
    """Send a command to a device and wait for its outcome. HOMING_KEY holds the API key, where the node asks for one.

    Exit code: 0 succeeded (or accepted, with --async), 1 the device refused or failed, 2 wrong input, 3 timed out,
    4 cancelled, 5 not sent (nobody is subscribed, broker or store away, or a limit reached), 6 no node there, 7 the
    node answered strangely, 130 interrupted.
    """
    from app.cli.client import NodeClient, NodeUnreachableError
    from app.core.errors import InvalidInputError
    from app.core.identifiers import validate_device_id

    body: dict[str, Any] = {"method": method, "params": parse_params(param or (), json_params)}
    if timeout is not None:
        body["timeout"] = format_duration(_duration(timeout))
    if profile is not None:
        body["profile"] = profile
    if one_way:
        body["one_way"] = True
    if if_offline is not None:
        body["if_offline"] = if_offline.value
    headers = {"Prefer": "respond-async" if no_wait else FIRST_WAIT}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = _header(idempotency_key)
    patience = ((_duration(timeout) if timeout else timedelta(hours=1)) + MARGIN).total_seconds()
    url = node or default_node()
    identity: str | None = None
    try:
        client = NodeClient(url, os.environ.get(KEY))
        validate_device_id(device)  # a wrong one would change the path, and the node could not tell what was meant
        with _spinner(f"{method} on {device}"):
            answer = client.post_command(device, body, headers, patience)
            if answer.status == HTTPStatus.ACCEPTED and not no_wait:
                identity = str(answer.body.get("id"))
                answer = _look_until_final(client, identity, patience)
    except InvalidInputError as error:
        raise Stop(str(error), Exit.USAGE) from None
    except NodeUnreachableError as error:
        raise Stop(str(error), Exit.UNREACHABLE) from None
    except KeyboardInterrupt:
        raise Stop(_interrupted(url.rstrip("/"), device, identity), Exit.INTERRUPTED) from None
    _report(answer.status, answer.body, answer.problem, output)


def _interrupted(url: str, device: str, identity: str | None) -> str:
    """The command goes on, whoever stops waiting for it."""
    if identity is None:
        path = f"/v1/devices/{quote(device, safe='')}/commands"
        return f"interrupted before the node said which command it is; it may go on: curl {url}{path}"
    return f"still open: {identity}; it goes on, and every node can tell: curl {url}/v1/commands/{identity}"


def parse_params(pairs: Sequence[str], json_params: str | None) -> dict[str, Any]:
    """The params that the options say; Stop with a sentence when they say none."""
    params: Any = {}
    if json_params is not None:
        try:
            params = json.loads(json_params)
        except ValueError as error:
            raise Stop(f"--json: not JSON: {error}", Exit.USAGE) from None
        if not isinstance(params, dict):
            raise Stop("--json: must be an object, such as '{\"height\": 30}'", Exit.USAGE)
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise Stop(f"--param: {pair[:64]!a} is not KEY=VALUE", Exit.USAGE)
        params[key] = _value(text)
    return dict(params)


def _value(text: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise Stop(f"--timeout: {error}", Exit.USAGE) from None


def _header(key: str) -> str:
    from app.core.errors import InvalidInputError
    from app.core.identifiers import validate_idempotency_key

    try:
        return validate_idempotency_key(key)
    except InvalidInputError as error:
        raise Stop(f"--idempotency-key: {error.reason}", Exit.USAGE) from None


def default_node() -> str:
    """The node of this machine, as the settings have it."""
    from app.settings import load_settings

    return f"http://127.0.0.1:{load_settings().api.port}"


def _spinner(text: str) -> AbstractContextManager[object]:
    return err.status(text) if err.is_terminal else nullcontext()


def _look_until_final(client: NodeClient, command_id: str, patience: float) -> Answer:
    """The node stops and has sent us away, or a proxy limits how long we may wait; the command goes on."""
    from app.cli.client import NodeUnreachableError
    from app.system import SystemClock

    clock = SystemClock()
    deadline = clock.monotonic() + patience
    while True:
        try:
            answer = client.get_command(command_id, patience)
        except NodeUnreachableError as error:
            raise NodeUnreachableError(f"{error}; command {command_id} goes on, every other node can tell") from None
        if (
            answer.body.get("state") in OUTCOMES
            or answer.status >= HTTPStatus.BAD_REQUEST
            or clock.monotonic() > deadline
        ):
            return answer
        time.sleep(LOOK_AGAIN)


def _report(status: int, body: dict[str, Any], problem: str, output: Output) -> None:
    command = body.get("command") if status >= HTTPStatus.BAD_REQUEST else body
    state = command.get("state") if isinstance(command, dict) else None
    code = OUTCOMES.get(
        str(state), Exit.OK if status < HTTPStatus.BAD_REQUEST else STATUSES.get(status, _client_or_server(status))
    )
    if output is Output.JSON:
        out.print(json.dumps(body), markup=False)
    elif status >= HTTPStatus.BAD_REQUEST or state is None:
        raise Stop(problem, code)
    else:
        for line in lines_of(body):
            tell(out, line)
    raise Stop("", code)


def _client_or_server(status: int) -> Exit:
    return Exit.USAGE if status < HTTPStatus.INTERNAL_SERVER_ERROR else Exit.UNEXPECTED


def _how(command: dict[str, Any]) -> str:
    """How long it took, and where the answer came in."""
    try:
        began, ended = (datetime.fromisoformat(command[name]) for name in ("created_at", "finished_at"))
    except (KeyError, TypeError, ValueError):
        return ""
    by = command.get("received_by")
    return f" in {(ended - began) // timedelta(milliseconds=1)} ms" + (f" (answer came in on {by})" if by else "")


def lines_of(command: dict[str, Any]) -> list[str]:
    """A command and its outcome for people."""
    lines = [f"{command.get('method')} on {command.get('device_id')}: {command.get('state')}{_how(command)}"]
    error = command.get("error")
    if isinstance(error, dict):
        lines.append(f"  error   {error.get('code')}: {error.get('message')}")
    if command.get("result") is not None:
        lines.append(f"  result  {json.dumps(command['result'])}")
    lines.append(f"  id      {command.get('id')}")
    return lines
