"""Measures the cost of events beside commands, and of reading them: `homing bench --events`.

Everything is a ratio of turns of the same run, as other programs use the machine as well.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import orjson
from rich.table import Table

from homing_rig.bench.cluster import Cluster, Steps, job_for, private_cluster, run_job
from homing_rig.bench.events import LogCost, measure
from homing_rig.bench.generator import LoadJob, LoadResult
from homing_rig.bench.options import BenchOptions, ProgressCallback
from homing_rig.bench.processes import Worker, busy_seconds
from homing_rig.machine import describe_machine
from homing_rig.statistics import Latency, median, ratio

EVENTS: Final = 5_000.0
"""The events per second, beside commands."""
MANY_EVENTS: Final = 10_000.0
"""The events per second, alone."""
WARM_UP_SECONDS: Final = 2.0
COMMANDS_AT_ONCE: Final = 4
"""Callers: so few that the machine has time for events; with more, commands alone would fill it."""
NODES: Final = ("node-a", "node-b")


@dataclass(frozen=True, slots=True)
class Aim:
    """A measured value, and the most that it may be. `value` is None where it could not be measured."""

    name: str
    value: float | None
    most: float
    turns: Sequence[float] = ()

    @property
    def reached(self) -> bool:
        """True if the value is no more than that."""
        return self.value is not None and self.value <= self.most


@dataclass(frozen=True, slots=True)
class EventsReport:
    """Everything that was measured."""

    aims: Sequence[Aim]
    told: Mapping[str, float]
    """Figures without an aim, by what they are."""
    foreign: float
    """The number of CPUs that were busy with something else."""
    machine: Mapping[str, Any] = field(default_factory=describe_machine)

    def as_json(self) -> bytes:
        """As a JSON document."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A turn: what came back, how many events the broker took, and the CPU seconds of each process."""

    load: LoadResult | None
    events: int
    seconds: float
    cpu: Mapping[str, float]

    def nodes(self) -> float:
        return sum(self.cpu[name] for name in NODES)


async def run_events_bench(options: BenchOptions, progress: ProgressCallback, count: int) -> EventsReport:
    """Measure; BenchError when something cannot be started. `count` events are written and read beside."""
    steps = Steps(progress, 6 + 4 * options.rounds)
    busy, began, cpu = busy_seconds(), time.perf_counter(), 0.0
    beside = await _beside(options, steps)
    with tempfile.TemporaryDirectory(prefix="homing-bench-") as folder:
        steps.next("a log in RocksDB")
        rocks = await measure(f"rocks://{Path(folder)}/log", count)
    aims, told = _aims(beside)
    aims += _aims_of("RocksDB", rocks)
    cpu = sum(sum(turn.cpu.values()) for turns in beside for turn in turns)
    elapsed = time.perf_counter() - began
    progress(1.0, "done")
    return EventsReport(aims, told, max(0.0, (busy_seconds() - busy - cpu) / elapsed))


async def _beside(options: BenchOptions, steps: Steps) -> tuple[list[_Taken], list[_Taken], list[_Taken], list[_Taken]]:
    """Turns of commands, of events, of both, and of many events."""
    chosen = replace(options, events=True, in_flight=COMMANDS_AT_ONCE)
    steps.next("starting")
    async with AsyncExitStack() as stack:
        cluster, devices = await stack.enter_async_context(private_cluster(chosen))
        talkers = await cluster.processes.worker("talkers", {"mqtt_url": cluster.mqtt_url, "devices": devices[:25]})
        stage = _Stage(cluster, talkers, job_for(chosen, cluster, devices), chosen.seconds)
        steps.next("warming up")
        await talkers.ask({"rate": EVENTS, "seconds": WARM_UP_SECONDS})
        commands, events, both, many = [], [], [], []
        for number in range(1, options.rounds + 1):
            turn = f"round {number} of {options.rounds}"
            steps.next(f"{turn}: commands")
            commands.append(await stage.turn(commands=True))
            steps.next(f"{turn}: commands beside {EVENTS:,.0f} events/s")
            both.append(await stage.turn(EVENTS, commands=True))
            steps.next(f"{turn}: {EVENTS:,.0f} events/s")
            events.append(await stage.turn(EVENTS))
            steps.next(f"{turn}: {MANY_EVENTS:,.0f} events/s")
            many.append(await stage.turn(MANY_EVENTS))
        return commands, events, both, many


