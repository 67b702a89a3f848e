"""`homing chaos`: break things on purpose, and let the history say what it cost."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.cli.output import Stop, err, out
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from rich.table import Table

    from homing_rig.chaos.options import ChaosOptions
    from homing_rig.chaos.run import Result, Status

LATE_SECONDS: Final = 1.0
"""A rig that sends a command so long after its turn measures itself."""


def chaos(  # noqa: PLR0913, PLR0917 - one per option
    scenario: Annotated[
        str | None, typer.Option("--scenario", "-s", metavar="NAME", help="The name of the scenario: see --list.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="The length of load and faults, in seconds.")] = None,
    commands: Annotated[int | None, typer.Option(help="End the load after this number of commands.")] = None,
    seed: Annotated[
        int, typer.Option(help="The random seed, which decides the schedule of faults and all choices.")
    ] = 1,
    nodes: Annotated[int | None, typer.Option(help="The number of nodes.")] = None,
    rate: Annotated[float | None, typer.Option(help="The number of commands per second.")] = None,
    schedule: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Faults in the printed form, in place of those from the seed.")
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder to keep history, logs and report in.")
    ] = None,
    latency_log: Annotated[
        Path | None, typer.Option("--latency-log", metavar="DIR", help="The folder for the nodes' latency log.")
    ] = None,
    access: Annotated[  # noqa: FBT002 - how typer takes a flag
        bool, typer.Option("--access", help="Make the nodes require keys and keep an audit log.")
    ] = False,
    up: Annotated[  # noqa: FBT002 - how typer takes a flag
        bool, typer.Option("--up", help="Run it on one `homing up`, with its own broker and store.")
    ] = False,
    short: Annotated[  # noqa: FBT002 - how typer takes a flag
        bool, typer.Option("--short", help="Run the short form of the test suite: seconds, not minutes.")
    ] = False,
    list_all: Annotated[  # noqa: FBT002 - how typer takes a flag
        bool, typer.Option("--list", help="Show all scenarios, and what they must reach.")
    ] = False,
) -> None:
    """Break nodes, broker and connections under load, and judge what became of every command.

    It starts Redis, Mosquitto, nodes, devices and callers of its own. It needs redis-server and mosquitto on this
    machine. Exit code: 0 all figures reached, 1 not, 2 it cannot be run as asked.
    """
    from app.runtime.telemetry import configure_logging

    configure_logging("error", "console")
    if list_all:
        out.console.print(_all())
        return
    if scenario is None:
        raise Stop("--scenario: give one, such as R3; --list shows them all", Exit.USAGE)
    from homing_rig.chaos.options import ChaosOptions
    from homing_rig.chaos.run import prepare

    options = ChaosOptions(
        scenario=scenario,
        seed=seed,
        seconds=seconds,
        commands=commands,
        nodes=nodes,
        rate=rate,
        schedule=schedule,
        short=short,
        access=access,
        up=up,
        out=out_folder,
        latency_log=None if latency_log is None else latency_log.absolute(),
    )
    chosen, _, faults = prepare(options)
    err.line(f"{chosen.name} {chosen.title}: {chosen.provoke}")
    for fault in faults[:SHOWN_FAULTS]:
        err.line(f"  {fault}")
    if len(faults) > SHOWN_FAULTS:
        err.console.print(f"  … and {len(faults) - SHOWN_FAULTS} more")
    result = _run(options)
    _show(result)
    if not result.passed:
        raise Stop("", Exit.FAILED)


SHOWN_FAULTS = 20


def _run(options: ChaosOptions) -> Result:
    from rich.live import Live

    from homing_rig.chaos.run import run_scenario

    # Everything that was started has to be stopped, also when we are told to stop.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Live(console=err.console, refresh_per_second=4, transient=True) as live:
        return asyncio.run(run_scenario(options, lambda status: live.update(_table(status))))


def _table(status: Status) -> Table:
    from rich.table import Table

    table = Table(title=f"{status.elapsed:.0f} s: {status.phase}", box=None)
    for heading in ("alive nodes", "in flight", "done", "retries", "faults"):
        table.add_column(heading, justify="right")
    table.add_row(
        f"{status.alive} of {status.nodes}",
        f"{status.in_flight:,}",
        f"{status.done:,}",
        f"{status.retries:,}",
        f"{status.faults} of {status.planned_faults}",
    )
    return table


def _all() -> Table:
    from rich.table import Table

    from homing_rig.chaos.scenarios import SCENARIOS

    table = Table("", "scenario", "how", "to reach", show_lines=True)
    for one in SCENARIOS.values():
        figures = ", ".join(f"{figure.name} {figure.compare} {figure.limit:g}" for figure in one.figures)
        table.add_row(one.name, one.title, one.provoke, figures)
    return table


def _show(result: Result) -> None:
    from rich.table import Table
    from rich.text import Text

    out.line(result.checked.render())
    table = Table("figure", "to reach", "reached", "", title=f"{result.scenario.name} {result.scenario.title}")
    for one in result.figures:
        reached = "unknown" if one.value is None else f"{one.value:g}"
        verdict = "ok" if one.passed else "MISSED" if one.counts else "missed (not judged in the short form)"
        limit = f"{one.figure.compare} {one.figure.limit:g}"
        table.add_row(one.figure.meaning, limit, reached, Text(verdict, "green" if one.passed else "red"))
    out.console.print(table)
    measured = ", ".join(f"{name} {value:g}" for name, value in sorted(result.measures.items()))
    out.line(f"measured: {measured}")
    late = result.measures.get("rig_late_s", 0.0)
    if late > LATE_SECONDS:
        out.line(
            f"The rig itself was late by up to {late:g} s. On a machine this busy, times say nothing about Homing."
        )
    out.line(f"history: {result.history}")
    out.line(f"again: {result.command}")
    out.console.print("PASSED" if result.passed else "FAILED")
