"""Puts the subcommands together, and turns every expected error into one sentence and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer

from app import __version__
from app.cli.output import Exit, Stop, complain
from app.core.errors import ConfigurationError, HomingError, NodeIdTakenError

VERBS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "send": "send:send",
        "list": "commands:list_commands",
        "get": "commands:get",
        "watch": "commands:watch",
        "cancel": "commands:cancel",
        "explain": "commands:explain",
        "status": "cluster:status",
        "nodes": "cluster:nodes",
        "metrics": "cluster:metrics",
        "profiles": "cluster:profiles",
        "methods": "cluster:methods",
        "login": "login:login",
        "logout": "login:logout",
        "whoami": "login:whoami",
        "api": "api:api",
        "serve": "serve:serve",
        "demo": "demo:demo",
        "simulate": "simulate:simulate",
        "analyze": "analyze:analyze",
        "compact": "analyze:compact",
        "rollup": "analyze:rollup",
        "report": "analyze:report",
        "generate-log": "analyze:generate_log",
        "bench": "bench:bench",
        "chaos": "chaos:chaos",
        "doctor": "doctor:doctor",
    }
)
"""Verbs, and where in this package each is."""
GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "devices": "devices:application",
        "events": "events:application",
        "state": "operations:state",
        "webhooks": "operations:webhooks",
        "admin": "operations:admin",
        "context": "login:application",
        "profile": "profile:application",
        "access": "access:application",
        "audit": "audit:application",
        "keys": "keys:application",
        "users": "users:application",
    }
)
"""Verbs that have verbs of their own."""


def application_for(arguments: Sequence[str]) -> typer.Typer:
    """The command line with the verb that was typed, so that the others need not be imported; with all otherwise."""
    typed = arguments[0] if arguments else ""
    only = {typed} if typed in {*VERBS, *GROUPS} else set() if typed in ("version", "--version") else None
    application = typer.Typer(
        name="homing",
        help="Commands to drones and IoT devices over MQTT, whose responses find their way home.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    application.callback(invoke_without_command=True)(_options)
    application.command()(version)
    for name, place in VERBS.items():
        if only is None or name in only:
            application.command(name)(_found(place))
    for name, place in GROUPS.items():
        if only is None or name in only:
            application.add_typer(_found(place), name=name)
    return application


def _found(place: str) -> Any:  # noqa: ANN401 - a function or an application
    module, _, name = place.partition(":")
    return getattr(import_module(f"app.cli.{module}"), name)


def _print_version(value: bool) -> None:  # noqa: FBT001 - how typer calls it
    if value:
        typer.echo(f"homing {__version__}")
        raise typer.Exit


def version() -> None:
    """Print the version."""
    typer.echo(f"homing {__version__}")


def _options(
    context: typer.Context,
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run() -> int:
    """Run the command of this process's arguments; return its exit code."""
    try:
        application_for(sys.argv[1:])(prog_name="homing")
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
