"""`homing replay`: a simulated run once more from its file, with all that happened in it, or as small as it can be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import Stop, err, out, tell
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_rig.simulation.replay import Replay


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `homing simulate-cluster --out` wrote.")],
    trace: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Show history and logs: each line with this text in it; '' for all lines."),
    ] = None,
    until: Annotated[float | None, typer.Option(help="Show no line after this virtual second.")] = None,
    shrink: Annotated[  # noqa: FBT002 - how typer takes a flag
        bool, typer.Option("--shrink", help="Look for the fewest commands and faults that break the same invariant.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, max=100_000, help="The most runs for --shrink.")] = 400,
) -> None:
    """Run a simulated cluster again from a file that has all its inputs, and judge it again.

    With --shrink, the smaller run is written beside FILE. Exit code: 0 nothing was found, 1 an invariant was broken,
    2 the file cannot be read or the simulation itself failed.
    """
    from homing_rig.simulation.replay import read_replay

    given = read_replay(file)
    if _shrunk(file, given, runs) if shrink else _again(given, trace, until):
        raise Stop("", Exit.FAILED)


def _again(given: Replay, trace: str | None, until: float | None) -> bool:
    from homing_rig.simulation.suite import ran

    def told(at: float, who: str, line: str) -> None:
        text = f"{at:9.4f}  {who:<12} {line}"
        if trace is not None and trace in text and (until is None or at <= until):
            out.line(text)

    found = ran(given.plan, told)
    out.line(given.plan.summary)
    for trouble in given.plan.troubles:
        out.line(f"  {trouble}")
    for breach in found.breaches:
        out.line(f"{breach}")
    if found.failed:
        raise Stop(f"the simulator failed: {found.failed}", Exit.USAGE)
    if found.digest != given.head.digest:
        what = "Homing, the simulation or the file has changed since"
        tell(err, f"this is not the run on file: {given.made_by} made that, and {what}")
    if not found.breaches:
        out.line("nothing was found")
    return bool(found.breaches)


def _shrunk(file: Path, given: Replay, runs: int) -> bool:
    from homing_rig.simulation.replay import write_replay
    from homing_rig.simulation.shrinker import Shrinker

    shrinker = Shrinker(given.plan, runs)
    if shrinker.found is None:
        out.line("nothing was found, so there is nothing to shrink")
        return False
    small = shrinker.shrink()
    target = file.with_name(f"{file.stem}-small{file.suffix}")
    write_replay(target, small, shrinker.found)
    out.line(f"{shrinker.rule}: {small.summary} (before: {given.plan.summary}), after {shrinker.runs} runs")
    for breach in shrinker.found.breaches:
        out.line(f"{breach}")
    out.line(f"written to {target}")
    return True
