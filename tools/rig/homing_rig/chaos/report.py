"""The checker's report, for programs and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

INVARIANTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "I1": "each accepted command reaches exactly one outcome",
        "I2": "a command never leaves its outcome, and all nodes agree on it",
        "I3": "a result belongs to the command that it is shown for",
        "I4": "an answer that the broker acknowledged to a device is the outcome, or annexed, or a duplicate",
        "I5": "what a caller was told is what is stored",
        "I6": "one webhook id for each event of a command",
        "I7": "a device executes an idempotency key at most once",
        "I8": "nothing remains in Redis when every retention has passed",
        "I9": "commands of a lane reach their device in their order, each after the end of the one before",
        "I10": "the mark of a target of a fleet run moves forward only",
        "F5": "what was not sent, claimed by nobody, or is past its deadline, does not reach a device",
    }
)
"""The invariants that are judged, under the numbers that docs/failure-modes.md has for them."""

KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "command_lost": "I1",
        "never_final": "I1",
        "left_outcome": "I2",
        "outcome_changed": "I2",
        "wrong_answer": "I3",
        "wrong_command": "I3",
        "wrong_device": "I3",
        "answer_lost": "I4",
        "answer_differs": "I5",
        "executed_twice": "I7",
        "keys_left": "I8",
        "lane_order": "I9",
        "lane_together": "I9",
        "mark_back": "I10",
        "executed_late": "F5",
        "executed_unclaimed": "F5",
        "executed_unsent": "F5",
        "limit": "limit",
    }
)
"""Kind of violation -> the invariant that it breaks; `limit` is a figure above what the scenario allows."""

LIMITS: Final[Mapping[str, float]] = MappingProxyType({"hung": 0, "late_finals": 0, "unread": 0})
"""The most that these figures may be in every run, unless its header says otherwise."""


class Verdict(StrEnum):
    """The verdict on an invariant, and on the whole run (the worst of its invariants)."""

    HOLDS = "holds"
    TOLERATED = "violated as the scenario allows"
    VIOLATED = "violated"
    NO_EVIDENCE = "no evidence"
    INCOMPLETE = "incomplete"
    """The run did not come to its end, or lacks evidence that its header asks for. Of whole runs only."""


@dataclass(frozen=True, slots=True)
class Violation:
    """`invariant` is a key of INVARIANTS or `limit`, `kind` one of KINDS; these `lines` of the history prove it."""

    invariant: str
    kind: str
    sentence: str
    lines: tuple[int, ...]

    def __str__(self) -> str:
        where = f" (line {', '.join(map(str, self.lines))})" if self.lines else ""
        return f"{self.invariant} {self.kind}: {self.sentence}{where}"


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of the checker."""

    scenario: str
    seed: int
    verdict: Verdict
    invariants: Mapping[str, Verdict]
    checked: Mapping[str, int]
    """Invariant -> how many commands (or answers, executions, figures) there was evidence for."""
    violations: tuple[Violation, ...]
    """The first ones of each kind, those that the scenario tolerates included."""
    counts: Mapping[str, int]
    """Kind of violation -> how many."""
    tolerated: frozenset[str]
    """Kinds that do not decide the verdict."""
    figures: Mapping[str, float]
    """See `homing_rig.chaos.figures`; a figure for which there is no evidence is absent."""
    missing: tuple[str, ...]
    """Sentences that say what evidence is missing for a verdict."""

    @property
    def exit_code(self) -> int:
        """0 holds, 1 violated, 2 no verdict."""
        if self.verdict in (Verdict.HOLDS, Verdict.TOLERATED):
            return 0
        return 1 if self.verdict is Verdict.VIOLATED else 2

    def render(self) -> str:
        """For people, as plain text."""
        lines = [f"scenario {self.scenario}, seed {self.seed}: {self.verdict.upper()}", ""]
        lines += [
            f"  {name}  {self.invariants[name]:<12} {self.checked[name]:>9}  {sentence}"
            for name, sentence in INVARIANTS.items()
        ]
        lines += [f"\n  missing: {missing}" for missing in self.missing]
        for kind, count in self.counts.items():
            shown = [violation for violation in self.violations if violation.kind == kind]
            allowed = ", which this scenario allows" if kind in self.tolerated else ""
            lines.append(f"\n  {kind}: {count}{allowed}")
            lines += [f"    {violation}" for violation in shown[:10]]
        lines.append("")
        lines += [
            f"  {name:<28} {value:>14,.{0 if value == int(value) else 1}f}" for name, value in self.figures.items()
        ]
        return "\n".join(lines) + "\n"
