"""Judges a history offline: `python -m app.chaos.checker HISTORY`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from app.chaos.history import Event


class Verdict(StrEnum):
    """Of an invariant, or of the whole run (the worst of its invariants; INCOMPLETE when the history has no end)."""

    HOLDS = "holds"
    VIOLATED = "violated"
    NO_EVIDENCE = "no evidence"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class Violation:
    """`invariant` is I1 to I8, or F5, or `limit`; `kind` a stable word; `lines` of the history that prove it."""

    invariant: str
    kind: str
    sentence: str
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What the checker found."""

    verdict: Verdict
    invariants: Mapping[str, Verdict]
    violations: tuple[Violation, ...]
    """The first ones of each kind; `counts` has them all. Tolerated kinds are among them."""
    counts: Mapping[str, int]
    """Kind of violation -> how many."""
    figures: Mapping[str, float]
    """commands, calls, lost, wrong, duplicates, hung, late_finals, unknown, p99_ms_calm, … (final list follows)"""

    @property
    def exit_code(self) -> int:
        """0 all holds, 1 violated, 2 incomplete."""
        return 0

    def render(self) -> str:
        """For people, plain text."""
        return ""


def check(events: Iterable[tuple[int, Event]]) -> Report:
    """Judge events with their line numbers, as `history.read_history(path)` yields them."""
    raise NotImplementedError
