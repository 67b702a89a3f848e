"""`homing bench`: how fast this machine does it, beside what it could do at best."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import Stop, err, out
from app.runtime.exits import Exit


def bench(  # noqa: PLR0913 - one per option
    *,
    profile: Annotated[str, typer.Option(help="The device profile to use.")] = "dji",
    devices: Annotated[int, typer.Option("--devices", "-n", min=1, help="The number of simulated devices.")] = 200,
    in_flight: Annotated[int, typer.Option(min=1, help="The number of commands open at the same time.")] = 128,
    rounds: Annotated[
        int, typer.Option(min=1, help="The number of repetitions. Each measures the references, too.")
    ] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="The length of each measurement.")] = 5.0,
    commands: Annotated[
        int | None, typer.Option(min=1, help="The number of commands per measurement, in place of --seconds.")
    ] = None,
    pending: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="Also measure while these numbers of other commands wait, such as 10,10000."),
    ] = None,
    nodes_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The URLs of running nodes to measure, in place of new ones.")
    ] = None,
    mqtt_url: Annotated[str | None, typer.Option(metavar="URL", help="The broker of the running nodes.")] = None,
    latency_log: Annotated[
        Path | None,
        typer.Option(
            "--latency-log",
            metavar="DIR",
            help="Also measure the cost of the latency log, which is left in this folder.",
        ),
    ] = None,
    access: Annotated[bool, typer.Option("--access", help="Also measure the cost of keys, rules and audit.")] = False,
    events: Annotated[
        bool, typer.Option("--events", help="Measure events instead: written beside commands, and read.")
    ] = False,
    events_count: Annotated[
        int, typer.Option("--events-count", min=1000, help="The number of events to write and read.")
    ] = 1_000_000,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="The file to write all figures to.")
    ] = None,
) -> None:
    """Measure commands per second, latencies and CPU under closed-loop load, next to two references.

    It starts two nodes, a Redis, a Mosquitto and a fleet of its own. It needs redis-server and mosquitto on this
    machine.
    """
    from app.runtime.telemetry import configure_logging
    from homing_rig.bench import BenchOptions, render, run_bench
    from homing_rig.bench.event_plane import render as render_events
    from homing_rig.bench.event_plane import run_events_bench

    options = BenchOptions(
        profile=profile,
        devices=devices,
        in_flight=in_flight,
        rounds=rounds,
        seconds=seconds,
        commands=commands,
        pending=_counts(pending),
        nodes_url=nodes_url,
        access=access,
        mqtt_url=mqtt_url,
        latency_log=None if latency_log is None else latency_log.absolute(),
    )
    if json_file is not None:
        _check_writable(json_file)
    configure_logging("warning", "console")
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err.console, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("starting", total=1.0)

        def tell(fraction: float, text: str) -> None:
            progress.update(task, completed=fraction, description=text)

        shown: object
        if events:
            told = asyncio.run(run_events_bench(options, tell, events_count))
            shown, text = render_events(told), told.as_json()
        else:
            report = asyncio.run(run_bench(options, tell))
            shown, text = render(report), report.as_json()
    out.console.print(shown)
    if json_file is not None:
        json_file.write_bytes(text)


def _counts(text: str | None) -> tuple[int, ...]:
    if not text:
        return ()
    try:
        return tuple(int(one) for one in text.split(","))
    except ValueError:
        raise Stop(f"--pending: {text[:32]!a} is no list of numbers, such as 10,10000", Exit.USAGE) from None


def _check_writable(path: Path) -> None:
    """Before minutes of measuring, not after."""
    try:
        path.touch()
    except OSError as error:
        raise Stop(f"--json: {path} cannot be written: {error.strerror}", Exit.USAGE) from None
