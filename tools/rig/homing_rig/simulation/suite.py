"""Many seeds one after the other, in this process or in several."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import orjson

from app.core.errors import ConfigurationError
from homing_rig.simulation.loop import SimulatorError
from homing_rig.simulation.plan import Plan, plan_of
from homing_rig.simulation.run import Told, run


class SimulationError(ConfigurationError):
    """It cannot be run as asked: the message says what is wrong and what is allowed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a seed. `failed` says how the simulation itself failed, which is no breach."""

    seed: int
    digest: str
    breaches: tuple[str, ...]
    commands: int
    troubles: int
    steps: int
    failed: str = ""
    marks: Mapping[str, int] = field(default_factory=dict)
    """The situations that were met: `Census.marks`."""

    def encoded(self) -> bytes:
        """As a line."""
        return orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def decoded(cls, line: bytes) -> Self:
        """From a line."""
        facts = orjson.loads(line)
        return cls(**{**facts, "breaches": tuple(facts["breaches"])})


def simulate(seed: int, commands: int) -> Outcome:
    """Run one seed here."""
    return ran(plan_of(seed, commands))


def ran(plan: Plan, told: Told | None = None) -> Outcome:
    """Run a plan and return its outcome."""
    made = partial(Outcome, plan.seed, commands=len(plan.wishes), troubles=len(plan.troubles))
    try:
        found = run(plan, told)
    except SimulatorError as error:
        return made("", (), steps=0, failed=str(error))
    return made(found.digest, tuple(map(str, found.breaches)), steps=found.steps, marks=found.marks)


def outcomes(seeds: range, commands: int, jobs: int) -> Iterator[Outcome]:
    """Yield the outcomes of all seeds, in any order; with more than one job, in processes of their own."""
    if jobs == 1:
        for seed in seeds:
            yield simulate(seed, commands)
    else:
        yield from _in_processes(seeds, commands, [str(number) for number in range(jobs)])


def twice(seeds: range, commands: int) -> Iterator[tuple[Outcome, Outcome]]:
    """Each seed in two processes with other hashes of strings: what differs was decided by no seed."""
    found: dict[int, Outcome] = {}
    both = [_begin(seeds, commands, hashes) for hashes in ("1", "2")]
    for one in _lines(both):
        if one.seed in found:
            yield found.pop(one.seed), one
        else:
            found[one.seed] = one


def _in_processes(seeds: range, commands: int, hashes: Sequence[str]) -> Iterator[Outcome]:
    jobs = len(hashes)
    yield from _lines([_begin(seeds[number::jobs], commands, hashes[number]) for number in range(jobs)])


def _begin(seeds: range, commands: int, hashes: str) -> subprocess.Popen[bytes]:
    arguments = [seeds.start, seeds.stop, seeds.step, commands]
    return subprocess.Popen(
        [sys.executable, "-m", "homing_rig.simulation.worker", *map(str, arguments)],
        env={**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
    )


def _lines(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[Outcome]:
    """One of each in turn, so that none waits for a full pipe for long."""
    left = list(processes)
    try:
        while left:
            for process in tuple(left):
                line = process.stdout.readline() if process.stdout is not None else b""
                if line:
                    yield Outcome.decoded(line)
                else:
                    left.remove(process)
                    if process.wait():
                        raise SimulationError(f"a process of the simulation ended with {process.returncode}")
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
