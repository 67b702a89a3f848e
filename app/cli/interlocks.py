"""`homing interlocks`: what has to be true of a device before commands are sent to it, and whether it is."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from app.cli.calls import AsJson, ContextName, DeviceArgument, Output, Url, connected, form
from app.cli.completion import methods, profiles
from app.cli.dry_run import needed, print_interlocks
from app.cli.output import Form, Stop, out, table, tell, written
from app.cli.verbs import group
from app.runtime.exits import Exit

COLUMNS: Final = ("profile", "interlock", "methods", "needed", "say")

application = group("Interlocks: what has to be true of a device before commands are sent to it.", {})


@application.command("list")
def list_interlocks(
    *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """List the interlocks of the node's profiles."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        found = homing.interlocks()
    table(shown, found, _row, COLUMNS)


@application.command()
def check(
    device: DeviceArgument,
    method: Annotated[str, typer.Argument(help="The method, such as cover_close.", autocompletion=methods)],
    *,
    profile: Annotated[
        str | None, typer.Option(help="The device profile. By default, the node decides.", autocompletion=profiles)
    ] = None,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Say how the interlocks of a method judge a device now. Exit code: 0 they hold, 5 a command would be refused.

    Conditions over params are unknown here: homing send DEVICE METHOD KEY=VALUE --dry-run judges them.
    """
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        found = homing.check_interlocks(device, method, profile=profile)
    if shown is not Form.HUMAN:
        out.line(written(found))
    elif found["interlocks"]:
        print_interlocks(found["interlocks"])
    else:
        tell(out, f"no interlock judges {method} of profile {found['profile']}")
    if any(one["result"] != "holds" for one in found["interlocks"]):
        raise Stop("", Exit.UNSENT)


def _row(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    wanted = "; ".join(f"{row['path']} {needed(row)}" for row in one["when"])
    return one["profile"], one["interlock"], " ".join(one["methods"]), wanted, one["say"]
