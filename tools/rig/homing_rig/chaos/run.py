"""Runs one scenario: schedule from the seed, rig, history, checker, verdict."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from app.core.errors import ConfigurationError
from app.runtime.system import SystemClock
from homing_rig.chaos import checker
from homing_rig.chaos.history import End, Header, HistoryWriter, read_history
from homing_rig.chaos.options import ChaosOptions
from homing_rig.chaos.recorder import Recorder
from homing_rig.chaos.rig import Rig, grace_of, rig_of
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios import ON_UP, find
from homing_rig.chaos.schedule import BROKER, REDIS, Fault, check, read_schedule
from homing_rig.chaos.servers import require_binary, require_faketime

PROGRESS_SECONDS = 0.25
SHORT_PATIENCE = 90.0
"""The patience of callers in short forms: it counts that they get an answer, and not how soon."""


@dataclass(frozen=True, slots=True)
class Status:
    """The status to show while a scenario runs."""

    phase: str
    elapsed: float
    alive: int
    nodes: int
    in_flight: int
    done: int
    retries: int
    faults: int
    planned_faults: int


@dataclass(frozen=True, slots=True)
class Judged:
    """A figure with the value that was reached; None when nothing told it."""

    figure: Figure
    value: float | None
    counts: bool
    """True if it decides in this form of the scenario."""

    @property
    def passed(self) -> bool:
        """True if the figure was reached."""
        return self.value is not None and self.figure.reached(self.value)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run."""

    scenario: Scenario
    form: Form
    seed: int
    schedule: tuple[Fault, ...]
    figures: tuple[Judged, ...]
    checked: checker.Report
    measures: dict[str, float]
    history: Path
    command: str
    """Replays the schedule."""

    @property
    def passed(self) -> bool:
        """True if the checker found nothing and all figures that count were reached."""
        return self.checked.exit_code == 0 and all(one.passed for one in self.figures if one.counts)


Progress = Callable[[Status], None]


def prepare(options: ChaosOptions) -> tuple[Scenario, Form, list[Fault]]:
    """The scenario, its size, and its schedule; ConfigurationError when something is unknown or missing."""
    scenario = find(options.scenario)
    if options.up and scenario.name not in ON_UP:
        raise ConfigurationError(
            f"up: {scenario.name} needs several nodes, Redis or Mosquitto; {', '.join(ON_UP)} do not"
        )
    form = _form(scenario, options)
    for name in ("redis-server", "mosquitto"):
        require_binary(name)
    if scenario.steps:
        require_faketime()
    if options.schedule is not None:
        schedule = sorted(read_schedule(options.schedule))
    else:
        schedule = sorted(scenario.plan(random.Random(f"{options.seed} {scenario.name}"), form))
        if not schedule and scenario.plan(random.Random(0), scenario.full):
            raise ConfigurationError(f"seconds: {form.seconds or 0:g}; {scenario.name} ends before its first fault")
    if options.up:  # it has neither, so those faults would meet nobody
        schedule = [fault for fault in schedule if fault.target not in (BROKER, REDIS)]
    check(
        schedule,
        [f"n{number + 1}" for number in range(form.nodes)],
        proxies=scenario.proxies,
        steps=scenario.steps,
        replica=scenario.replica,
        drives=scenario.drives,
        cluster=scenario.cluster,
    )
    return scenario, form, schedule


async def run_scenario(options: ChaosOptions, progress: Progress | None = None) -> Result:
    """Run it, and judge its history. ConfigurationError and ChaosError are sentences for people."""
    scenario, form, schedule = prepare(options)
    folder = _folder(options, scenario)
    path = folder / "history.jsonl"
    with HistoryWriter(path) as writer:
        recorder = Recorder(writer, SystemClock())
        recorder.write(header_of(scenario, form, options))
        async with rig_of(scenario, form, options, schedule, recorder, folder) as rig:
            showing = asyncio.create_task(_show(rig, progress)) if progress is not None else None
            try:
                await scenario.act(rig)
                await rig.note_counters()
            finally:
                if showing is not None:
                    showing.cancel()
                    with suppress(asyncio.CancelledError):
                        await showing
        recorder.write(End(at=recorder.now()))
    checked = await asyncio.to_thread(lambda: checker.check(read_history(path)))
    values = {**checked.figures, **rig.measures}
    figures = tuple(_judged(one, values.get(one.name), short=options.short) for one in scenario.figures)
    result = Result(
        scenario, form, options.seed, tuple(schedule), figures, checked, rig.measures, path, options.command
    )
    (folder / "report.txt").write_text(_plain(result), "utf-8")
    return result


