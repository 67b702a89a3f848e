"""`homing simulate-cluster`: whole clusters on a virtual clock, a seed each, judged like runs of the chaos rig."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import Stop, err, out
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_rig.simulation.suite import Outcome

_SHOWN = 5
_LATEST = 2**31


def simulate_cluster(
    seeds: Annotated[int, typer.Option(min=1, max=1_000_000, help="The number of seeds to run.")] = 100,
    first: Annotated[int, typer.Option("--from", min=0, max=_LATEST, help="The first seed.")] = 0,
    ops: Annotated[int, typer.Option(min=1, max=10_000, help="The number of commands in each run.")] = 200,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="The number of processes to use.")] = 1,
    twice: Annotated[  # noqa: FBT002 - how typer takes a flag
        bool, typer.Option("--twice", help="Run each seed in two processes, and compare what happened in them.")
    ] = False,
    coverage: Annotated[  # noqa: FBT002 - how typer takes a flag
        bool, typer.Option("--coverage", help="Show in which states faults hit commands and nodes, and how often.")
    ] = False,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The folder for a file of each seed that found something."),
    ] = None,
) -> None:
    """Simulate clusters that break, and judge what became of every command.

    Nodes are the product's own; clocks, network, store, broker, devices and callers are simulated, and the seed
    decides all of it. `homing replay` takes the files of --out. Exit code: 0 nothing was found, 1 an invariant was
    broken, 2 the simulation itself failed.
    """
    began = perf_counter()
    tally = _Tally()
    for one, other in _outcomes(range(first, first + seeds), ops, jobs, twice=twice):
        tally.take(one, other)
        if out_folder is not None and (one.breaches or one.failed):
            _keep(out_folder, one, ops)
    seconds, runs = perf_counter() - began, seeds * (1 + twice)
    out.line(
        f"{seeds} seeds, {seeds * ops:,} commands, {tally.troubles:,} faults: {tally.broken} seeds break an invariant; "
        f"{runs * ops / seconds:,.0f} commands/s, {60 * runs / seconds:,.0f} seeds/min"
    )
    if coverage:
        _show_coverage(tally.marks)
    if tally.failed:
        raise Stop(f"{tally.failed} seeds failed in the simulator itself, which is no breach", Exit.USAGE)
    if tally.broken:
        raise Stop("", Exit.FAILED)


def _outcomes(seeds: range, ops: int, jobs: int, *, twice: bool) -> Iterator[tuple[Outcome, Outcome]]:
    from homing_rig.simulation.suite import outcomes
    from homing_rig.simulation.suite import twice as run_twice

    return run_twice(seeds, ops) if twice else ((one, one) for one in outcomes(seeds, ops, jobs))


def _show_coverage(marks: Counter[str]) -> None:
    from homing_rig.simulation.coverage import possible

    for name, count in sorted(marks.items()):
        out.line(f"{count:8}  {name}")
    wanted = possible()
    never = [name for name in wanted if name not in marks]
    out.line(f"met {len(wanted) - len(never)} of {len(wanted)} states; never: {', '.join(never) or 'none'}")


def _keep(folder: Path, one: Outcome, ops: int) -> None:
    from homing_rig.simulation.plan import plan_of
    from homing_rig.simulation.replay import write_replay

    target = folder / f"seed-{one.seed}.jsonl"
    write_replay(target, plan_of(one.seed, ops), one)
    out.line(f"seed {one.seed}: written to {target}")


class _Tally:
    """The findings so far; each is printed when it comes."""

    def __init__(self) -> None:
        self.failed = self.broken = self.troubles = 0
        self.marks = Counter[str]()

    def take(self, one: Outcome, other: Outcome) -> None:
        for breach in one.breaches[:_SHOWN]:
            out.line(f"seed {one.seed}: {breach}")
        if len(one.breaches) > _SHOWN:
            out.line(f"seed {one.seed}: … and {len(one.breaches) - _SHOWN} more")
        differ = one.digest != other.digest
        if one.failed or differ:
            said = one.failed or f"two processes differ: {one.digest} and {other.digest}"
            err.line(f"seed {one.seed}: the simulator failed: {said}")
        self.failed += bool(one.failed) or differ
        self.broken += bool(one.breaches)
        self.troubles += one.troubles
        self.marks.update(one.marks)
