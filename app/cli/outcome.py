"""Waits for the outcome of a command with a bar, and tells of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from app.cli.output import Form, Stop, err, out, tell, written
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_client import Command, Homing

OUTCOMES: Final = {
    "succeeded": Exit.OK,
    "failed": Exit.FAILED,
    "timed_out": Exit.TIMED_OUT,
    "cancelled": Exit.CANCELLED,
    "unsent": Exit.UNSENT,
}
_ALL: Final = 100


def follow(homing: Homing, command: Command) -> Command:
    """The command with its outcome; meanwhile, people see a bar of what the device reports."""
    with _bar(f"{command.method} on {command.device_id}") as show:
        for event in homing.watch(command.id):
            show(event.progress)
            if event.command is not None:
                command = event.command
    return command


@contextmanager
def _bar(title: str) -> Iterator[Callable[[Any], None]]:
    if not err.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err.console, transient=True) as progress:
        task = progress.add_task(title, total=None)

        def show(reported: Any) -> None:  # noqa: ANN401 - any JSON value
            percent = percent_of(reported)
            if percent is not None:
                progress.update(task, total=_ALL, completed=percent)

        yield show


def percent_of(reported: Any) -> float | None:  # noqa: ANN401 - any JSON value
    """Return how far a device says it is: a number called `percent` anywhere in its report; None when it has none."""
    if not isinstance(reported, Mapping):
        return None
    percent = reported.get("percent")
    if isinstance(percent, int | float) and not isinstance(percent, bool) and 0 <= percent <= _ALL:
        return float(percent)
    found = (percent_of(one) for one in reported.values())
    return next((one for one in found if one is not None), None)


def report(command: Command, form: Form) -> None:
    """Print a command, and end with the exit code of its outcome; of one that is open, with that of success."""
    if form is Form.HUMAN:
        for line in lines_of(command):
            tell(out, line)
    else:
        out.line(written(command.raw))
    raise Stop("", OUTCOMES.get(command.state, Exit.OK))


def _how(command: Command) -> str:
    """Return how long it took, and where the answer came in."""
    if command.created_at is None or command.finished_at is None:
        return ""
    took = (command.finished_at - command.created_at) // timedelta(milliseconds=1)
    return f" in {took} ms" + (f" (answer came in on {command.received_by})" if command.received_by else "")


def lines_of(command: Command) -> list[str]:
    """A command and its outcome for people."""
    lines = [f"{command.method} on {command.device_id}: {command.state}{_how(command)}"]
    if command.error is not None:
        lines.append(f"  error   {command.error.code}: {command.error.message}")
    if command.result is not None:
        lines.append(f"  result  {json.dumps(command.result)}")
    if command.last_progress is not None and command.state != "succeeded":
        lines.append(f"  so far  {json.dumps(command.last_progress)}")
    lines.append(f"  id      {command.id}")
    hint = hint_of(command)
    return [*lines, f"  next    {hint}"] if hint else lines


def hint_of(command: Command) -> str | None:
    """Return what to try, where there is something."""
    if command.state == "unsent" and command.error is not None and command.error.code == "no_subscriber":
        return f"is it switched on, and does it speak {command.profile}? --if-offline send waits until --timeout"
    if command.state == "held":
        return f"homing explain {command.id} shows what it waits for; homing cancel {command.id}"
    if command.state == "timed_out":
        return f"homing probe {command.id} looks whether it was done; homing get shows an answer that comes late"
    return None if command.is_final else f"homing watch {command.id}"