def header_of(scenario: Scenario, form: Form, options: ChaosOptions) -> Header:
    """The header of the history of such a run."""
    return Header(
        scenario=scenario.name,
        seed=options.seed,
        started_at=datetime.fromtimestamp(SystemClock().wall(), UTC).isoformat(timespec="seconds"),
        retention=_retention(form),
        tolerated=scenario.tolerated,
        expects=scenario.expects,
        grace=grace_of(options),
        limits=scenario.limits,
        settings={"nodes": form.nodes, "rate": form.rate, "seconds": form.seconds, "commands": form.commands},
    )


def _judged(figure: Figure, value: float | None, *, short: bool) -> Judged:
    if short and figure.short is not None:
        figure = replace(figure, limit=figure.short)
    return Judged(figure, value, counts=not (short and figure.timing))


def _form(scenario: Scenario, options: ChaosOptions) -> Form:
    form = replace(scenario.short, patience=SHORT_PATIENCE) if options.short else scenario.full
    if options.up:
        form = replace(form, nodes=1)
    if options.seconds is not None:
        form = replace(form, seconds=options.seconds, commands=None, rate=form.rate or 100.0)
    if options.commands is not None:
        form = replace(form, commands=options.commands)
    if options.nodes is not None and not options.up:
        least = max(2, len(scenario.skews), _nodes_named(scenario))
        if options.nodes < least:
            raise ConfigurationError(f"nodes: {options.nodes}; {scenario.name} needs {least} or more")
        form = replace(form, nodes=options.nodes)
    if options.rate is not None:
        form = replace(form, rate=options.rate)
    return form


def _nodes_named(scenario: Scenario) -> int:
    """The highest number of a node that the schedule names by itself."""
    faults = scenario.plan(random.Random(0), replace(scenario.short, nodes=1))
    numbers = [int(fault.target[1:]) for fault in faults if fault.target[:1] == "n" and fault.target[1:].isdigit()]
    return max(numbers, default=1)


def _folder(options: ChaosOptions, scenario: Scenario) -> Path:
    try:
        if options.out is None:
            return Path(tempfile.mkdtemp(prefix=f"homing-chaos-{scenario.name}-"))
        folder = options.out / f"{scenario.name}-{options.seed}"
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigurationError(f"out: {options.out} cannot be used: {error.strerror} ({error.filename})") from None
    return folder


def _retention(form: Form) -> float | None:
    given = form.settings.get("HOMING_STORE_RETENTION")
    return None if given is None else float(given.removesuffix("s"))


async def _show(rig: Rig, progress: Progress) -> None:
    while True:
        calls = rig.load.calls
        progress(
            Status(
                phase=rig.phase,
                elapsed=rig.recorder.now(),
                alive=rig.alive,
                nodes=len(rig.nodes),
                in_flight=rig.load.open,
                done=len(calls) - rig.load.open,
                retries=sum(rig.load.problems.values()),
                faults=sum(rig.nemesis.counts.values()),
                planned_faults=len(rig.schedule),
            )
        )
        await asyncio.sleep(PROGRESS_SECONDS)


def _plain(result: Result) -> str:
    lines = [f"{result.scenario.name} {result.scenario.title}", result.command, "", *map(str, result.schedule), ""]
    for one in result.figures:
        value = "-" if one.value is None else f"{one.value:g}"
        lines.append(f"{one.figure.name} {value} ({one.figure.compare} {one.figure.limit:g}) {one.figure.meaning}")
    lines += [
        "",
        *(f"{name} {value:g}" for name, value in sorted(result.measures.items())),
        "",
        result.checked.render(),
    ]
    return "\n".join(lines) + "\n"
