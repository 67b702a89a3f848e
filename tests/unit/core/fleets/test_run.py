"""Fleet runs: the table, the waves, the rules, and a random model that tries to break all of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from app.core.errors import InvalidInputError, RunStateError
from app.core.fleets.marks import TargetMark
from app.core.fleets.quorum import LabelKinds, LabelRoom, in_turn, read_budgets
from app.core.fleets.run import TRANSITIONS, FleetRun, RunState, RunStatus, Why, new_run
from app.core.fleets.spec import RunSpec, read_further, read_rules, read_waves

SECOND = 1_000_000
HOUR = 3_600 * SECOND
S, M = RunState, TargetMark
NIGHT = {"from": "00:00", "to": "00:10"}


def spec(
    waves: list[Any] | None = None,
    stop: list[Any] | None = None,
    *,
    in_flight: int = 100,
    start_at: int = 0,
    **further: Any,
) -> RunSpec:
    return RunSpec(
        waves=read_waves(waves or []),
        stop=read_rules(stop or []),
        in_flight=in_flight,
        hold=timedelta(minutes=1),
        start_at=start_at,
        until=HOUR,
        **read_further(further),
    )


def state_of(run: FleetRun) -> RunState:
    return run.state  # in a call, as what an assertion has seen may change


def begun(total: int, wanted: RunSpec) -> FleetRun:
    run = new_run(wanted, total)
    run.advance(1)
    return run


def work(run: FleetRun, mark: TargetMark = M.SUCCEEDED, *, most: int = 1_000_000, now: int = 1) -> list[int]:
    """Hand out what may be, and let it end so."""
    handed = list(run.ready())[: min(run.room, most)]
    run.hand(handed)
    for index in handed:
        run.end_target(index, mark, now)
    run.advance(now)
    return handed


def test_every_state_is_in_the_table_and_final_ones_have_no_way_out() -> None:
    assert set(TRANSITIONS) == set(RunState)
    assert {one for one in RunState if one.final} == {S.SUCCEEDED, S.FAILED, S.LAPSED, S.ABORTED}
    reached = {state for ways in TRANSITIONS.values() for state in ways.values()}
    assert reached == set(RunState)


class TestWaves:
    @pytest.mark.parametrize(
        ("waves", "total", "sizes"),
        [
            ([{"first": 50, "factor": 3, "most": 2000}], 7_000, [50, 150, 450, 1350, 2000, 2000, 1000]),
            ([{"first": 2, "factor": 1.5}], 20, [2, 3, 4, 7, 4]),
            ([5, {"size": "10%"}, {"first": 10, "factor": 10}], 1_000, [5, 100, 10, 100, 785]),
            ([{"first": 50, "factor": 3}], 20, [20]),
            ([30, {"first": 50, "factor": 3}], 30, [30]),
        ],
    )
    def test_waves_grow_to_the_last_target(self, waves: list[Any], total: int, sizes: list[int]) -> None:
        ends = spec(waves).wave_ends(total)
        assert [end - begin for begin, end in pairwise([0, *ends])] == sizes
        assert RunSpec.from_json(spec(waves).to_json()) == spec(waves)

    def test_each_wave_that_grew_bakes_and_waits_for_a_person_but_the_last_one(self) -> None:
        run = begun(13, spec([{"first": 1, "factor": 3, "bake": "5s", "then": "wait"}]))
        for wave, size in enumerate((1, 3, 9)):
            assert len(work(run, now=wave * 10 * SECOND + 1)) == size
            if wave < 2:
                assert state_of(run) is S.RUNNING
                run.advance((wave * 10 + 6) * SECOND)
                assert state_of(run) is S.PAUSED
                run.resume((wave * 10 + 7) * SECOND, "anna")
        assert state_of(run) is S.SUCCEEDED

    @pytest.mark.parametrize(
        ("waves", "says"),
        [
            ([{"first": 1, "factor": 2}, "rest"], "waves.0: grows, so it is the last one; 1 follow it"),
            ([{"first": 1}], "waves.0.factor: is missing"),
            ([{"factor": 2}], "waves.0.first: is missing"),
            ([{"first": 1, "factor": 1}], "waves.0.factor: 1 is none; allowed: a number above 1 and up to 10"),
            ([{"first": 1, "factor": True}], "waves.0.factor"),
            ([{"first": 0, "factor": 2}], "waves.0.first: 0 is out of range"),
            ([{"first": 5, "factor": 2, "most": 4}], "waves.0.most: 4 is out of range; allowed: 5 to 100000"),
            ([{"first": 5, "factor": 2, "size": 4}], "waves.0.size: is unknown"),
        ],
    )
    def test_waves_that_cannot_grow_are_refused(self, waves: list[Any], says: str) -> None:
        with pytest.raises(InvalidInputError) as refused:
            spec(waves)
        assert says in str(refused.value)

    def test_waves_that_grow_too_slowly_for_their_targets_are_refused(self) -> None:
        with pytest.raises(InvalidInputError, match=r"waves\.0.*600 targets become more than 500 waves"):
            new_run(spec([{"first": 1, "factor": 2, "most": 1}]), 600)

    @pytest.mark.parametrize(
        ("waves", "total", "ends"),
        [
            ([], 7, [7]),
            ([5, "10%"], 100, [5, 15, 100]),
            ([5, "10%", "rest"], 100, [5, 15, 100]),
            (["10%"], 5, [1, 5]),
            ([50, 60], 70, [50, 70]),
            (["100%"], 3, [3]),
            (["33.3%"], 1000, [333, 1000]),
        ],
    )
    def test_they_divide_all_targets(self, waves: list[Any], total: int, ends: list[int]) -> None:
        assert spec(waves).wave_ends(total) == ends

    def test_the_next_one_begins_when_all_of_the_last_have_ended_and_the_bake_is_over(self) -> None:
        run = begun(10, spec([{"size": 2, "bake": "10s"}]))
        assert list(run.ready()) == [0, 1]
        run.hand([0, 1])
        run.end_target(0, M.SUCCEEDED, 5)
        run.advance(5)
        assert list(run.ready()) == []
        run.end_target(1, M.FAILED, 6)
        run.advance(6)
        assert (run.status.wave, run.status.bake_until) == (0, 6 + 10 * SECOND)
        run.advance(5 + 10 * SECOND)
        assert list(run.ready()) == []
        run.advance(6 + 10 * SECOND)
        assert list(run.ready()) == list(range(2, 10))
        assert run.status.wave_began == 6 + 10 * SECOND

    def test_one_that_waits_goes_on_when_a_person_says_so(self) -> None:
        run = begun(3, spec([{"size": 1, "then": "wait"}]))
        work(run)
        assert state_of(run) is S.PAUSED
        assert (run.status.steps[-1].why, run.status.steps[-1].said) == (Why.WAVE, "wave 1 of 2 has ended")
        run.resume(2, "anna")
        assert (run.state, run.status.wave) == (S.RUNNING, 1)
        assert list(run.ready()) == [1, 2]
        work(run)
        assert state_of(run) is S.SUCCEEDED

    def test_one_that_another_person_approves_goes_on_by_the_approval_of_this_wave_alone(self) -> None:
        run = begun(3, spec([{"size": 1, "then": "approve"}, {"size": 1, "then": "approve"}]))
        work(run)
        assert (state_of(run), run.status.steps[-1].why, run.awaits_approval) == (S.PAUSED, Why.APPROVAL, True)
        run.pause(2, "anna")
        for approved in (None, 1):
            with pytest.raises(RunStateError, match="another person than the one who began the run has to approve"):
                run.resume(2, "anna", forgive=True, approved=approved)
        run.resume(2, "ben", approved=0)
        assert (state_of(run), run.status.wave) == (S.RUNNING, 1)
        work(run)
        with pytest.raises(RunStateError):
            run.resume(3, "ben", approved=0)
        run.resume(3, "ben", approved=1)
        work(run)
        assert state_of(run) is S.SUCCEEDED


class TestRules:
    def test_a_share_is_one_of_those_that_ended_and_not_before_after(self) -> None:
        run = begun(100, spec(stop=[{"share": "20%", "after": 5}]))
        run.hand(range(20))
        for index in range(4):
            run.end_target(index, M.FAILED, 1)
        assert state_of(run) is S.RUNNING, "four have ended, and the rule looks at five"
        run.end_target(4, M.SUCCEEDED, 1)
        assert state_of(run) is S.PAUSED
        assert (
            run.status.steps[-1].said
            == "4 of 5 targets that ended are failed or timed_out, which is 80%; the rule stops at 20%"
        )

    @pytest.mark.parametrize(("waves", "total"), [([5, "10%", "rest"], 200), ([1, "rest"], 3), (["1%", "rest"], 400)])
    def test_a_first_wave_that_fails_stops_the_run_before_the_next_one_begins(
        self, waves: list[Any], total: int
    ) -> None:
        """It is smaller than the 20 that a share is judged from, as first waves are."""
        run = begun(total, spec(waves=waves, stop=[{"share": "5%"}]))
        first = run.ends[0]
        work(run, M.FAILED, most=first)
        assert (state_of(run), run.status.steps[-1].why) == (S.PAUSED, Why.RULE)
        assert run.counts() == {"failed": first, "waiting": total - first}
        other = begun(total, spec(waves=waves, stop=[{"share": "5%", "after": first + 1}]))
        work(other, M.FAILED, most=first)
        assert state_of(other) is S.RUNNING, "whoever says when it is judged is taken at their word"

    def test_it_stops_in_the_step_in_which_the_share_is_reached(self) -> None:
        run = begun(1000, spec(stop=[{"of": ["failed"], "share": "10%", "after": 1}], in_flight=1000))
        run.hand(range(1000))
        for index in range(9):
            run.end_target(index, M.SUCCEEDED, 1)
        assert state_of(run) is S.RUNNING
        run.end_target(9, M.FAILED, 1)
        assert state_of(run) is S.PAUSED

    def test_ways_to_end_count_apart(self) -> None:
        run = begun(10, spec(stop=[{"of": ["unreachable"], "count": 2}]))
        work(run, M.FAILED, most=8)
        assert state_of(run) is S.RUNNING
        work(run, M.UNREACHABLE)
        assert state_of(run) is S.FAILED, "nothing was left to be stopped"

    def test_resuming_needs_forgiveness_while_the_rule_holds(self) -> None:
        run = begun(10, spec(stop=[{"count": 2}]))
        work(run, M.FAILED, most=2)
        with pytest.raises(RunStateError, match=r"2 targets are failed or timed_out; the rule stops at 2; resume it"):
            FleetRun(run.spec, RunStatus.from_json(run.kept()), bytearray(run.marks)).resume(2, "anna")
        run.resume(2, "anna", forgive=True)
        assert state_of(run) is S.RUNNING
        work(run, M.FAILED, most=1)
        assert state_of(run) is S.RUNNING
        work(run, M.TIMED_OUT, most=1)
        assert state_of(run) is S.PAUSED

    def test_what_a_rule_names_twice_counts_once(self) -> None:
        run = begun(10, spec(stop=[{"of": ["failed", "failed"], "count": 3}]))
        assert run.spec.stop[0].of == ("failed",)
        run.hand(range(3))
        for index in range(2):
            run.end_target(index, M.FAILED, 1)
        assert state_of(run) is S.RUNNING

    def test_one_may_abort_also_while_a_person_has_paused(self) -> None:
        run = begun(10, spec(stop=[{"count": 1, "then": "abort"}]))
        run.hand([0, 1])
        run.pause(1, "anna")
        run.end_target(0, M.FAILED, 1)
        assert state_of(run) is S.ABORTING
        assert run.counts() == {"handed": 1, "failed": 1, "skipped": 8}
        run.end_target(1, M.SUCCEEDED, 1)
        run.advance(1)
        assert (run.state, run.status.steps[2].why) == (S.ABORTED, Why.RULE)


class TestEnds:
    def test_all_succeeded(self) -> None:
        run = begun(3, spec())
        work(run)
        assert (run.state, run.status.ended_at) == (S.SUCCEEDED, 1)

    def test_one_did_not(self) -> None:
        run = begun(3, spec())
        work(run, M.TIMED_OUT, most=1)
        work(run)
        assert state_of(run) is S.FAILED

    def test_its_time_was_over(self) -> None:
        run = begun(3, spec(in_flight=1))
        run.hand([0])
        run.advance(HOUR)
        assert (run.state, run.counts()) == (S.FINISHING, {"handed": 1, "skipped": 2})
        assert list(run.ready()) == []
        run.end_target(0, M.SUCCEEDED, HOUR)
        run.advance(HOUR)
        assert state_of(run) is S.LAPSED

    def test_it_does_not_begin_before_its_time(self) -> None:
        run = begun(3, spec(start_at=5))
        assert (run.state, list(run.ready())) == (S.WAITING, [])
        run.advance(5)
        assert (run.state, len(list(run.ready()))) == (S.RUNNING, 3)

    def test_what_has_ended_is_neither_paused_nor_aborted(self) -> None:
        run = begun(1, spec())
        work(run)
        attempts: list[Callable[[], None]] = [
            lambda: run.pause(2, "anna"),
            lambda: run.resume(2, "anna"),
            lambda: run.abort(2, "anna", cancel=True),
        ]
        for attempt in attempts:
            with pytest.raises(RunStateError, match="the run is succeeded, so it cannot"):
                attempt()


def test_values_of_a_label_take_turns() -> None:
    sites = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "none": "", "b2": "b"}
    assert in_turn(sites) == ["a1", "b1", "none", "a2", "b2", "a3"]


def test_budgets_bound_what_is_in_flight_of_each_value() -> None:
    budgets = read_budgets([{"label": "site", "most": 2}, {"label": "model", "most": 3}])
    labels = [("a", "x"), ("a", "x"), ("a", "x"), ("b", "x"), ("b", "y"), ("", "y"), ("", "y"), ("", "y")]
    kinds = LabelKinds(labels)
    room = LabelRoom(budgets, kinds, [0])
    tried = room.copy()
    assert [one for one in range(1, 8) if tried.takes(one)] == [1, 3, 4, 5, 6]
    assert [one for one in range(1, 8) if room.has(one)] == [*range(1, 8)], "what is tried out takes nothing"
    room = LabelRoom(budgets, kinds)
    assert [one for one in range(8) if room.takes(one)] == [0, 1, 3, 4, 5, 6]


def test_what_a_run_goes_by_is_kept() -> None:
    further: dict[str, Any] = {
        "windows": [NIGHT],
        "spread": "site",
        "per": [{"label": "site", "most": 2}],
        "done": {"succeeded": "7%"},
    }
    wanted = spec([1, "10%"], [{"count": 2}], **further)
    assert RunSpec.from_json(wanted.to_json()) == wanted
    assert wanted.labels == {"site": "per"}
    assert spec().further() == {}


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_in_whatever_order_the_run_keeps_its_promises(seed: int) -> None:
    """A random run: bytes move forward only, never more in flight than allowed, no rule is overrun, and it ends."""
    random = Random(seed)
    total = random.randint(1, 60)
    waves: list[list[Any]] = [[], [1], [{"size": 3, "bake": "2s"}, "20%"], [{"size": "10%", "then": "wait"}, 4, "rest"]]
    rules: list[list[Any]] = [[], [{"count": 3}], [{"share": "30%", "after": 4}], [{"count": 5, "then": "abort"}]]
    wanted = spec(
        random.choice(waves),
        random.choice(rules),
        in_flight=random.randint(1, 12),
        start_at=random.choice([0, 3 * SECOND]),
    )
    run, now, handed_after_stop = new_run(wanted, total), 0, 0
    for _ in range(2_000):
        now += random.randint(0, 2 * SECOND)
        run = FleetRun(wanted, RunStatus.from_json(run.kept()), bytearray(run.marks))  # another driver
        before, state = bytes(run.marks), run.state
        try:
            _do_something(run, random, now)
        except RunStateError:
            run = FleetRun(wanted, RunStatus.from_json(run.kept()), bytearray(before))
            run.status.state = state
            continue
        for old, new in zip(before, run.marks, strict=True):
            assert old == new or not TargetMark(old).ended, "what has ended changes no more"
            assert new != M.WAITING or old == M.WAITING, "nothing goes back"
        assert run.count(M.HANDED) <= wanted.in_flight
        assert sum(run.counts().values()) == total
        new_ones = sum(old == M.WAITING and new == M.HANDED for old, new in zip(before, run.marks, strict=True))
        handed_after_stop += new_ones if state is not S.RUNNING else 0
        if run.state.final:
            break
    assert handed_after_stop == 0
    assert run.state.final, run.status
    assert not run.count(M.WAITING)
    assert not run.count(M.HANDED)
    if state_of(run) is not S.ABORTED:
        assert (state_of(run) is S.SUCCEEDED) == (run.count(M.SUCCEEDED) == total)


def _do_something(run: FleetRun, random: Random, now: int) -> None:
    what = random.random()
    if what < 0.4:
        ready = list(run.ready())
        run.hand(ready[: random.randint(0, run.room)])
    elif what < 0.85:
        handed = run.marked(M.HANDED)
        if handed:
            marks = [M.SUCCEEDED] * 6 + [M.FAILED, M.TIMED_OUT, M.UNREACHABLE, M.UNKNOWN]
            run.end_target(random.choice(handed), random.choice(marks), now)
    elif what < 0.88:
        run.pause(now, "anna")
    elif what < 0.97:
        run.resume(now, "anna", forgive=random.random() < 0.5)
    elif what < 0.972:
        run.abort(now, "anna", cancel=random.random() < 0.5)
    run.advance(now)
