"""`homing analyze`, its steps, and `homing generate-log`: what the latency log says, and logs to try that on."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.analysis.session import MEMORY
from app.cli.output import Stop, err, out, tell
from app.core.durations import parse_duration
from app.core.errors import ConfigurationError
from app.runtime.exits import Exit
from app.runtime.system import SystemClock

_DURATIONS: Final = {
    "shortest": "--timeout-min",
    "longest": "--timeout-max",
    "lateness": "--lateness",
    "p99": "--alert-p99",
}
_DAYS: Final = {"begin": "--from", "end": "--to", "compare_to": "--compare-to", "date": "--date"}


def _options(type_: Any, panel: str | None = None, **described: tuple[str, Any, str]) -> dict[str, Parameter]:  # noqa: ANN401 - a type
    """Name -> option, of its flag, default and help; `...` is no default. Days and durations are texts of people."""
    return {
        name: Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if default is ... else default,
            annotation=Annotated[type_, typer.Option(flag, help=text, rich_help_panel=panel)],
        )
        for name, (flag, default, text) in described.items()
    }


_LEARNED, _FOLLOWING = "Learned timeouts", "Following"
_OPTIONS: Final[Mapping[str, Parameter]] = {
    "log": Parameter(
        "log",
        Parameter.POSITIONAL_OR_KEYWORD,
        annotation=Annotated[str, typer.Argument(metavar="LOG_DIR", help="The latency log: a folder or a URL.")],
    ),
    **_options(
        str,
        out=("--out", ..., "The folder or URL to write results to."),
        memory=("--memory", MEMORY, "The heap size of the Spark that is started here."),
    ),
    **_options(
        str | None,
        begin=("--from", None, "The first day in UTC, such as 2026-11-21 or today-30."),
        end=("--to", None, "The day to end before."),
        events=("--events", None, "The cold tier of the event log, HOMING_EVENTS_COLD: a folder or a URL."),
        date=("--date", None, "A single day, such as 2026-11-21 or yesterday."),
        compare_to=("--compare-to", None, "Compare with the period that begins on this day and ends at --from."),
        device_group=("--device-group", None, "A pattern whose parenthesised part gives the group of a device id."),
        master=("--master", None, "The Spark master. By default, this machine (local[*])."),
    ),
    **_options(int, max_pending=("--max-pending", 20_000, "HOMING_COMMAND_MAX_PENDING of the nodes, for headroom.")),
    **_options(
        float,
        level=("--level", 0.001, "The probability of a false alarm if nothing is wrong."),
        success=("--success", 0.95, "The share of commands that should succeed."),
    ),
    **_options(
        float,
        _LEARNED,
        quantile=("--timeout-quantile", 0.999, "The share of commands that must be answered in time."),
        margin=("--timeout-margin", 0.25, "The margin to add to the timeout, as a share."),
    ),
    **_options(
        str,
        _LEARNED,
        shortest=("--timeout-min", "1s", "The shortest timeout."),
        longest=("--timeout-max", "1h", "The longest timeout."),
    ),
    **_options(
        bool,
        _FOLLOWING,
        follow=("--follow", False, "Keep reading as the log grows."),
        once=("--once", False, "End once everything in the log has been read."),
    ),
    **_options(str, _FOLLOWING, lateness=("--lateness", "2m", "How late records may arrive.")),
    **_options(
        str | None,
        _FOLLOWING,
        webhook=("--webhook", None, "The URL to POST alerts to."),
        p99=("--alert-p99", None, "The alert threshold for all methods."),
    ),
    **_options(
        float | None, _FOLLOWING, timeout_share=("--alert-timeout-share", None, "The alert threshold for all methods.")
    ),
    **_options(float, _FOLLOWING, objective=("--slo", 0.99, "The share of commands to be answered in time.")),
}
_REPORT: Final = "compare_to max_pending level success quantile margin shortest longest"


def _verb(run: Callable[[dict[str, Any]], None], names: str, text: str) -> Callable[..., None]:
    """A command with these options."""

    def command(**given: Any) -> None:
        run(given)

    options = [_OPTIONS[name] for name in names.split()]
    options.sort(key=lambda one: one.default is not Parameter.empty)
    command.__doc__ = text
    command.__annotations__ = {one.name: one.annotation for one in options}
    vars(command)["__signature__"] = Signature(options)
    return command


def _steps(*steps: str, **fixed: Any) -> Callable[[dict[str, Any]], None]:
    """Run these steps, and tell what came of it."""

    def run(given: dict[str, Any]) -> None:
        with _needs_extra():
            from app.analysis.analyze import analyze as run_here
            from app.analysis.deadlines import DeadlineOptions
            from app.analysis.options import AnalyzeOptions
        today = datetime.fromtimestamp(SystemClock().wall(), UTC).date()
        values = _durations(given) | {
            name: _day(flag, text, today) for name, flag in _DAYS.items() if (text := given.get(name)) is not None
        }
        if (only := values.get("date")) is not None:
            if values.get("begin") or values.get("end"):
                raise ConfigurationError("--date: not together with --from and --to")
            values |= {"begin": only, "end": only + timedelta(days=1)}
        values = {name: value for name, value in values.items() if value is not None}
        options = AnalyzeOptions(
            **_of(AnalyzeOptions, values),
            **fixed,
            steps=steps,
            deadlines=DeadlineOptions(**_of(DeadlineOptions, values)),
        )
        with _progress() as progress:
            summary = run_here(options, progress)
        _tell(summary, given["out"])

    return run


_A_DAY: Final = "a day of UTC such as 2026-11-21, today, yesterday or today-30"


def _day(option: str, text: str, today: date) -> date:
    given = {"yesterday": "today-1"}.get(text.strip(), text.strip())
    try:
        if found := re.fullmatch(r"today(-\d{1,5})?", given, re.ASCII):
            return today + timedelta(days=int(found[1] or 0))
        return date.fromisoformat(given)
    except ValueError:
        raise ConfigurationError(f"{option} {text[:32]!a}: not a day; allowed: {_A_DAY}") from None


def _tell(summary: dict[str, Any], out_dir: str) -> None:
    if not summary:
        return
    for row in summary["quarantined"]:
        tell(err, f"left out: {row['files']:,} files, {row['records']:,} records: {row['meaning']} ({row['example']})")
    for row in summary["anomalies"]:
        tell(out, f"flagged: {row['sentence']}")
    tell(out, f"{out_dir.rstrip('/')}/report.html")


def _analyze_or_follow(given: dict[str, Any]) -> None:
    if given["follow"]:
        _follow(given)
    else:
        _steps("compact", "rollup", "report")(given)


def _follow(given: dict[str, Any]) -> None:
    """Follow until interrupted (SIGINT, SIGTERM), or with `--once` until all is done."""
    with _needs_extra():
        from app.analysis.session import spark_session
        from app.analysis.stream.judge import Bands
        from app.analysis.stream.run import FollowOptions, follow
    from app.runtime.telemetry import configure_logging

    if "://" in given["out"]:
        raise ConfigurationError(f"--out {given['out']}: with --follow it must be a folder of this machine")
    values = _durations(given) | {"out": Path(given["out"])}
    bands = Bands(**{name: values[name] for name in Bands._fields})
    options = FollowOptions(**_of(FollowOptions, values), bands=bands)
    configure_logging("info", "json")
    signal.signal(signal.SIGTERM, _interrupt)
    with spark_session("homing analyze --follow", options.master, memory=given["memory"]) as spark:
        follow(spark, options, lambda text: tell(err, text))


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _of(dataclass: Any, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - the type is what matters
    """Return those of its fields that are given."""
    return {one.name: values[one.name] for one in fields(dataclass) if one.name in values}


def _durations(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _duration(name, value) if name in _DURATIONS else value for name, value in given.items()}


def _duration(name: str, text: str | None) -> timedelta | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise ConfigurationError(f"{_DURATIONS[name]}: {error}") from None


analyze = _verb(
    _analyze_or_follow,
    f"log out events begin end {_REPORT} device_group master memory "
    "follow once lateness webhook p99 timeout_share objective",
    "Analyze a latency log on Spark: compact, roll up and report. Days that were done before are skipped.",
)
compact = _verb(
    _steps("compact", again=True),
    "log out events date begin end master memory",
    "Run the first step of `analyze`: write days of a latency log as clean records to large files.",
)
rollup = _verb(
    _steps("rollup", again=True),
    "out date begin end device_group master memory",
    "Run the second step of `analyze`: turn compacted days into counts that can be added up.",
)
report = _verb(
    _steps("report"),
    f"out begin end {_REPORT} device_group memory",
    "Run the third step of `analyze`, without Spark: write tables, timeouts.toml and report.html of any period.",
)


def generate_log(
    *,
    out_dir: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write to. It must be new or empty.")
    ],
    callbacks: Annotated[str, typer.Option(metavar="N", help="The number of commands, such as 500k or 10M.")] = "1M",
    seed: Annotated[int, typer.Option(help="The random seed. The same seed gives the same log.")] = 1,
    plant: Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="A file of anomalies to plant, such as docs/examples/anomalies.toml."),
    ] = None,
    days: Annotated[int, typer.Option(help="The number of days that the log covers.")] = 1,
    nodes: Annotated[int, typer.Option(help="The number of nodes in the cluster.")] = 3,
    devices: Annotated[int, typer.Option(help="The number of devices in the fleet.")] = 2000,
) -> None:
    """Generate a realistic latency log with known anomalies to try the analysis on; _truth.json lists the anomalies."""
    with _needs_extra():
        from app.analysis.generate import generate
        from app.analysis.plant import GenerateOptions
        from app.core.counts import parse_count

    try:
        count = parse_count(callbacks)
    except ValueError as error:
        raise ConfigurationError(f"--callbacks: {error}") from None
    options = GenerateOptions(
        callbacks=count, out=out_dir, seed=seed, plant=plant, days=days, nodes=nodes, devices=devices
    )
    with _progress() as progress:
        truth = generate(options, progress)
    tell(out, f"{count:,} callbacks in {truth['files']:,} files in {out_dir}")


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
    with Progress(*columns, console=err.console, transient=True) as progress:
        task = progress.add_task("starting", total=1.0)
        yield lambda fraction, text: progress.update(task, completed=fraction, description=text)
