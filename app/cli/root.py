"""Puts the subcommands together, and turns every expected error into one sentence and an exit code."""

from __future__ import annotations

from typing import Annotated

import typer

from app import __version__
from app.cli import access, audit, events, keys, profile, users
from app.cli.analyze import analyze, generate_log
from app.cli.bench import bench
from app.cli.chaos import chaos
from app.cli.demo import demo
from app.cli.doctor import doctor
from app.cli.output import Exit, Stop, complain
from app.cli.send import send
from app.cli.serve import serve
from app.cli.simulate import simulate
from app.cli.steps import compact, report, rollup
from app.core.errors import ConfigurationError, HomingError, NodeIdTakenError

application = typer.Typer(
    name="homing",
    help="Commands to drones and IoT devices over MQTT, whose responses find their way home.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (serve, demo, send, simulate, analyze, compact, rollup, report, generate_log, bench, chaos, doctor):
    application.command()(command)
for group, name in (
    *((events, "events"), (profile, "profile"), (access, "access")),
    *((audit, "audit"), (keys, "keys"), (users, "users")),
):
    application.add_typer(group.application, name=name)


def _print_version(value: bool) -> None:  # noqa: FBT001 - how typer calls it
    if value:
        typer.echo(f"homing {__version__}")
        raise typer.Exit


@application.callback()
def _options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def run() -> int:
    """Run the command of this process's arguments; return its exit code."""
    try:
        application()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else Exit.OK
    except Stop as stop:
        if str(stop):
            complain(str(stop))
        return stop.code
    except (ConfigurationError, NodeIdTakenError) as error:
        for line in str(error).splitlines():
            complain(line)
        return Exit.USAGE
    except HomingError as error:
        complain(str(error))
        return Exit.FAILED
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return Exit.OK
