"""`homing analyze`, its steps, and `homing generate-log`: what the latency log says, and logs to try that on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.follow import duration, follow_log
from app.cli.output import Exit, Stop, err, out, tell
from app.core.errors import ConfigurationError
from app.system import SystemClock

_LEARNED = "Learned timeouts"
_FOLLOWING = "Following"
Log = Annotated[str, typer.Argument(metavar="LOG_DIR", help="The latency log: a folder or a URL.")]
Out = Annotated[str, typer.Option("--out", metavar="DIR", help="Where results go: a folder or a URL.")]
From = Annotated[str | None, typer.Option("--from", metavar="DAY", help="First day, UTC: 2026-11-21, today-30.")]
To = Annotated[str | None, typer.Option("--to", metavar="DAY", help="Day to end before.")]
Date = Annotated[str | None, typer.Option("--date", metavar="DAY", help="This day alone: 2026-11-21, yesterday.")]
Group = Annotated[
    str | None, typer.Option(metavar="REGEX", help="The group in parentheses is the group of a device id.")
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark to run on; without it, this machine (local[*]).")
]
Memory = Annotated[str, typer.Option(help="Heap of the Spark that is started here.")]
MaxPending = Annotated[int, typer.Option(help="HOMING_COMMAND_MAX_PENDING of the nodes, for headroom.")]
Top = Annotated[int, typer.Option(help="Devices that the report shows as slowest and as flakiest.")]
Level = Annotated[float, typer.Option(help="Chance of flagging anything where nothing is wrong.")]
CompareTo = Annotated[str | None, typer.Option(metavar="DAY", help="Compare with the period from here to --from.")]
Quantile = Annotated[float, typer.Option(help="What share must be in time.", rich_help_panel=_LEARNED)]
Margin = Annotated[float, typer.Option(help="Added to it, as a share.", rich_help_panel=_LEARNED)]
Sample = Annotated[
    int | None, typer.Option(help="Responses needed; without it 1 / (1 - quantile).", rich_help_panel=_LEARNED)
]
Shortest = Annotated[str, typer.Option(help="No timeout is shorter.", rich_help_panel=_LEARNED)]
Longest = Annotated[str, typer.Option(help="No timeout is longer.", rich_help_panel=_LEARNED)]
HeldOut = Annotated[float, typer.Option(help="Share of hours to test on.", rich_help_panel=_LEARNED)]


def analyze(  # noqa: PLR0913 - one per option
    log_dir: Log,
    *,
    out_dir: Out,
    begin: From = None,
    end: To = None,
    compare_to: CompareTo = None,
    max_pending: MaxPending = 20_000,
    top: Top = 20,
    level: Level = 0.001,
    device_group: Group = None,
    master: Master = None,
    memory: Memory = "1536m",
    timeout_quantile: Quantile = 0.999,
    timeout_margin: Margin = 0.25,
    timeout_sample: Sample = None,
    timeout_min: Shortest = "1s",
    timeout_max: Longest = "1h",
    held_out: HeldOut = 0.2,
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
    """Analyse a latency log on Spark: compact, rollup and report; days that are done already are not done again."""
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
            memory=memory,
        )
        return
    learned = {"quantile": timeout_quantile, "margin": timeout_margin, "least_records": timeout_sample}
    learned |= {"held_out": held_out, **bounds(timeout_min, timeout_max)}
    period = {"begin": begin, "end": end, "compare_to": compare_to}
    shown = {"max_pending": max_pending, "top": top, "level": level, "device_group": device_group}
    run_steps(("compact", "rollup", "report"), out_dir, master, memory, period, learned, log=log_dir, **shown)


def bounds(shortest: str, longest: str) -> dict[str, Any]:
    """Of learned timeouts, as options give them."""
    return {"shortest": duration("--timeout-min", shortest), "longest": duration("--timeout-max", longest)}


def run_steps(
    steps: tuple[str, ...],
    out_dir: str,
    master: str | None,
    memory: str,
    period: dict[str, str | None],
    learned: dict[str, Any] | None = None,
    **further: Any,
) -> None:
    """Run these steps, and tell what came of it. `period` has days as people write them."""
    with _needs_extra():
        from app.analysis.analyze import analyze as run
        from app.analysis.deadlines import DeadlineOptions
        from app.analysis.options import DAY, AnalyzeOptions, parse_day

    names = {"begin": "--from", "end": "--to", "compare_to": "--compare-to", "date": "--date"}
    today = datetime.fromtimestamp(SystemClock().wall(), UTC).date()
    days: dict[str, Any] = {
        name: parse_day(names[name], text, today) for name, text in period.items() if text is not None
    }
    if (only := days.pop("date", None)) is not None:
        days = {"begin": only, "end": only + DAY}
    if further.get("device_group") is None:
        further.pop("device_group", None)
    options = AnalyzeOptions(
        out=out_dir, steps=steps, master=master, memory=memory, deadlines=DeadlineOptions(**learned or {}), **days,
        **further,
    )  # fmt: skip
    with _progress() as progress:
        summary = run(options, progress)
    if not summary:
        return
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
    """A bar for a person, lines for a file."""
    if not err.is_terminal:
        yield lambda fraction, text: tell(err, f"{fraction:4.0%} {text}")
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("starting", total=1.0)
        yield lambda fraction, text: progress.update(task, completed=fraction, description=text)
