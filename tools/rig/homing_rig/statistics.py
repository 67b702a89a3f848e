"""Percentiles and ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of a sorted sequence: the least value that `share` (0.0 to 1.0) do not exceed.

    0.0 when there are no values.
    """
    if not ordered:
        return 0.0
    rank = math.ceil(share * len(ordered) - 1e-9)
    return ordered[max(1, min(rank, len(ordered))) - 1]


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from request to answer."""

    p50: float
    p99: float
    p999: float

    @classmethod
    def of(cls, microseconds: Sequence[int]) -> Latency:
        """From the single latencies, in microseconds and any order."""
        ordered = sorted(microseconds)
        return cls(*(percentile(ordered, share) / 1000 for share in (0.5, 0.99, 0.999)))


def median(values: Sequence[float]) -> float:
    """The median; 0.0 when there are no values."""
    return statistics.median(values) if values else 0.0


def ratio(part: float, whole: float) -> float:
    """Their quotient; 0.0 when the whole is nothing, which means that it was not measured."""
    return part / whole if whole else 0.0
