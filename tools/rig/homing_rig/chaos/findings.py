"""The findings of the checker: violations, how much was checked, and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from homing_rig.chaos.figures import Figures
from homing_rig.chaos.history import Header, HistoryError
from homing_rig.chaos.report import INVARIANTS, KINDS, LIMITS, Report, Verdict, Violation

SHOWN: Final = 100
"""The number of violations of a kind that are kept in full."""


class Findings:
    """The findings about one history. HistoryError when its header names what does not exist."""

    def __init__(self, header: Header) -> None:
        _check_names("tolerated", header.tolerated, "kind of violation", KINDS)
        _check_names("expects", header.expects, "invariant", INVARIANTS)
        self.header = header
        self.figures = Figures(header.recovery)
        self.checked: Counter[str] = Counter(dict.fromkeys(INVARIANTS, 0))
        """Invariant -> how often there was something to judge."""
        self.missing: list[str] = []
        self._flagged: set[tuple[str, str]] = set()
        self._violations: list[Violation] = []
        self._counts: Counter[str] = Counter()

    def violate(self, kind: str, subject: str, sentence: str, *lines: int) -> None:
        """Note a violation, once for each kind and subject (a command id, a figure)."""
        if (kind, subject) in self._flagged:
            return
        self._flagged.add((kind, subject))
        self._counts[kind] += 1
        if self._counts[kind] <= SHOWN:
            self._violations.append(Violation(KINDS[kind], kind, sentence, tuple(sorted(lines))))

    def has(self, kind: str, subject: str) -> bool:
        """True if such a violation was noted."""
        return (kind, subject) in self._flagged

    def report(self, *, complete: bool) -> Report:
        """Sum up. Limits are judged for complete histories only: what is missing in others may still have come."""
        self._count_violations()
        figures = self.figures.result()
        if complete:
            self._judge_limits(figures)
        else:
            self.missing.append("the end: the rig did not come to its end")
        invariants = {name: self._verdict_of(name) for name in INVARIANTS}
        self.missing += [
            f"evidence for {name}: {INVARIANTS[name]}"
            for name in self.header.expects
            if invariants[name] is Verdict.NO_EVIDENCE
        ]
        return Report(
            scenario=self.header.scenario,
            seed=self.header.seed,
            verdict=self._verdict(),
            invariants=invariants,
            checked=dict(self.checked),
            violations=tuple(self._violations),
            counts=dict(self._counts),
            tolerated=frozenset(self.header.tolerated),
            figures=figures,
            missing=tuple(self.missing),
        )

    def _count_violations(self) -> None:
        counts, figures = self._counts, self.figures.count
        figures["lost_commands"] = counts["command_lost"] + counts["never_final"]
        figures["lost_answers"] = counts["answer_lost"]
        figures["lost"] = figures["lost_commands"] + figures["lost_answers"]
        figures["wrong"] = counts["wrong_answer"] + counts["wrong_command"] + counts["wrong_device"]
        figures["duplicates"] = counts["left_outcome"] + counts["outcome_changed"] + counts["executed_twice"]
        self._counts = +counts

    def _judge_limits(self, figures: dict[str, float]) -> None:
        for name, limit in {**LIMITS, **self.header.limits}.items():
            value = figures.get(name)
            if value is None:
                self.missing.append(f"the figure {name}, which has a limit")
            elif value > limit:
                said = f"{name} is {value:g}, allowed {limit:g}"
                self.violate("limit", name, said, *self.figures.examples[name])

    def _verdict_of(self, invariant: str) -> Verdict:
        broken = {kind for kind in self._counts if KINDS[kind] == invariant}
        if broken - set(self.header.tolerated):
            return Verdict.VIOLATED
        if broken:
            return Verdict.TOLERATED
        return Verdict.HOLDS if self.checked[invariant] else Verdict.NO_EVIDENCE

    def _verdict(self) -> Verdict:
        if self._counts.keys() - set(self.header.tolerated):
            return Verdict.VIOLATED
        if self.missing:
            return Verdict.INCOMPLETE
        if self._counts:
            return Verdict.TOLERATED
        return Verdict.HOLDS if any(self.checked.values()) else Verdict.NO_EVIDENCE


def _check_names(member: str, names: tuple[str, ...], what: str, allowed: Iterable[str]) -> None:
    known = tuple(allowed)
    for name in names:
        if name not in known:
            raise HistoryError(f"line 1: {member}: {name!a} is no {what}; allowed: {', '.join(known)}")
