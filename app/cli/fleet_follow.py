"""Begins a fleet run, and follows it until it stands still: with bars for people, in lines for a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.output import Form, Stop, err, out, table, tell, written
from app.cli.verbs import cell
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_client import Homing

ROUND_SECONDS: Final = 1.0
"""Somebody who waits for the end of a run asks so often how it stands."""
ENDS: Final = {
    "succeeded": Exit.OK,
    "failed": Exit.FAILED,
    "lapsed": Exit.TIMED_OUT,
    "aborted": Exit.CANCELLED,
    "paused": Exit.EMPTY,
}
"""The exit codes of those who wait, by the state in which a run stands still."""
OF_RUN: Final = ("id", "state", "total", "counts")

RunKey = Annotated[
    str | None, typer.Option(help="An idempotency key. A repeated call with the same key begins no second run.")
]
OnlyShown = Annotated[bool, typer.Option("--dry-run", help="Print what the run would be, and begin nothing.")]
Waits = Annotated[bool, typer.Option("--wait", help="Wait until the run has ended, or is paused.")]

_OPEN: Final = ("waiting", "handed")


def begin(
    homing: Homing, document: Mapping[str, Any], shown: Form, *, key: str | None, dry_run: bool, wait: bool
) -> None:
    """Begin the run that the document describes, and print it; with `wait`, once it stands still."""
    begun = homing.fleet.begin(document, idempotency_key=key, dry_run=dry_run)
    if dry_run:
        _show(begun, shown, ("total", "waves", "devices"))
    elif wait:
        follow(homing, begun["id"], shown)
    else:
        _show(begun, shown, OF_RUN)


def follow(homing: Homing, run_id: str, shown: Form) -> None:
    """Print a run once it stands still, and stop with the exit code of that state."""
    with _progress() as show:
        while True:
            found = homing.fleet.get(run_id)
            show(found)
            if found["state"] in ENDS:
                break
            time.sleep(ROUND_SECONDS)
    _show(found, shown, OF_RUN)
    if (code := ENDS[found["state"]]) is not Exit.OK:
        raise Stop("", code)


def ended_of(run: Mapping[str, Any]) -> int:
    """Return how many targets of a run have ended."""
    return sum(count for name, count in run["counts"].items() if name not in _OPEN)


def wave_of(run: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return the number of the present wave, how many of its targets have ended, and how many it has."""
    before = 0
    for number, wave in enumerate(run.get("waves", ()), 1):
        if wave["current"]:
            return number, min(max(0, ended_of(run) - before), wave["size"]), wave["size"]
        before += wave["size"]
    return None


@contextmanager
def _progress() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    if not err.is_terminal:
        yield _lines()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err.console, transient=True) as progress:
        whole, part = progress.add_task("the run"), progress.add_task("its wave", visible=False)

        def show(run: Mapping[str, Any]) -> None:
            ended, bad = ended_of(run), f"{run['state']}  {_bad(run)}"
            progress.update(whole, total=run["total"], completed=ended, description=bad)
            if (wave := wave_of(run)) is None:
                progress.update(part, visible=False)
                return
            number, ended, size = wave
            name = f"wave {number} of {len(run['waves'])}"
            progress.update(part, total=size, completed=ended, description=name, visible=True)

        yield show


def _lines() -> Callable[[Mapping[str, Any]], None]:
    """Return what prints the counts of a run where they are others than before."""
    told = ""

    def show(run: Mapping[str, Any]) -> None:
        nonlocal told
        now = cell(run, "counts")
        if now != told:
            tell(err, f"{run['id']}  {run['state']}  {now}")
            told = now

    return show


def _bad(run: Mapping[str, Any]) -> str:
    """The counts of targets that ended without success."""
    return " ".join(f"{name}={n}" for name, n in run["counts"].items() if name not in (*_OPEN, "succeeded"))


def _show(found: Mapping[str, Any], shown: Form, columns: tuple[str, ...]) -> None:
    if shown is Form.HUMAN:
        table(shown, [found], lambda one: [cell(one, name) for name in columns], columns)
    else:
        out.line(written(found))
