"""Counts and latencies of a run, gathered by the checker from its history."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from homing_rig.chaos.history import (
    BROKER_DROPPED,
    REDIS_KEYS_AFTER_TTL,
    REDIS_KEYS_BASELINE,
    Completion,
    Fault,
    FaultPhase,
    Invoke,
    Metric,
)

COUNTED: Final = (
    "calls",
    "commands",
    "accepted",
    "ok",
    "fail",
    "unknown",
    "replayed",
    "reads",
    "cancels",
    "lost",
    "lost_commands",
    "lost_answers",
    "wrong",
    "duplicates",
    "hung",
    "late_finals",
    "late_executions",
    "unread",
    "keys",
    "keys_unanswered",
    "executions",
    "dup_executions",
    "foreign_executions",
    "answers_acked",
    "answers_late",
    "answers_repeated",
    "faults",
)
"""Figures that every report has."""

_EXAMPLES: Final = 10
"""The lines that are kept to look up what a figure counts, roughly."""
_SHARES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}


class Figures:
    """Besides COUNTED: `state.{state}` (outcomes), `counter.{name}` (nodes' counters, summed), `broker_dropped`,
    `redis_keys_baseline`, `redis_keys_after_ttl`, and of callers who were answered 200 or 202, per mode and phase,
    `{sync|async}_{calm|faults}_count`, `…_{p50|p99|p999|max}_ms` and `{sync|async}_{p50|p99}_ratio` (faults : calm).
    """  # noqa: D205 - one list of names

    def __init__(self, recovery: float) -> None:
        self.count: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self.examples: defaultdict[str, list[int]] = defaultdict(list)
        """Figure -> the first lines that count for it."""
        self._recovery = recovery
        self._active: set[tuple[str, str]] = set()
        self._last_fault = float("-inf")
        self._latencies: defaultdict[tuple[str, str], array[float]] = defaultdict(lambda: array("d"))
        self._metrics: defaultdict[str, float] = defaultdict(float)

    def note(self, figure: str, *lines: int) -> None:
        """Count one, and remember where."""
        self.count[figure] += 1
        examples = self.examples[figure]
        if len(examples) < _EXAMPLES:
            examples.extend(lines)

    def fault(self, event: Fault) -> None:
        """A fault begins, ends, or is over at once."""
        target = (event.kind, event.target)
        if event.phase is FaultPhase.END:
            self._active.discard(target)
        else:
            self.count["faults"] += 1
            if event.phase is FaultPhase.BEGIN:
                self._active.add(target)
        self._last_fault = event.at

    def metric(self, event: Metric, line: int) -> None:
        """A figure that the rig took."""
        if event.name in (BROKER_DROPPED, REDIS_KEYS_BASELINE, REDIS_KEYS_AFTER_TTL):
            name = event.name.replace(".", "_")
            self._metrics[name] = event.value
        else:
            name = f"counter.{event.name}"
            self._metrics[name] += event.value
        self.examples[name].append(line)

    def answered(self, invoke: Invoke, completion: Completion) -> None:
        """A caller who sent a command was answered 200 or 202."""
        disturbed = self._active or invoke.at <= self._last_fault + self._recovery
        self._latencies[invoke.mode.value, "faults" if disturbed else "calm"].append(completion.latency)

    def result(self) -> dict[str, float]:
        """All figures by name."""
        return {**self.count, **dict(sorted(self._metrics.items())), **self._percentiles()}

    def _percentiles(self) -> dict[str, float]:
        figures: dict[str, float] = {}
        for (mode, phase), latencies in sorted(self._latencies.items()):
            ordered = sorted(latencies)
            figures[f"{mode}_{phase}_count"] = len(ordered)
            for name, share in _SHARES.items():
                # Nearest rank; exact in integers, as 0.999 * 1000 is not.
                rank = -(-len(ordered) * round(share * 1000) // 1000)
                figures[f"{mode}_{phase}_{name}_ms"] = ordered[rank - 1] * 1000
        return figures | _ratios(figures)


def _ratios(figures: Mapping[str, float]) -> dict[str, float]:
    ratios = {}
    for mode in ("sync", "async"):
        for name in ("p50", "p99"):
            calm, faults = figures.get(f"{mode}_calm_{name}_ms"), figures.get(f"{mode}_faults_{name}_ms")
            if calm and faults is not None:
                ratios[f"{mode}_{name}_ratio"] = faults / calm
    return ratios