@dataclass(frozen=True, slots=True)
class _Stage:
    cluster: Cluster
    talkers: Worker
    job: LoadJob
    seconds: float

    async def turn(self, rate: float = 0.0, *, commands: bool = False) -> _Taken:
        measured = [*self.cluster.measured, self.talkers]
        before = [one.cpu_seconds() for one in measured]
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            load = group.create_task(run_job(self.cluster.load, self.job)) if commands else None
            said = group.create_task(self.talkers.ask({"rate": rate, "seconds": self.seconds})) if rate else None
        seconds = time.perf_counter() - began
        for one in measured:
            one.check()
        used = {one.name: one.cpu_seconds() - start for one, start in zip(measured, before, strict=True)}
        return _Taken(
            None if load is None else load.result(), 0 if said is None else said.result()["taken"], seconds, used
        )


def _aims(turns: tuple[list[_Taken], list[_Taken], list[_Taken], list[_Taken]]) -> tuple[list[Aim], dict[str, float]]:
    commands, events, both, many = turns
    p99 = [ratio(_p99(beside), _p99(calm)) for calm, beside in zip(commands, both, strict=True)]
    cpu = [
        ratio(_per_command(beside, less=alone), _per_command(calm))
        for calm, alone, beside in zip(commands, events, both, strict=True)
    ]
    node = [ratio(turn.nodes(), turn.cpu["mosquitto"]) for turn in many]
    redis = [
        ratio(ratio(alone.cpu["redis"], alone.events), ratio(calm.cpu["redis"], _good(calm)))
        for calm, alone in zip(commands, events, strict=True)
    ]
    aims = [
        _median("commands' p99 beside events, to calm", p99, 1.5),
        _median("CPU of both nodes per command beside events, to calm", cpu, 1.15),
        _median("CPU of both nodes, to Mosquitto's, at many events", node, 2.5),
        _median("CPU of Redis per event, to that of a command", redis, 0.15),
    ]
    told = {
        "commands per second, calm": median([_good(one) / one.seconds for one in commands]),
        "commands per second, beside events": median([_good(one) / one.seconds for one in both]),
        "commands' p99 calm, ms": median([_p99(one) for one in commands]),
        "commands' p99 beside events, ms": median([_p99(one) for one in both]),
        "events per second, beside commands": median([one.events / one.seconds for one in both]),
        "events per second, many": median([one.events / one.seconds for one in many]),
        "CPU of both nodes per event, many, µs": median([1e6 * ratio(one.nodes(), one.events) for one in many]),
        "CPU of Mosquitto per event, many, µs": median([1e6 * ratio(one.cpu["mosquitto"], one.events) for one in many]),
    }
    return aims, told


def _aims_of(engine: str, cost: LogCost) -> list[Aim]:
    merged = cost.merged
    return [
        Aim(f"{engine}: 10,000 of one kind, to topic by topic", ratio(cost.wild, merged), 0.1),
        Aim(f"{engine}: one topic, to all of the log", ratio(cost.exact, cost.scan), 0.001),
        Aim(f"{engine}: bytes kept, to bytes said", cost.kept, 0.6),
    ]


def _median(name: str, turns: list[float], most: float) -> Aim:
    return Aim(name, median(turns), most, sorted(turns))


def _good(turn: _Taken) -> int:
    return 0 if turn.load is None else turn.load.good


def _p99(turn: _Taken) -> float:
    return 0.0 if turn.load is None else Latency.of(turn.load.latencies).p99


def _per_command(turn: _Taken, less: _Taken | None = None) -> float:
    """CPU seconds of both nodes per command, without what as many events cost alone."""
    events = 0.0 if less is None else ratio(less.nodes(), less.events) * turn.events
    return ratio(turn.nodes() - events, _good(turn))


def render(report: EventsReport) -> Table:
    """For people."""
    table = Table(title="Events: ratios of turns of one run")
    for heading, side in (("", "left"), ("reached", "right"), ("at most", "right"), ("turns", "left"), ("", "left")):
        table.add_column(heading, justify="right" if side == "right" else "left")
    for aim in report.aims:
        value = "-" if aim.value is None else f"{aim.value:.4g}"
        turns = " ".join(f"{one:.2f}" for one in aim.turns)
        table.add_row(aim.name, value, f"{aim.most:g}", turns, "ok" if aim.reached else "missed")
    for name, told in report.told.items():
        table.add_row(name, f"{told:,.1f}", "", "", "")
    machine = report.machine
    table.caption = f"other programs kept {report.foreign:.1f} of {machine['cpus']} CPUs busy meanwhile"
    return table
