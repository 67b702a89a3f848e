"""`homing profile check`, `try`, `trace` and `schema`: is a device profile well formed, and what would it do?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import Stop, out, tell
from app.cli.trace import trace
from app.core.clock import wall_us
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from app.core.profiles.templates import CommandFacts

application = typer.Typer(help="Check and try device profiles.", no_args_is_help=True)
application.command()(trace)


@application.callback()
def _group() -> None:
    pass


@application.command()
def check(
    file: Annotated[Path, typer.Argument(help="A profile as a TOML file, or the name of a shipped one.")],
    *,
    device: Annotated[
        str | None, typer.Option(help="The device id to try it with. By default, one in the format of the profile.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="The method to try. By default, the first one that the profile names.")
    ] = None,
    params: Annotated[
        str | None, typer.Option(help="The params as JSON. By default, the ones that the profile needs.")
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(
            help="A message of the device as JSON; {id}, {id_number} and so on are replaced by those of the command."
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="The topic of the message. By default, each topic where responses are expected.")
    ] = None,
) -> None:
    """Check a profile, and show what a command would publish and expect, and how a message would be read.

    Hints point out parts of the profile that have no effect. It does not connect to anything. Exit code: 0 all is well,
    1 the message does not answer the command, or none could, 2 wrong profile or arguments, 5 the profile has no such
    command, so nothing could be tried.
    """
    from app.profiles.loader import hints_in, read_profile
    from app.profiles.tools.examples import example_device, example_method, example_params
    from app.profiles.tools.trial import published, reading, refusal, replies_of, rules_of, with_ids

    place = _file_of(file)
    profile = read_profile(place)
    method = example_method(profile) if method is None else method
    device = example_device(profile) if device is None else device
    made = json.dumps(example_params(profile, method)) if params is None else params
    facts = _facts(device, method, made)
    lines = [f"{file}: profile {profile.name!r} is well formed"]
    lines += [f"hint: {hint}" for hint in hints_in(place)]
    with_params = f" with {made}" if params is None and made != "{}" else ""
    lines += ["", f"{method} to {device}{with_params}:"]
    lines += [f"  {line}" for line in published(profile, facts)]
    lines += ["", "reads:", *(f"  {line}" for line in rules_of(profile))]
    if profile.replies:
        lines += ["", "replies:", *(f"  {line}" for line in replies_of(profile))]
    tried = refusal(profile, facts) is None
    answered = tried and bool(profile.expectations(facts))
    if message is not None:
        said, answered = reading(profile, facts, topic, with_ids(facts, message).encode())
        lines += ["", "the message:", *(f"  {line}" for line in said)]
    for line in lines:
        tell(out, line)
    if not answered:
        raise Stop("", Exit.FAILED if tried else Exit.UNSENT)


@application.command(name="try")
def try_(
    file: Annotated[Path, typer.Argument(help="A profile as a TOML file.")],
    *,
    method: Annotated[str, typer.Option(help="The method of the command, such as cover_open.")],
    device: Annotated[str, typer.Option(help="The device id, such as dock-1.")] = "device-1",
    params: Annotated[str, typer.Option(help="The params as JSON.")] = "null",
    answer: Annotated[
        list[str] | None,
        typer.Option(help="The device's messages in order: TOPIC PAYLOAD, or only PAYLOAD for the expected topic."),
    ] = None,
) -> None:
    """Simulate a command whose answers you give: show what is published, and what each answer does to the command.

    {id}, {id_number}, {id_short} and {id_uuid} in answers are replaced by those of the command; `hex:` begins a binary
    payload. It does not connect to anything. Exit code: 0 the command succeeded, 1 it did not, 2 wrong profile or
    arguments.
    """
    from app.core.commands.command import CommandState
    from app.profiles.loader import read_profile
    from app.profiles.tools.trial import Played, published, refusal

    profile, facts = read_profile(file), _facts(device, method, params)
    for line in published(profile, facts):
        tell(out, line)
    if refusal(profile, facts) is not None:
        raise Stop("", Exit.FAILED)
    played = Played(profile, facts)
    for one in answer or []:
        for line in played.hear(one):
            tell(out, line)
    tell(out, f"the command is {played.state}")
    if played.state is not CommandState.SUCCEEDED:
        raise Stop("", Exit.FAILED)


@application.command()
def schema() -> None:
    """Write the JSON Schema of profile files for editors: put `#:schema profile.json` in the first line of a file.

    The schema knows all keys, their types and their allowed words. `check` finds parts that contradict each other.
    """
    from app.profiles.tools.editors import schema_of_files

    out.line(json.dumps(schema_of_files(), indent=2))


def _file_of(given: Path) -> Path:
    """The file, or that of the shipped profile of this name."""
    from app.profiles.loader import shipped_file, shipped_names

    if given.suffix == ".toml" or given.exists():
        return given
    found = shipped_file(str(given))
    if found is None:
        allowed = f"{', '.join(shipped_names())}, or a file.toml"
        raise Stop(f"{given}: no such profile is shipped; allowed: {allowed}", Exit.USAGE)
    return found


def _facts(device: str, method: str, params: str) -> CommandFacts:
    from app.core.errors import ConfigurationError, InvalidInputError, UndecodableMessageError
    from app.core.identifiers import command_id, validate_device_id, validate_method
    from app.core.payload import decode_json
    from app.core.profiles.templates import CommandFacts
    from app.runtime.system import SystemClock, new_ulid

    try:
        device = validate_device_id(device)
        identity = command_id(device, new_ulid())
        now = wall_us(SystemClock())
        return CommandFacts(
            identity, device, validate_method(method), decode_json(params.encode()), now, now + 10_000_000
        )
    except InvalidInputError as error:
        raise ConfigurationError(f"--{error.field.removesuffix('_id')}: {error.reason}") from None
    except UndecodableMessageError as error:
        raise ConfigurationError(f"--params: is no JSON that is accepted ({error.reason})") from None
