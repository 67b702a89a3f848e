"""Judges windows by what came before them: pure, so that judging the same windows again says the same.

Nothing here reads a clock: time is that of the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final

from app.analysis.stream.options import LONG_BURN, SHORT_BURN, WINDOW, Bands

STATE_VERSION: Final = 2
MINUTE: Final = int(WINDOW.total_seconds())
TOTAL: Final = "all"
"""The series of all methods together."""
SPREADS: Final = 6.0
"""A p99 is out of its band when it is so many robust standard deviations (1.4826 × MAD, of logarithms) over it…"""
LEAST_FACTOR: Final = 1.5
"""… and so much longer than the median."""
CHANCE: Final = 1e-6
"""A timeout share is out of its band when so many timeouts have less than this probability at the usual share…"""
LEAST_RATIO: Final = 2.0
"""… and are so many times the usual."""


@dataclass(slots=True)
class Window:
    """A minute of a series, profile × method or all: what was counted, then what it means."""

    start: int
    """Seconds since 1970."""
    profile: str | None
    method: str | None
    commands: int
    answered: int
    failed: int
    timed_out: int
    cancelled: int
    unsent: int
    p50_us: int | None
    p90_us: int | None
    p99_us: int | None
    p999_us: int | None
    max_us: int | None
    timed_out_share: float = 0.0
    burn_5m: float | None = None
    burn_1h: float | None = None
    p99_limit_us: int | None = None
    timed_out_limit: float | None = None

    @property
    def series(self) -> str:
        """The name of what it is a minute of."""
        return TOTAL if self.method is None else f"{self.profile}/{self.method}"


@dataclass(frozen=True, slots=True)
class Breach:
    """A measure that left its band or came back to it."""

    measure: str
    raised: bool
    window: Window
    value: float
    limit: float


Past = dict[str, Any]
"""What judging a series needs of its earlier `windows`, oldest first, and the measures that are `raised`."""


class Judge:
    """Adds what windows mean, and tells where a measure left its band. Its state, to go on from, is plain JSON."""

    def __init__(self, bands: Bands, state: dict[str, Any] | None = None) -> None:
        self._bands = bands
        self.state = state or {"version": STATE_VERSION, "series": {}}

    def judge(self, windows: Iterable[Window]) -> list[Breach]:
        """Take closed windows, complete them, and tell the breaches; windows must not be older than those before."""
        breaches: list[Breach] = []
        for window in sorted(windows, key=lambda one: (one.start, one.series)):
            breaches += self._judge(
                window, self.state["series"].setdefault(window.series, {"windows": [], "raised": []})
            )
        return breaches

    def _judge(self, window: Window, past: Past) -> list[Breach]:
        window.timed_out_share = window.timed_out / window.commands if window.commands else 0.0
        window.p99_limit_us = self._p99_limit(past)
        window.timed_out_limit = self._timeout_limit(past, window.commands)
        bad, counted = window.timed_out + window.unsent, window.commands - window.cancelled
        window.burn_5m = self._burn(window, past, SHORT_BURN.total_seconds(), bad, counted)
        window.burn_1h = self._burn(window, past, LONG_BURN.total_seconds(), bad, counted)
        found = [
            self._compare("p99", window, window.p99_us, window.p99_limit_us, window.answered),
            self._compare("timeout_share", window, window.timed_out_share, window.timed_out_limit, window.commands),
        ]
        if window.method is None:
            burn = min(window.burn_5m or 0.0, window.burn_1h or 0.0)
            found.append(self._compare("burn_rate", window, burn, self._bands.burn, window.commands))
        breaches = [one for outside, one in found if one and outside != (one.measure in past["raised"])]
        for one in breaches:
            (past["raised"].append if one.raised else past["raised"].remove)(one.measure)
        past["windows"].append(
            {
                "start": window.start,
                "bad": bad,
                "counted": counted,
                "commands": window.commands,
                "timed_out": window.timed_out,
                "p99_us": window.p99_us if window.answered >= self._bands.least_records else None,
                "slow": found[0][0],
                "silent": found[1][0],
            }
        )
        oldest = window.start - LONG_BURN.total_seconds()
        surplus = len(past["windows"]) - self._bands.history
        past["windows"] = [one for n, one in enumerate(past["windows"]) if n >= surplus or one["start"] > oldest]
        return breaches

    def _compare(
        self, measure: str, window: Window, value: float | None, limit: float | None, records: int
    ) -> tuple[bool, Breach | None]:
        """Whether it is outside, and the breach to tell of if that is news. Too few records are no news."""
        if value is None or limit is None or records < self._bands.least_records:
            return False, None
        outside = value > limit
        return outside, Breach(measure, outside, window, value, limit)

    def _burn(self, window: Window, past: Past, seconds: float, bad: int, counted: int) -> float | None:
        """Share of bad commands over what the objective allows, in the time before the window's end."""
        since = window.start + MINUTE - seconds
        recent = [one for one in past["windows"] if one["start"] >= since]
        total = counted + sum(int(one["counted"]) for one in recent)
        if not total:
            return None
        share: float = (bad + sum(int(one["bad"]) for one in recent)) / total
        return share / (1 - self._bands.objective)

    def _p99_limit(self, past: Past) -> int | None:
        if self._bands.p99 is not None:
            return round(self._bands.p99.total_seconds() * 1e6)
        logs = [math.log(max(one["p99_us"], 1)) for one in self._usual(past, "slow") if one["p99_us"] is not None]
        if len(logs) < self._bands.least_history:
            return None
        middle = median(logs)
        spread = 1.4826 * median(abs(one - middle) for one in logs)
        return round(math.exp(middle + max(SPREADS * spread, math.log(LEAST_FACTOR))))

    def _timeout_limit(self, past: Past, commands: int) -> float | None:
        if self._bands.timeout_share is not None:
            return self._bands.timeout_share
        usual = self._usual(past, "silent")
        if len(usual) < self._bands.least_history or not commands:
            return None
        share: float = (sum(one["timed_out"] for one in usual) + 0.5) / (sum(one["commands"] for one in usual) + 1)
        return max(_likely(commands, share, CHANCE) / commands, LEAST_RATIO * share)

    def _usual(self, past: Past, flag: str) -> list[dict[str, Any]]:
        """The windows a band is learned from: those inside it, until half of them were outside; then all."""
        latest = past["windows"][-self._bands.history :]
        inside = [one for one in latest if not one[flag]]
        return inside if 2 * len(inside) >= len(latest) else latest


