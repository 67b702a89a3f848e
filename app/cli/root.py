"""Puts the subcommands together, and turns every expected error into one sentence and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from itertools import chain
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from app import __version__
from app.cli.output import Stop, complain, out
from app.core.errors import ConfigurationError, HomingError, NodeIdTakenError
from app.runtime.exits import Exit


class VerbEntry(NamedTuple):
    """The place of a verb in this package, and the sentence that `homing --help` has for it."""

    place: str
    sentence: str


COMMANDS: Final = {
    "send": VerbEntry("send:send", "Send a command to a device and wait for its outcome."),
    "list": VerbEntry("commands:list_commands", "List the latest commands."),
    "get": VerbEntry("commands:get", "Show the current state of a command."),
    "watch": VerbEntry("commands:watch", "Follow one command or all commands live."),
    "explain": VerbEntry("commands:explain", "Explain what became of a command, and why."),
    "cancel": VerbEntry("commands:cancel", "Cancel a command. The device is not told."),
    "probe": VerbEntry("commands:probe", "Check whether a command that has timed out was done."),
    "held": VerbEntry("held:application", "List, cancel and approve commands that wait to be sent."),
    "fleet": VerbEntry("fleet:application", "Send one command to many devices, in waves."),
    "schedule": VerbEntry("schedule:application", "Begin fleet runs and commands at set times."),
    "devices": VerbEntry("devices:application", "Manage the records of devices: profile, labels, note."),
    "profiles": VerbEntry("cluster:profiles", "List the device profiles of the node."),
    "interlocks": VerbEntry("interlocks:application", "List interlocks, and check them for a device and method."),
    "methods": VerbEntry("cluster:methods", "List the methods of a profile."),
    "traffic": VerbEntry("traffic:traffic", "Listen to the broker, and show how profiles read each message."),
    "trial": VerbEntry("traffic:trial", "Show what each profile would make of a message."),
    "draft": VerbEntry("traffic:draft", "Try a profile on a node that does not speak it."),
}
EVENTS: Final = {
    "events": VerbEntry("events:application", "Read, follow and publish events of devices."),
    "exchange": VerbEntry("exchange:application", "Declare exchanges and publish messages to queues."),
    "queue": VerbEntry("queue:application", "Declare queues over events, consume from them and look after them."),
    "state": VerbEntry("operations:state", "Read and write the last values of topics and devices."),
    "webhooks": VerbEntry("operations:webhooks", "Manage webhooks, which post outcomes to URLs."),
}
CONNECTION: Final = {
    "login": VerbEntry("login:login", "Log in with an API key, or with name and password."),
    "logout": VerbEntry("login:logout", "End a login and forget its key."),
    "whoami": VerbEntry("login:whoami", "Show who you are to the node."),
    "context": VerbEntry("login:application", "Switch between several clusters and keys."),
}
THROUGH_A_NODE: Final = {
    "broker": VerbEntry("broker:application", "End sessions and delete retained messages of the broker in a node."),
    "roles": VerbEntry("operations:roles", "Manage roles and their rules."),
    "admin": VerbEntry(
        "operations:admin", "Manage keys, people, roles and tenants, and read the audit log, as your key permits."
    ),
}
IN_THE_DATABASE: Final = {
    "access": VerbEntry("access:application", "Set up the access directory, export it and apply changes."),
    "keys": VerbEntry("keys:application", "Create, list, rotate and revoke API keys."),
    "users": VerbEntry("users:application", "Add, list and disable people; set their passwords."),
    "audit": VerbEntry("audit:application", "Read the audit log and check it for tampering."),
}
RUNNING: Final = {
    "up": VerbEntry("up:up", "Run a node, its broker and its store from one folder."),
    "backup": VerbEntry("backup:backup", "Copy the folder of homing up, in use or not, with checksums."),
    "restore": VerbEntry("backup:restore", "Make a new folder for homing up from a backup."),
    "serve": VerbEntry("serve:serve", "Run a node."),
    "doctor": VerbEntry("doctor:doctor", "Check the configured broker, store and access directory, and suggest fixes."),
    "status": VerbEntry("cluster:status", "Show whether the node is running and can serve."),
    "overview": VerbEntry("overview:overview", "Show which party is in trouble, what fails and what is open."),
    "nodes": VerbEntry("cluster:nodes", "List the live nodes of the cluster."),
    "metrics": VerbEntry("cluster:metrics", "Print the metrics of a node."),
}
TOOLS: Final = {
    "api": VerbEntry("api:api", "Call any operation of a node."),
    "profile": VerbEntry("profile:application", "Check and try device profiles, and trace the messages of a broker."),
    "analyze": VerbEntry("analyze:analyze", "Analyze a latency log: compact, roll up and report."),
    "compact": VerbEntry("analyze:compact", "Run the first step of analyze: write clean records to large files."),
    "rollup": VerbEntry("analyze:rollup", "Run the second step of analyze: compute counts that can be added up."),
    "report": VerbEntry("analyze:report", "Run the third step of analyze: write tables and report.html."),
    "generate-log": VerbEntry(
        "analyze:generate_log", "Generate a latency log with known faults to try the analysis on."
    ),
}
PANELS: Final[Mapping[str, Mapping[str, VerbEntry]]] = MappingProxyType(
    {
        "Commands": COMMANDS,
        "Events": EVENTS,
        "Connection": CONNECTION,
        "Administration, through a node": THROUGH_A_NODE,
        "Administration, in the database itself, without a node": IN_THE_DATABASE,
        "Running": RUNNING,
        "Tools": TOOLS,
    }
)
"""The panels of `homing --help`, in this order: the verbs that are used most come first."""
ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "demo": "homing-simulator",
        "simulate": "homing-simulator",
        "bench": "homing-rig",
        "chaos": "homing-rig",
        "replay": "homing-rig",
        "simulate-cluster": "homing-rig",
    }
)
"""The distributions that add these verbs, by their entry points."""
VERBS_OF_OTHERS: Final = "homing.verbs"
"""The group of entry points by which another distribution adds a verb: its name, and a function for Typer."""
ALL: Final[Mapping[str, VerbEntry]] = MappingProxyType(
    dict(chain.from_iterable(one.items() for one in PANELS.values()))
)
GROUPS: Final = frozenset(
    {
        *("devices", "fleet", "held", "interlocks", "events", "exchange", "queue", "schedule", "state", "webhooks"),
        *("broker", "context", "roles", "admin"),
        *("access", "keys", "users", "audit", "profile"),
    }
)
"""Verbs that have verbs of their own."""


class _InOrder(TyperGroup):
    """Typer would name groups before all other verbs."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override] # Typer's own context
        """The verbs of `PANELS`, then those of other distributions, then the version."""
        del ctx
        of_others = sorted(self.commands.keys() - ALL.keys() - {"version"})
        return [*(name for name in ALL if name in self.commands), *of_others, "version"]


