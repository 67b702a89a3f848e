"""Notices when the store's clock was set, and knows by what: Redis lives by its machine's time of day.

The store's time is compared with this process's monotonic clock. Drift of a few milliseconds a second is none of our
business; a step is. What was registered before one has a deadline on the clock as it went then, so each span between
two steps is an era, and the sweep judges a command by the era that it is of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

LEAST_STEP_US: Final = 250_000
"""A smaller step is within the grace of a sweep."""
SLACK_US: Final = 2_000_000
"""The precision with which the two ends of an era are known: nobody looks at the very moment of a step."""
MOST_ERAS: Final = 8
_END: Final = 2**53
"""Later than any instant; the largest number that Lua takes exactly."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Era:
    """Between which instants (µs) its commands were registered, and how much was set since then."""

    first: int
    last: int
    set_since: int


class StoreSteps:
    """Told the store's time now and then. Instants and steps in µs; `before`, `after` in monotonic seconds."""

    def __init__(self) -> None:
        self._eras = [Era(0, _END, 0)]
        self._lead: tuple[float, float] | None = None
        """The bounds between which the store's time was ahead of the monotonic clock when it was told last."""

    @property
    def eras(self) -> list[Era]:
        """The latest ones; the last one is the present."""
        return self._eras

    @property
    def lead(self) -> tuple[float, float] | None:
        """The least and the most (µs) by which the store's time led the monotonic clock when it was told last."""
        return self._lead

    def told(self, now: int, before: float, after: float) -> int:
        """The store said `now` between `before` and `after`: by how much its clock was set since the last time."""
        known, self._lead = self._lead, (now - after * 1e6, now - before * 1e6)
        if known is None:
            return 0
        least, most = self._lead[0] - known[1], self._lead[1] - known[0]
        if least < LEAST_STEP_US and most > -LEAST_STEP_US:
            return 0
        step = round((least + most) / 2)
        self._begin(now, step)
        return step

    def _begin(self, now: int, step: int) -> None:
        *past, present = (Era(one.first, one.last, one.set_since + step) for one in self._eras)
        ended = Era(present.first, now - step + SLACK_US, present.set_since)
        self._eras = [*past, ended, Era(now - SLACK_US, _END, 0)][-MOST_ERAS:]


class StoreClocks:
    """The clocks of all servers, each by what it told last. `counters` get the steps."""

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self._steps: dict[str, StoreSteps] = {}

    def told(self, server: str, now: int, before: float, after: float) -> StoreSteps:
        """Note what a server said, as in `StoreSteps.told`; the steps of its clock."""
        steps = self._steps.setdefault(server, StoreSteps())
        step = steps.told(now, before, after)
        if step:
            self._counters["store.clock_steps"] += 1
            _log.warning("store_clock_stepped", seconds=round(step / 1e6, 3))
        return steps

    def at(self, server: str, instant: float) -> int | None:
        """The time of a server (µs) at an instant of the monotonic clock, at the latest; None before it told any."""
        steps = self._steps.get(server)
        return None if steps is None or steps.lead is None else round(steps.lead[1] + instant * 1e6)

    def told_to_scripts(self, server: str, instant: float, ahead: int) -> Sequence[int]:
        """Return between which instants (µs) the time of a server is, as far as it was not set, and then its eras.

        It is asked for at an instant of the monotonic clock, and told up to `ahead` (µs) later. Eras are left out while
        there is one; so is all before the server told any time. See lua/parts/eras.lua.
        """
        steps = self._steps.get(server)
        if steps is None or steps.lead is None:
            return ()
        least, most = (round(one + instant * 1e6) for one in steps.lead)
        eras = steps.eras if len(steps.eras) > 1 else ()
        told = [number for one in eras for number in (one.first, one.last, one.set_since)]
        return (least - LEAST_STEP_US, most + ahead, *told)
