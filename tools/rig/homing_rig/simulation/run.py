"""Runs a plan, and says what it found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from homing_rig.chaos.checker import check
from homing_rig.chaos.report import Report
from homing_rig.simulation.guards import guarded
from homing_rig.simulation.loop import SimLoop, bury
from homing_rig.simulation.plan import Plan
from homing_rig.simulation.recording import Recording
from homing_rig.simulation.world import World


@dataclass(frozen=True, slots=True)
class Breach:
    """Something that must not be. `rule` is an invariant with the kind of its violation, such as `I4 answer_lost`."""

    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a run has shown. `digest` is the same for every run of the same plan."""

    plan: Plan
    digest: str
    breaches: tuple[Breach, ...]
    steps: int
    seconds: float
    """Virtual ones."""
    report: Report
    recording: Recording


def run(plan: Plan) -> Finding:
    """Simulate it. SimulatorError when the simulation itself fails."""
    loop = SimLoop(plan.stream("loop"))
    with _quiet(), guarded(loop.time, plan.seed):
        return _run(loop, plan)


def _run(loop: SimLoop, plan: Plan) -> Finding:
    problems: list[str] = []
    loop.set_exception_handler(lambda _loop, context: problems.append(_said(context)))
    world = World(loop, plan)
    try:
        loop.run_until_complete(loop.create_task(world.run(), context=loop.world.context.copy()))
        return _judge(loop, plan, world, problems)
    finally:
        world.recording.closed = True
        bury(world.lanes)
        loop.close()


def _judge(loop: SimLoop, plan: Plan, world: World, problems: list[str]) -> Finding:
    report = check(enumerate(world.recording.events, 1))
    breaches = [Breach(f"{one.invariant} {one.kind}", one.sentence) for one in report.violations]
    breaches += [Breach("L1 unrest", one) for one in world.unrest]
    for node in world.nodes.values():
        breaches += [Breach("S3 part_ended", f"{node.node_id}: {one}") for one in node.failures]
        mistakes = node.counters["handler_error"]
        breaches += [Breach("S3 handler_error", f"{node.node_id}: {mistakes} times")] if mistakes else []
    breaches += [Breach("S3 exception", one) for one in problems]
    counted = [sorted(node.counters.items()) for node in world.nodes.values()]
    digest = world.recording.digest(loop.steps, counted)
    return Finding(plan, digest, tuple(breaches), loop.steps, loop.time(), report, world.recording)


@contextmanager
def _quiet() -> Iterator[None]:
    """Let the product's log go nowhere meanwhile: to write it would cost more than the run."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        yield
    finally:
        structlog.configure(**before)


def _said(context: dict[str, object]) -> str:
    error = context.get("exception")
    return f"{context.get('message')}: {type(error).__name__}: {error}" if error else str(context.get("message"))
