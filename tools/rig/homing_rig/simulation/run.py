"""Runs a plan, and says what it found."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NoReturn

import structlog

from app.core.commands.command import CommandState
from homing_rig.chaos.checker import check
from homing_rig.chaos.history import Event, FinalRead, Invoke, Ok, OperationKind, encode
from homing_rig.chaos.report import Report
from homing_rig.simulation.guards import guarded
from homing_rig.simulation.loop import SimLoop, bury, lane_name
from homing_rig.simulation.plan import LONG, Plan
from homing_rig.simulation.recording import Recording
from homing_rig.simulation.world import World

SURVIVED: Final = ("handler_error", "observer.failed")
"""The counters of mistakes that a node survives: those of who takes messages, and of who listens to commands."""


@dataclass(frozen=True, slots=True)
class Breach:
    """Something that must not be. `rule` is an invariant with the kind of its violation, such as `I4 answer_lost`."""

    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of a run. `digest` is the same for every run of the same plan."""

    plan: Plan
    digest: str
    breaches: tuple[Breach, ...]
    steps: int
    seconds: float
    """Virtual ones."""
    report: Report
    marks: Mapping[str, int]
    """The situations that it has met: `Census.marks`."""
    recording: Recording


Told = Callable[[float, str, str], None]
"""Is told what happens: the virtual second, whose step it is, and a line of the history or of that process's log."""


def run(plan: Plan, told: Told | None = None) -> Finding:
    """Simulate it. SimulatorError when the simulation itself fails."""
    clock = _RunClock()
    with _log_to(clock, told), guarded(clock.time, plan.seed):
        return _run(plan, told, clock)


@dataclass(slots=True)
class _RunClock:
    """The time of a run. It lets go of the loop when that has ended, as what the loop knows is collected then."""

    loop: SimLoop | None = None

    def time(self) -> float:
        return 0.0 if self.loop is None else self.loop.now


def _run(plan: Plan, told: Told | None, clock: _RunClock) -> Finding:
    loop = clock.loop = SimLoop(plan.stream("loop"))
    problems: list[str] = []
    loop.set_exception_handler(lambda _loop, context: problems.append(_said(context)))
    world = World(loop, plan, Recording())
    if told is not None:
        world.recording.told.append(lambda event: told(loop.time(), lane_name(), encode(event).decode().rstrip()))
    try:
        loop.run_until_complete(loop.create_task(world.run(), context=loop.world.context.copy()))
        return _judge(loop, plan, world, problems)
    finally:
        world.recording.close()
        clock.loop = None
        bury(world.lanes)
        loop.close()


def _judge(loop: SimLoop, plan: Plan, world: World, problems: list[str]) -> Finding:
    events = world.excused.others(world.recording.events)
    report = check(enumerate(events, 1))
    breaches = [Breach(f"{one.invariant} {one.kind}", one.sentence) for one in report.violations]
    breaches += [*_early(events), *_in_vain(plan, events)]
    breaches += [Breach("L1 unrest", one) for one in world.unrest]
    breaches += [Breach("L2 not_served", one) for one in world.unserved]
    breaches += [Breach("I6 mistold", one) for one in world.mistold]
    breaches += [Breach(rule, one) for rule, one in world.miskept]
    for node in world.nodes.values():
        breaches += [Breach("S3 part_ended", f"{node.node_id}: {one}") for one in node.failures]
        survived = {name: node.counters[name] for name in SURVIVED if node.counters[name]}
        breaches += [Breach(f"S3 {name}", f"{node.node_id}: {count} times") for name, count in survived.items()]
    breaches += [Breach("S3 exception", one) for one in problems]
    counted = [sorted(node.counters.items()) for node in world.nodes.values()]
    digest = world.recording.digest(loop.steps, counted, *world.kept)
    return Finding(plan, digest, tuple(breaches), loop.steps, loop.time(), report, world.census.marks, world.recording)


def _early(events: Iterable[Event]) -> Iterator[Breach]:
    """Time-outs before the deadline: real clocks differ by more than what would tell, and these do not."""
    for event in events:
        if not isinstance(event, FinalRead) or event.state != CommandState.TIMED_OUT or event.overrun is None:
            continue
        if event.overrun < 0:
            yield Breach("L3 early", f"{event.command_id} timed out {-event.overrun:.3f} s before its deadline")


def _in_vain(plan: Plan, events: Iterable[Event]) -> Iterator[Breach]:
    """Commands that were held for so long that everything came to rest, and that no node has claimed."""
    long = {str(one.number) for one in plan.wishes if one.hold is not None and one.hold >= LONG}
    asked: dict[int, str | None] = {}
    held: set[str] = set()
    for event in events:
        match event:
            case Invoke(kind=OperationKind.COMMAND):
                asked[event.op] = event.nonce
            case Ok(command_id=str()) if asked.get(event.op) in long:
                held.add(event.command_id or "")
            case FinalRead(state=CommandState.UNSENT, claims=0) if event.command_id in held:
                yield Breach("H1 held_in_vain", f"{event.command_id} was held for {LONG:g} s, and no node claimed it")


@contextmanager
def _log_to(clock: _RunClock, told: Told | None) -> Iterator[None]:
    """Let the product's log go to who is told, or nowhere: to write it would cost more than the run."""

    def tell(_logger: object, level: str, event: MutableMapping[str, object]) -> NoReturn:
        if told is not None:
            facts = "".join(f" {name}={value!r}" for name, value in event.items() if name != "event")
            told(clock.time(), lane_name(), f"{level}: {event['event']}{facts}")
        raise structlog.DropEvent

    before = structlog.get_config()
    least = logging.CRITICAL if told is None else logging.DEBUG
    structlog.configure(processors=[tell], wrapper_class=structlog.make_filtering_bound_logger(least))
    try:
        yield
    finally:
        structlog.configure(**before)


def _said(context: dict[str, object]) -> str:
    error = context.get("exception")
    return f"{context.get('message')}: {type(error).__name__}: {error}" if error else str(context.get("message"))