def _likely(trials: int, share: float, chance: float) -> int:
    """The largest number of hits such that more of them have a probability under `chance` (binomial)."""
    if share >= 1:
        return trials
    log_odds = math.log(share) - math.log1p(-share)
    log_term = trials * math.log1p(-share)
    terms = [math.exp(log_term)]
    for hits in range(1, trials + 1):
        log_term += math.log(trials - hits + 1) - math.log(hits) + log_odds
        terms.append(math.exp(log_term))
    tail = 0.0
    for hits in range(trials, -1, -1):
        tail += terms[hits]
        if tail >= chance:
            return hits
    return 0


def instant(seconds: int) -> str:
    """ISO 8601, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_SAID: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "p99": ("the 99th percentile", lambda us: f"{us / 1000:,.1f} ms"),
    "timeout_share": ("the share of timeouts", lambda share: f"{share:.2%}"),
    "burn_rate": ("the burn rate over 5 minutes and over an hour", lambda ratio: f"{ratio:.1f}"),
}
_UNITS: Final = {"p99": "us", "timeout_share": "share", "burn_rate": "ratio"}


def alert(breach: Breach) -> dict[str, Any]:
    """The alert as JSON; its id is the same however often the window is judged."""
    window, event = breach.window, "raised" if breach.raised else "resolved"
    who = "all methods" if window.method is None else window.series
    what, said = _SAID[breach.measure]
    verb = "is over" if breach.raised else "is back under"
    values = f"{said(breach.value)}, {verb} {said(breach.limit)}"
    return {
        "version": 1,
        "id": f"{breach.measure}:{window.series}:{instant(window.start)}:{event}",
        "event": event,
        "measure": breach.measure,
        "unit": _UNITS[breach.measure],
        "profile": window.profile,
        "method": window.method,
        "window_start": instant(window.start),
        "window_end": instant(window.start + MINUTE),
        "value": breach.value,
        "limit": breach.limit,
        "records": window.answered if breach.measure == "p99" else window.commands,
        "sentence": f"{who}: {what}, {values} in the minute from {instant(window.start)}",
    }
