"""The report for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from homing_rig.bench.report import BenchReport, CostReport, Memory, PendingReport, Side

RATIO_GOAL = 0.40
SINGLE_GOAL = 5.0
GROWTH_GOAL = 1.15
NODE_BYTES_GOAL = 4096
REDIS_BYTES_GOAL = 1536
LOG_GOAL = 1.03
ACCESS_GOAL = 1.03
MEASURED = ("node-a", "node-b", "redis")
"""The processes that waiting commands may burden."""


def render(report: BenchReport) -> RenderableType:
    """Tables for a rich Console."""
    parts: list[RenderableType] = [_throughput(report), _cpu(report), _single(report)]
    parts.extend(_pending(one) for one in report.pending)
    if report.memory is not None:
        parts.append(_memory(report.memory))
    if report.latency_log is not None:
        parts.append(_cost("The latency log", LOG_GOAL, report.latency_log))
    if report.access is not None:
        parts.append(_cost("Access, with an audit", ACCESS_GOAL, report.access))
    parts.append(_verdict(report))
    return Group(*parts)


def _throughput(report: BenchReport) -> Table:
    options = report.options
    title = (
        f"{options['in_flight']} in flight, {options['devices']} devices, profile {options['profile']}; latency in ms"
    )
    table = Table(title=title)
    table.add_column("", no_wrap=True)
    for heading in ("per s", "p50", "p99", "p99.9", "forwarded", "wrong", "lost", "errors"):
        table.add_column(heading, justify="right")
    table.add_row("commands", *_side(report.cluster))
    table.add_row("no-op", *_side(report.no_op))
    spread = ", ".join(f"{one:.3f}" for one in report.ratios)
    table.caption = f"commands / no-op = {report.ratio:.3f} (rounds: {spread}); the aim is {RATIO_GOAL:.2f} or more"
    return table


def _side(side: Side) -> list[str]:
    latency = side.latency
    return [
        f"{side.per_second:,.0f}",
        f"{latency.p50:.1f}",
        f"{latency.p99:.1f}",
        f"{latency.p999:.1f}",
        f"{side.forwarded:.1%}",
        str(side.wrong),
        str(side.lost),
        _errors(side.errors),
    ]


def _errors(errors: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(errors.items())) or "0"


def _cpu(report: BenchReport) -> Table:
    table = Table(title="CPU per command, µs")
    sides = (("commands", report.cluster), ("no-op", report.no_op))
    names = list(dict.fromkeys(name for _, side in sides for name in side.cpu))
    table.add_column("", no_wrap=True)
    for name in (*names, "all"):
        table.add_column(name, justify="right")
    for label, side in sides:
        cells = [f"{side.cpu[name]:.0f}" if name in side.cpu else "" for name in names]
        table.add_row(label, *cells, f"{sum(side.cpu.values()):.0f}")
    return table


def _single(report: BenchReport) -> Table:
    single = report.single
    table = Table(title="One command at a time")
    for heading in ("bare paho p50 ms", "node p50 ms", "ratio"):
        table.add_column(heading, justify="right")
    table.add_row(f"{single.paho_p50:.2f}", f"{single.node_p50:.2f}", f"{single.ratio:.2f}")
    table.caption = f"the aim is a ratio of {SINGLE_GOAL:.0f} or less"
    return table


def _pending(report: PendingReport) -> Table:
    table = Table(title=f"Beside commands that wait {report.where}: CPU per command, µs")
    names = [name for name in MEASURED if name in report.growth]
    for heading in ("waiting", "per second", *names, "all", "faults"):
        table.add_column(heading, justify="right", no_wrap=True)
    for waiting, side in report.sides.items():
        faults = side.wrong + side.lost + sum(side.errors.values())
        cpu = [f"{side.cpu[name]:.0f}" for name in names]
        table.add_row(f"{waiting:,}", f"{side.per_second:,.0f}", *cpu, f"{sum(side.cpu.values()):.0f}", str(faults))
    growth = ", ".join(f"{name} × {report.growth[name]:.2f}" for name in names)
    table.caption = f"most against fewest: {growth}; the aim is × {GROWTH_GOAL:.2f} at most"
    return table


def _cost(what: str, goal: float, report: CostReport) -> Table:
    table = Table(title=f"{what}: latency in ms, CPU per command in µs")
    for heading in ("", "per s", "p50", "p99", "p99.9", "faults", "both nodes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, side in (("without", report.without), ("with", report.with_it)):
        nodes = sum(cpu for process, cpu in side.cpu.items() if process.startswith("node"))
        faults = side.wrong + side.lost + sum(side.errors.values())
        table.add_row(name, *_side(side)[:4], str(faults), f"{nodes:.1f}")
    middle = report.cost[len(report.cost) // 4], report.cost[-1 - len(report.cost) // 4]
    table.caption = (
        f"CPU of both nodes × {report.median:.3f} (half of the rounds: {middle[0]:.3f} to {middle[1]:.3f}), in sum "
        f"× {report.total:.3f}, of fleet and load × {report.untouched:.3f}; the aim is × {goal:.2f} at most"
    )
    return table


def _memory(memory: Memory) -> Text:
    return Text(
        f"A waiting command takes {memory.node:,.0f} bytes in the node and {memory.redis:,.0f} in Redis (over "
        f"{memory.commands:,}); the aim is less than {NODE_BYTES_GOAL:,} and {REDIS_BYTES_GOAL:,}."
    )


def _verdict(report: BenchReport) -> Text:
    machine = report.machine
    said = "Every command got its own answer" if report.clean else "NOT every command got its own answer"
    foreign = "all that was not started here" if report.options["nodes_url"] else "other programs"
    others = f"{foreign} kept {report.cluster.foreign:.1f} of {machine['cpus']} CPUs busy meanwhile"
    return Text(f"{said}; {others}. Python {machine['python']}, {machine['system']}.")
