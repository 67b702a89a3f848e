"""Looks for the smallest plan that still breaks the same rule: fewer troubles, commands, nodes, and oddities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from homing_rig.simulation.broker import Quirks
from homing_rig.simulation.plan import Plan
from homing_rig.simulation.suite import Outcome, ran

STIRS: Final = 3
"""The number of times that a smaller plan is tried: what is left out moves all that is drawn after it."""
_DEFAULTS: Final[dict[str, Any]] = {
    "lease": 2.0,
    "sweep": 0.5,
    "max_pending": 20_000,
    "max_waiters": 5_000,
    "receive_maximum": 256,
    "webhooks": False,
    "intake": "ordered",
}


class Shrinker:
    """Shrinks one plan. `run` judges a plan; it is asked at most `most_runs` times."""

    def __init__(self, plan: Plan, most_runs: int = 400, run: Callable[[Plan], Outcome] = ran) -> None:
        self.runs = 1
        self._most_runs = most_runs
        self._run = run
        self._plan = plan
        outcome = run(plan)
        self.rule: Final = rule_of(outcome)
        """The rule that must break again: an invariant with its kind, or that the simulator fails."""
        self.found: Outcome | None = outcome if self.rule else None
        """The outcome of the smallest plan so far."""

    def shrink(self) -> Plan:
        """The smallest plan that was found."""
        if self.rule:
            size = None
            while size != (size := self._size()):
                for step in (self._kinds, self._troubles, self._sayings, self._wishes, self._nodes, self._odd):
                    step()
        return self._plan

    def _size(self) -> tuple[int, str]:
        plan = self._plan
        return len(plan.wishes) + len(plan.troubles) + len(plan.sayings) + plan.nodes, repr(plan)

    def _breaks(self, plan: Plan) -> bool:
        """True if the plan breaks the same rule; then it is the smallest."""
        for stir in dict.fromkeys([self._plan.stir, *range(STIRS)]):
            if self.runs >= self._most_runs:
                return False
            self.runs += 1
            tried = replace(plan, stir=stir)
            outcome = self._run(tried)
            if self.rule in rules_of(outcome):
                self._plan, self.found = tried, outcome
                return True
        return False

    def _kinds(self) -> None:
        for kind in sorted({one.kind for one in self._plan.troubles}):
            left = tuple(one for one in self._plan.troubles if one.kind is not kind)
            self._breaks(replace(self._plan, troubles=left))

    def _troubles(self) -> None:
        self._fewest("troubles")

    def _sayings(self) -> None:
        if self._plan.sayings:
            self._breaks(replace(self._plan, sayings=()))
            self._fewest("sayings")

    def _wishes(self) -> None:
        for device in sorted({one.device for one in self._plan.wishes}):
            left = tuple(one for one in self._plan.wishes if one.device != device)
            if left:
                self._breaks(replace(self._plan, wishes=left))
        self._fewest("wishes")

    def _fewest(self, name: str) -> None:
        """Leave out halves, then quarters, and so on: Zeller and Hildebrandt's ddmin, without the complements."""
        size = len(getattr(self._plan, name)) // 2 or 1
        while size:
            at = 0
            while at < len(whole := getattr(self._plan, name)):
                left = whole[:at] + whole[at + size :]
                if not self._breaks(replace(self._plan, **{name: left})):
                    at += size
            size //= 2

    def _nodes(self) -> None:
        while self._plan.nodes > 1 and self._breaks(replace(self._plan, nodes=self._plan.nodes - 1)):
            pass

    def _odd(self) -> None:
        """Make what is left as ordinary as it can be."""
        for change in _ordinary(self._plan):
            if (plan := change(self._plan)) != self._plan:
                self._breaks(plan)


def _ordinary(plan: Plan) -> Iterator[Callable[[Plan], Plan]]:
    yield lambda one: replace(one, offsets=(0.0,) * len(one.offsets))
    yield lambda one: replace(one, wishes=tuple(replace(wish, repeatable=False) for wish in one.wishes))
    yield lambda one: replace(one, wishes=tuple(replace(wish, hold=None) for wish in one.wishes))
    yield lambda one: replace(one, returns={})
    for name, value in _DEFAULTS.items():
        yield partial(replace, **{name: value})
    usual = Quirks()
    for name in ("absent_members", "unmatched_told", "shares_forgotten", "receive_maximum", "turns"):
        yield partial(_quirk, name=name, value=getattr(usual, name))
    for where in plan.laws:
        yield partial(_law, where=where)
    for digits in (0, 1):
        yield partial(_rounded, digits=digits)


def _quirk(plan: Plan, name: str, value: Any) -> Plan:  # noqa: ANN401 - of any member
    return replace(plan, quirks=replace(plan.quirks, **{name: value}))


def _law(plan: Plan, where: str) -> Plan:
    return replace(plan, laws={**plan.laws, where: "near"})


def _rounded(plan: Plan, digits: int) -> Plan:
    return replace(
        plan,
        wishes=tuple(replace(one, at=round(one.at, digits)) for one in plan.wishes),
        troubles=tuple(
            replace(one, at=round(one.at, digits), seconds=round(one.seconds, digits)) for one in plan.troubles
        ),
    )


def rules_of(outcome: Outcome) -> Sequence[str]:
    """The rules that are broken."""
    if outcome.failed:
        return ["the simulator fails"]
    return list(dict.fromkeys(one.partition(":")[0] for one in outcome.breaches))


def rule_of(outcome: Outcome) -> str:
    """The first of them; empty when there is none."""
    return next(iter(rules_of(outcome)), "")