def application_for(arguments: Sequence[str]) -> typer.Typer:
    """The command line with the verb that was typed, so that the others need not be imported; with all otherwise.

    Stop when the verb is of a distribution that is not installed.
    """
    typed = arguments[0] if arguments else ""
    only = {typed} if typed in ALL else set() if typed in ("version", "--version") else None
    application = typer.Typer(
        name="homing",
        cls=_InOrder,
        help="Send commands to drones and IoT devices over MQTT, and bring their responses home.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    application.callback(invoke_without_command=True)(_options)
    application.command(rich_help_panel="Tools")(version)
    for panel, entries in PANELS.items():
        for name, entry in entries.items():
            if only is None or name in only:
                _add(application, name, entry, panel)
    if only is None:
        _add_those_of_others(application, typed)
    return application


def _add_those_of_others(application: typer.Typer, typed: str) -> None:
    found = {point.name: point for point in entry_points(group=VERBS_OF_OTHERS) if point.name not in ALL}
    if typed in ELSEWHERE and typed not in found:
        name = ELSEWHERE[typed]
        raise Stop(f"`homing {typed}` comes with {name}, which is not installed (docs/install.md)", Exit.USAGE)
    for name, point in found.items():
        if typed == name or typed not in found:
            application.command(name, rich_help_panel="Tools")(point.load())


def _add(application: typer.Typer, name: str, entry: VerbEntry, panel: str) -> None:
    found = _found(entry.place)
    if name in GROUPS:
        application.add_typer(found, name=name, short_help=entry.sentence, rich_help_panel=panel)
    else:
        application.command(name, short_help=entry.sentence, rich_help_panel=panel)(found)


def _found(place: str) -> Any:  # noqa: ANN401 - a function or an application
    module, _, name = place.partition(":")
    return getattr(import_module(f"app.cli.{module}"), name)


def _print_version(value: bool) -> None:  # noqa: FBT001 - how typer calls it
    if value:
        out.line(f"homing {__version__}")
        raise typer.Exit


def version() -> None:
    """Print the version."""
    out.line(f"homing {__version__}")


def _options(
    context: typer.Context,
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _run_typed(arguments: Sequence[str]) -> None:
    try:
        application_for(arguments)(prog_name="homing")
    except OSError as error:
        if arguments and not {"-h", "--help"}.intersection(arguments):
            raise
        raise out.full(error) from None  # Typer draws the help itself


def run() -> int:
    """Run the command of this process's arguments; return its exit code."""
    try:
        _run_typed(sys.argv[1:])
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
