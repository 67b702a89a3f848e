"""Judges the history of a chaos run offline: `python -m homing_rig.chaos.checker HISTORY`.

Prints the verdict, what was checked, the violations with the lines that prove them, and the figures. Exits with 0 when
everything holds, 1 when something is violated, 2 when the history cannot be read or does not suffice for a verdict.

It needs the whole history: an answer may be found late in its last line. Memory grows with the number of commands.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from homing_rig.chaos.history import Event, Header, HistoryError, read_history
from homing_rig.chaos.judge import Judge
from homing_rig.chaos.report import INVARIANTS, KINDS, LIMITS, Report, Verdict, Violation

__all__ = ["INVARIANTS", "KINDS", "LIMITS", "Report", "Verdict", "Violation", "check", "main"]


def check(events: Iterable[tuple[int, Event]]) -> Report:
    """Judge events with their line numbers, as `history.read_history(path)` yields them.

    HistoryError when they are no history: the header is missing, or something ends that never began.
    """
    judge: Judge | None = None
    for line, event in events:
        if judge is not None:
            judge.take(event, line)
        elif isinstance(event, Header):
            judge = Judge(event)
        else:
            raise HistoryError(f"line {line}: a history begins with its header")
    if judge is None:
        raise HistoryError("the history is empty")
    return judge.report()


def main(arguments: list[str]) -> int:
    """The program; returns its exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m homing_rig.chaos.checker HISTORY\n")
        return 2
    try:
        report = check(read_history(Path(arguments[0])))
    except HistoryError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(report.render())
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
