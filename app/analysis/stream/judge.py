"""Judges windows by what came before them: pure, and by the times of records alone, so that it says the same again."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta
from statistics import median
from typing import Final, NamedTuple

from app.analysis.lake import Row

HISTORY: Final = 60  # windows that a band is learned from, and that a burn rate looks back at, at most
LEAST_HISTORY: Final = 15  # windows that there must be before anything is judged by a learned band
LEAST_RECORDS: Final = 30  # commands in a window that is judged
SPREADS: Final = 6.0  # a p99 is out of its band so many robust standard deviations (1.4826 × MAD, of logarithms)
LEAST_FACTOR: Final = 1.5  # over the median, and so many times as long
CHANCE: Final = 1e-6  # a share of timeouts is that has less than this probability at the usual share (binomial)
LEAST_RATIO: Final = 2.0  # and is so many times the usual
BURN: Final = 14.4
"""A burn rate over 5 minutes and over an hour that calls somebody: 2 % of a budget of 30 days an hour (Google, The Site
Reliability Workbook, 2018, chapter 5)."""

MEASURES: Final[dict[str, tuple[str, str, str, Callable[[float], str]]]] = {
    "p99": ("p99_us p99_limit_us answered", "us", "the 99th percentile", lambda us: f"{us / 1000:,.1f} ms"),
    "timeout_share": ("timed_out_share timed_out_limit commands", "share", "the share of timeouts", "{:.2%}".format),
    "burn_rate": ("burn_rate burn_limit commands", "ratio", "the burn rate of 5 minutes and an hour", "{:.1f}".format),
}
"""The measures that are judged. Each has the value, the limit and the count behind them in a window, the unit, its
name, and the form of its numbers for a person."""


class Bands(NamedTuple):
    """The rules of alerts: above thresholds for all methods, or a learned band; `objective` is the SLO."""

    p99: timedelta | None = None
    timeout_share: float | None = None
    objective: float = 0.99


class Judge:
    """Completes windows, rows of contracts.WINDOWS. `past` has the latest of each series: all it needs to go on."""

    def __init__(self, bands: Bands, past: Iterable[Row] = ()) -> None:
        self._bands = bands
        self.past: dict[str, list[Row]] = defaultdict(list)
        for window in past:
            self.past[_series(window)].append(window)

    def judge(self, windows: Iterable[Row]) -> list[Row]:
        """Complete closed windows, and tell the alerts; windows must not be older than those before."""
        alerts: list[Row] = []
        for window in sorted(windows, key=lambda one: (one["start"], _series(one))):
            past = self.past[_series(window)]
            window["timed_out_share"] = window["timed_out"] / window["commands"]
            window["p99_limit_us"] = self._p99_limit(past)
            window["timed_out_limit"] = self._timeout_limit(past, window["commands"])
            window["burn_5m"], window["burn_1h"] = (self._burn([*past, window], minutes) for minutes in (5, 60))
            window["burn_rate"] = min(window["burn_5m"] or 0.0, window["burn_1h"] or 0.0)
            window["burn_limit"] = BURN if window["method"] is None else None
            before = past[-1]["raised"].split() if past else []
            outside = {measure: _outside(window, measure) for measure in MEASURES}
            after = [one for one, out in outside.items() if (one in before if out is None else out)]
            window["raised"] = " ".join(after)
            alerts += [
                _alert(window, one, raised=one in after) for one in MEASURES if (one in before) != (one in after)
            ]
            past.append(window)
            del past[:-HISTORY]
        return alerts

    def _burn(self, windows: list[Row], minutes: int) -> float | None:
        """Share of bad commands over what the objective allows, in the time before the end of the last window."""
        since = windows[-1]["end"] - timedelta(minutes=minutes)
        recent = [one for one in windows if one["start"] >= since]
        total: int = sum(one["commands"] - one["cancelled"] for one in recent)
        bad: int = sum(one["timed_out"] + one["unsent"] for one in recent)
        return bad / total / (1 - self._bands.objective) if total else None

    def _p99_limit(self, past: list[Row]) -> int | None:
        if self._bands.p99 is not None:
            return self._bands.p99 // timedelta(microseconds=1)
        usual = [one["p99_us"] for one in _usual(past, "p99") if one["answered"] >= LEAST_RECORDS]
        logs = [math.log(max(us, 1)) for us in usual if us is not None]
        if len(logs) < LEAST_HISTORY:
            return None
        middle = median(logs)
        spread = 1.4826 * median(abs(one - middle) for one in logs)
        return round(math.exp(middle + max(SPREADS * spread, math.log(LEAST_FACTOR))))

    def _timeout_limit(self, past: list[Row], commands: int) -> float | None:
        usual = _usual(past, "timeout_share")
        if self._bands.timeout_share is not None or len(usual) < LEAST_HISTORY:
            return self._bands.timeout_share
        share: float = (sum(one["timed_out"] for one in usual) + 0.5) / (sum(one["commands"] for one in usual) + 1)
        return max(_likely(commands, share, CHANCE) / commands, LEAST_RATIO * share)


def _series(window: Row) -> str:
    return "all methods" if window["method"] is None else f"{window['profile']}/{window['method']}"


def _outside(window: Row, measure: str) -> bool | None:
    """True if the measure is out of its band; None when that cannot be told."""
    value, limit, records = (window[column] for column in MEASURES[measure][0].split())
    return None if value is None or limit is None or records < LEAST_RECORDS else value > limit


def _usual(past: list[Row], measure: str) -> list[Row]:
    """The windows a band is learned from: those inside it, until half of them were outside; then all."""
    inside = [one for one in past if not _outside(one, measure)]
    return inside if 2 * len(inside) >= len(past) else past


def _likely(trials: int, share: float, chance: float) -> int:
    """The largest number of hits such that more of them have a probability under `chance` (binomial)."""
    log_hit, log_miss, log_all = math.log(share), math.log1p(-share), math.lgamma(trials + 1)
    tail = 0.0
    for hits in range(trials, 0, -1):
        log_ways = log_all - math.lgamma(hits + 1) - math.lgamma(trials - hits + 1)
        tail += math.exp(log_ways + hits * log_hit + (trials - hits) * log_miss)
        if tail >= chance:
            return hits
    return 0


def _alert(window: Row, measure: str, *, raised: bool) -> Row:
    """As JSON; its id is the same however often the window is judged."""
    columns, unit, name, say = MEASURES[measure]
    value, limit, records = (window[column] for column in columns.split())
    event, verb = ("raised", "is over") if raised else ("resolved", "is back under")
    said = f"{name}, {say(value)}, {verb} {say(limit)}"
    start, end = (f"{window[at]:%Y-%m-%dT%H:%M:%SZ}" for at in ("start", "end"))
    return {
        "version": 1,
        "id": f"{measure}:{'all' if window['method'] is None else _series(window)}:{start}:{event}",
        "event": event,
        "measure": measure,
        "unit": unit,
        "profile": window["profile"],
        "method": window["method"],
        "window_start": start,
        "window_end": end,
        "value": value,
        "limit": limit,
        "records": records,
        "sentence": f"{_series(window)}: {said} in the minute from {start}",
    }
