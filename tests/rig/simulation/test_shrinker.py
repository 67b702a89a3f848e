"""The shrinker leaves out what a finding does not need, judged by functions that know what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from homing_rig.simulation.broker import Quirks
from homing_rig.simulation.plan import Plan, Trouble, TroubleKind, plan_of
from homing_rig.simulation.shrinker import Shrinker
from homing_rig.simulation.suite import Outcome

LARGE = replace(
    plan_of(11, 100),
    nodes=5,
    troubles=tuple(Trouble(at, kind, "n1", 1.234) for at in range(4) for kind in TroubleKind),
    quirks=Quirks(absent_members=True, receive_maximum=1),
)


def judge(broken: Callable[[Plan], bool], rule: str = "I4 answer_lost") -> Callable[[Plan], Outcome]:
    def run(plan: Plan) -> Outcome:
        said = (f"{rule}: it is",) if broken(plan) else ()
        return Outcome(plan.seed, "", said, len(plan.wishes), len(plan.troubles), 1)

    return run


def test_what_is_not_needed_is_left_out() -> None:
    needed = {LARGE.wishes[17].number, LARGE.wishes[80].number}

    def broken(plan: Plan) -> bool:
        kinds = [one.kind for one in plan.troubles]
        return (
            needed <= {one.number for one in plan.wishes}
            and kinds.count(TroubleKind.FREEZE) >= 2
            and TroubleKind.KILL in kinds
            and plan.nodes >= 2
            and plan.quirks.absent_members
        )

    shrinker = Shrinker(LARGE, 5000, judge(broken))
    small = shrinker.shrink()
    assert {one.number for one in small.wishes} == needed
    assert sorted(one.kind for one in small.troubles) == ["freeze", "freeze", "kill"]
    assert [one.seconds for one in small.troubles] == [1.0] * 3
    assert (small.nodes, small.sayings) == (2, ())
    assert small.quirks == Quirks(absent_members=True)
    assert set(small.laws.values()) == {"near"}
    assert set(small.offsets) == {0.0}
    assert (small.lease, small.sweep, small.max_pending) == (2.0, 0.5, 20_000)
    assert shrinker.found is not None
    assert shrinker.rule == "I4 answer_lost"
    assert broken(small)


def test_another_rule_does_not_count() -> None:
    """A smaller plan that breaks something else would explain something else."""

    def run(plan: Plan) -> Outcome:
        return judge(lambda _: True, "I4 answer_lost" if len(plan.wishes) == 100 else "L1 unrest")(plan)

    shrinker = Shrinker(LARGE, 5000, run)
    assert len(shrinker.shrink().wishes) == 100


def test_a_failure_of_the_simulator_is_shrunk_too() -> None:
    def run(plan: Plan) -> Outcome:
        return Outcome(plan.seed, "", (), 1, 1, 0, "deadlock at 3 s" if plan.troubles else "")

    shrinker = Shrinker(LARGE, 5000, run)
    small = shrinker.shrink()
    assert (len(small.troubles), len(small.wishes)) == (1, 0)
    assert shrinker.found is not None
    assert shrinker.found.failed


def test_no_more_runs_than_allowed() -> None:
    asked = []

    def broken(plan: Plan) -> bool:
        asked.append(plan)
        return len(plan.wishes) > 60

    shrinker = Shrinker(LARGE, 25, judge(broken))
    small = shrinker.shrink()
    assert shrinker.runs == len(asked) == 25
    assert 60 < len(small.wishes) < 100


def test_another_order_is_tried_where_the_first_does_not_break() -> None:
    shrinker = Shrinker(LARGE, 5000, judge(lambda plan: plan == LARGE or plan.stir == 2))
    assert len(shrinker.shrink().troubles) == 0


def test_a_sound_run_is_not_shrunk() -> None:
    shrinker = Shrinker(LARGE, 5000, judge(lambda _: False))
    assert shrinker.found is None
    assert shrinker.shrink() == LARGE
    assert shrinker.runs == 1
