"""`homing profile check`: is a device profile well formed, and what would it do?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import Exit, Stop, out, tell

if TYPE_CHECKING:
    from app.core.templating import CommandFacts

application = typer.Typer(help="Look at device profiles.", no_args_is_help=True)


@application.callback()
def _group() -> None:
    pass


@application.command()
def check(
    file: Annotated[Path, typer.Argument(help="A profile, as TOML.")],
    *,
    device: Annotated[str, typer.Option(help="The device to try it with.")] = "device-1",
    method: Annotated[str, typer.Option(help="The method of the command to try.")] = "method",
    params: Annotated[str, typer.Option(help="Its params, as JSON.")] = "{}",
    message: Annotated[
        str | None, typer.Option(help="A message of the device, as JSON; {id} becomes the id of the command.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Where it comes from; else wherever responses are expected.")
    ] = None,
) -> None:
    """Check a profile, and show what a command would publish and expect, and how a message would be read.

    Nothing is connected to. Exit code: 0 all is well, 1 the message does not answer the command, or none could, 2 wrong
    profile or arguments.
    """
    from app.profiles.loader import read_profile
    from app.profiles.trial import published, reading, rules_of

    profile = read_profile(file)
    facts = _facts(device, method, params)
    lines = [f"{file}: profile {profile.name!r} is well formed", "", f"{method} to {device}:"]
    lines += [f"  {line}" for line in published(profile, facts)]
    lines += ["", "reads:", *(f"  {line}" for line in rules_of(profile))]
    answered = bool(profile.expectations(facts))
    if message is not None:
        said, answered = reading(profile, facts, topic, message.replace("{id}", facts.command_id).encode())
        lines += ["", "the message:", *(f"  {line}" for line in said)]
    for line in lines:
        tell(out, line)
    if not answered:
        raise Stop("", Exit.FAILED)


def _facts(device: str, method: str, params: str) -> CommandFacts:
    from app.core.errors import ConfigurationError, InvalidInputError, UndecodableMessageError
    from app.core.identifiers import command_id, validate_device_id, validate_method
    from app.core.payload import decode_json
    from app.core.templating import CommandFacts
    from app.system import SystemClock, new_ulid

    try:
        identity = command_id(validate_device_id(device), new_ulid())
        now = round(SystemClock().wall() * 1_000_000)
        return CommandFacts(
            identity, device, validate_method(method), decode_json(params.encode()), now, now + 10_000_000
        )
    except InvalidInputError as error:
        raise ConfigurationError(f"--{error.field.removesuffix('_id')}: {error.reason}") from None
    except UndecodableMessageError as error:
        raise ConfigurationError(f"--params: is no JSON that is accepted ({error.reason})") from None
