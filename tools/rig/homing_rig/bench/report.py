"""The findings of the benchmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from homing_rig.bench.generator import LoadResult
from homing_rig.machine import describe_machine
from homing_rig.statistics import Latency, median, ratio


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of load: what came back, and the CPU seconds of each process meanwhile."""

    load: LoadResult
    cpu: dict[str, float]
    foreign: float = 0.0
    """The number of CPUs that were busy with something else."""

    def cpu_per_command(self) -> dict[str, float]:
        """Microseconds of CPU per good answer, by process."""
        return {name: ratio(seconds * 1_000_000, self.load.good) for name, seconds in self.cpu.items()}


@dataclass(frozen=True, slots=True)
class Side:
    """All turns of the cluster, or of the reference. Rates and CPU are medians over the turns, latency is of all."""

    per_second: float
    latency: Latency
    cpu: dict[str, float]
    """Microseconds per command, by process."""
    foreign: float
    """The number of CPUs that other programs kept busy: the more, the less the rates mean."""
    commands: int
    forwarded: float
    """The share whose response came in on another node than the home node."""
    wrong: int
    lost: int
    errors: dict[str, int]

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> Side:
        """Sum up."""
        loads = [turn.load for turn in turns]
        good = sum(load.good for load in loads)
        return cls(
            per_second=median([load.per_second for load in loads]),
            latency=Latency.of([one for load in loads for one in load.latencies]),
            cpu=median_by_name([turn.cpu_per_command() for turn in turns]),
            foreign=median([turn.foreign for turn in turns]),
            commands=good,
            forwarded=ratio(sum(load.forwarded for load in loads), good),
            wrong=sum(load.wrong for load in loads),
            lost=sum(load.lost for load in loads),
            errors=dict(sum((Counter(load.errors) for load in loads), Counter())),
        )


@dataclass(frozen=True, slots=True)
class Single:
    """One command at a time: medians over the turns of the p50, in milliseconds."""

    paho_p50: float
    node_p50: float
    ratio: float
    """The median of the turns' own ratios."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Single:
        """From the latencies (microseconds) of bare paho and of the node, turn by turn."""
        p50 = [(Latency.of(paho).p50, Latency.of(node).p50) for paho, node in pairs]
        return cls(
            paho_p50=median([paho for paho, _ in p50]),
            node_p50=median([node for _, node in p50]),
            ratio=median([ratio(node, paho) for paho, node in p50]),
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per waiting command, over `commands` of them: resident memory of the node, `used_memory` of Redis."""

    commands: int
    node: float
    redis: float


@dataclass(frozen=True, slots=True)
class PendingReport:
    """Load beside commands that wait: on all devices, or all on one."""

    where: str
    sides: dict[int, Side]
    """The sides, by the number of commands that wait."""
    growth: dict[str, float]
    """CPU per command by process, beside most of them against fewest: the median of the turns' ratios."""

    @classmethod
    def of(cls, where: str, pending: Sequence[int], turns: Sequence[Sequence[Turn]]) -> PendingReport:
        """From the turns beside each number, in rising order."""
        pairs = zip(turns[0], turns[-1], strict=True)
        growth = median_by_name([_growth(fewest.cpu_per_command(), most.cpu_per_command()) for fewest, most in pairs])
        return cls(where, {number: Side.of(taken) for number, taken in zip(pending, turns, strict=True)}, growth)


@dataclass(frozen=True, slots=True)
class CostReport:
    """The same load on two clusters in turns: one without something, and one with it."""

    without: Side
    with_it: Side
    cost: list[float]
    """CPU of both nodes per command with it against without, by turns, in rising order."""
    median: float
    """The median of these ratios."""
    total: float
    """The same over all turns together."""
    untouched: float
    """The same for fleet and load, which it cannot touch: how far the machine itself went up or down."""

    @classmethod
    def of(cls, without: Sequence[Turn], with_it: Sequence[Turn]) -> CostReport:
        """From the turns of both."""
        pairs = zip(without, with_it, strict=True)
        cost = sorted(ratio(_of_nodes(dear), _of_nodes(plain)) for plain, dear in pairs)
        total = ratio(_of_nodes(*with_it), _of_nodes(*without))
        untouched = ratio(_cpu(("fleet", "load"), with_it), _cpu(("fleet", "load"), without))
        return cls(Side.of(without), Side.of(with_it), cost, median(cost), total, untouched)


def _of_nodes(*turns: Turn) -> float:
    return _cpu(("node-a", "node-b"), turns)


def _cpu(names: Sequence[str], turns: Sequence[Turn]) -> float:
    """CPU seconds of these processes per command."""
    seconds = sum(turn.cpu.get(name, 0.0) for turn in turns for name in names)
    return ratio(seconds, sum(turn.load.good for turn in turns))


def _growth(fewest: dict[str, float], most: dict[str, float]) -> dict[str, float]:
    return {name: ratio(most[name], cpu) for name, cpu in fewest.items()}


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Everything that was measured in one run."""

    options: dict[str, Any]
    cluster: Side
    no_op: Side
    ratio: float
    """Commands per second against requests per second of the no-op reference: the median of the turns' ratios."""
    ratios: list[float]
    single: Single
    pending: list[PendingReport] = field(default_factory=list)
    memory: Memory | None = None
    latency_log: CostReport | None = None
    access: CostReport | None = None
    machine: dict[str, Any] = field(default_factory=describe_machine)

    @property
    def clean(self) -> bool:
        """True if every command got its own answer, and in time."""
        sides = [self.cluster, self.no_op, *(side for report in self.pending for side in report.sides.values())]
        for one in (self.latency_log, self.access):
            sides += [] if one is None else [one.without, one.with_it]
        return not any(side.wrong or side.lost or side.errors for side in sides)

    def as_json(self) -> bytes:
        """As a JSON document."""
        return orjson.dumps(asdict(self), default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)


def turn_ratios(cluster: Sequence[Turn], no_op: Sequence[Turn]) -> list[float]:
    """Each turn of the cluster against the reference's turn just before it."""
    return [ratio(ours.load.per_second, its.load.per_second) for ours, its in zip(cluster, no_op, strict=True)]


def median_by_name(values: Iterable[dict[str, float]]) -> dict[str, float]:
    """The median per key."""
    by_name: dict[str, list[float]] = {}
    for one in values:
        for name, value in one.items():
            by_name.setdefault(name, []).append(value)
    return {name: median(found) for name, found in by_name.items()}
