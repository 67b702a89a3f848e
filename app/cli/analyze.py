"""`homing analyze` and `homing generate-log`: what the latency log says, and logs to try that on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from app.cli.follow import duration, follow_log
from app.cli.output import Exit, Stop, err, out, tell
from app.core.errors import ConfigurationError

_LEARNED = "Learned timeouts"
_FOLLOWING = "Following"


def analyze(  # noqa: PLR0913 - one per option
    log_dir: Annotated[str, typer.Argument(metavar="LOG_DIR", help="The latency log: a folder or a URL.")],
    *,
    out_dir: Annotated[str, typer.Option("--out", metavar="DIR", help="Where results go: a folder or a URL.")],
    begin: Annotated[str | None, typer.Option("--from", metavar="HOUR", help="First hour, UTC: 2026-11-21T07.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="HOUR", help="Hour to end before.")] = None,
    compare_to: Annotated[
        str | None, typer.Option(metavar="HOUR", help="Compare with the period from here to --from.")
    ] = None,
    max_pending: Annotated[int, typer.Option(help="HOMING_COMMAND_MAX_PENDING of the nodes, for headroom.")] = 20_000,
    top: Annotated[int, typer.Option(help="Devices to list as slowest and as flakiest.")] = 20,
    level: Annotated[float, typer.Option(help="Chance of flagging anything where nothing is wrong.")] = 0.001,
    device_group: Annotated[
        str | None, typer.Option(metavar="REGEX", help="The group in parentheses is the group of a device id.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark to run on; without it, this machine (local[*]).")
    ] = None,
    timeout_quantile: Annotated[float, typer.Option(help="What share must be in time.", rich_help_panel=_LEARNED)] = (
        0.999
    ),
    timeout_margin: Annotated[float, typer.Option(help="Added to it, as a share.", rich_help_panel=_LEARNED)] = 0.25,
    timeout_sample: Annotated[
        int | None, typer.Option(help="Responses needed; without it 1 / (1 - quantile).", rich_help_panel=_LEARNED)
    ] = None,
    timeout_min: Annotated[str, typer.Option(help="No timeout is shorter.", rich_help_panel=_LEARNED)] = "1s",
    timeout_max: Annotated[str, typer.Option(help="No timeout is longer.", rich_help_panel=_LEARNED)] = "1h",
    held_out: Annotated[float, typer.Option(help="Share of hours to test on.", rich_help_panel=_LEARNED)] = 0.2,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on reading as the log grows.", rich_help_panel=_FOLLOWING)
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="End when all that is there was read.", rich_help_panel=_FOLLOWING)
    ] = False,
    lateness: Annotated[str, typer.Option(help="How late records may come.", rich_help_panel=_FOLLOWING)] = "2m",
    every: Annotated[str, typer.Option(help="How often to look for files.", rich_help_panel=_FOLLOWING)] = "10s",
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Where alerts are POSTed.", rich_help_panel=_FOLLOWING)
    ] = None,
    alert_p99: Annotated[
        str | None, typer.Option(metavar="DURATION", help="A limit for all methods.", rich_help_panel=_FOLLOWING)
    ] = None,
    alert_timeout_share: Annotated[
        float | None, typer.Option(metavar="SHARE", help="A limit for all methods.", rich_help_panel=_FOLLOWING)
    ] = None,
    slo: Annotated[float, typer.Option(help="Share to be answered in time.", rich_help_panel=_FOLLOWING)] = 0.99,
) -> None:
    """Analyse a latency log on Spark: tables, summary.json, timeouts.toml and report.html. See docs/analysis.md."""
    if follow:
        follow_log(
            log_dir,
            out_dir,
            master=master,
            lateness=lateness,
            every=every,
            once=once,
            webhook=webhook,
            alert_p99=alert_p99,
            alert_timeout_share=alert_timeout_share,
            slo=slo,
        )
        return
    with _needs_extra():
        from app.analysis.analyze import analyze as run
        from app.analysis.deadlines import DeadlineOptions
        from app.analysis.devices import GROUP_PATTERN
        from app.analysis.options import AnalyzeOptions, parse_moment

    options = AnalyzeOptions(
        log=log_dir,
        out=out_dir,
        begin=None if begin is None else parse_moment("--from", begin),
        end=None if end is None else parse_moment("--to", end),
        compare_to=None if compare_to is None else parse_moment("--compare-to", compare_to),
        max_pending=max_pending,
        top=top,
        level=level,
        device_group=device_group or GROUP_PATTERN,
        master=master,
        deadlines=DeadlineOptions(
            quantile=timeout_quantile,
            margin=timeout_margin,
            least_records=timeout_sample,
            shortest=duration("--timeout-min", timeout_min),
            longest=duration("--timeout-max", timeout_max),
            held_out=held_out,
        ),
    )
    with _progress() as progress:
        summary = run(options, progress).summary
    for row in summary["quarantined"]:
        tell(err, f"left out: {row['files']:,} files, {row['records']:,} records: {row['meaning']} ({row['example']})")
    for row in summary["anomalies"]:
        tell(out, f"flagged: {row['sentence']}")
    tell(out, f"{out_dir.rstrip('/')}/report.html")


def generate_log(
    *,
    out_dir: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new or empty folder.")],
    callbacks: Annotated[str, typer.Option(metavar="N", help="How many commands: 500k, 10M.")] = "1M",
    seed: Annotated[int, typer.Option(help="The same seed gives the same log.")] = 1,
    plant: Annotated[
        Path | None, typer.Option(metavar="TOML", help="Anomalies to plant: docs/examples/anomalies.toml.")
    ] = None,
    days: Annotated[int, typer.Option(help="Days that the log covers.")] = 1,
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster.")] = 3,
    devices: Annotated[int, typer.Option(help="Devices of the fleet.")] = 2000,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark to run on.")] = None,
) -> None:
    """Write a realistic latency log with known anomalies, to try the analysis on; the truth is in _truth.json."""
    with _needs_extra():
        from app.analysis.counts import parse_count
        from app.analysis.generate import GenerateOptions, generate

    try:
        count = parse_count(callbacks)
    except ValueError as error:
        raise ConfigurationError(f"--callbacks: {error}") from None
    options = GenerateOptions(
        callbacks=count, out=out_dir, seed=seed, plant=plant, days=days, nodes=nodes, devices=devices, master=master
    )
    with _progress() as progress:
        generated = generate(options, progress)
    tell(out, f"{count:,} callbacks in {generated.files:,} files in {out_dir}")


@contextmanager
def _needs_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "app":
            raise
        raise Stop(f"this needs {error.name}: pip install 'homing[analysis]'", Exit.USAGE) from None


@contextmanager
def _progress() -> Iterator[Callable[[float, str], None]]:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("starting", total=1.0)
        yield lambda fraction, text: progress.update(task, completed=fraction, description=text)
