"""Fleet runs that go by hours of the day, and by goals."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.errors import RunStateError
from app.core.fleets.run import FleetRun, RunStatus, Why, new_run
from tests.unit.core.fleets.test_run import HOUR, NIGHT, SECOND, M, S, begun, spec, state_of, work


class TestWindows:
    def test_nothing_is_handed_out_outside_and_what_is_in_flight_ends(self) -> None:
        run = begun(3, spec([1], windows=[NIGHT]))
        assert (state_of(run), run.status.steps[-1].why) == (S.RUNNING, Why.WINDOW)
        run.hand([0])
        closed = 10 * 60 * SECOND
        run.advance(closed)
        assert (state_of(run), run.status.steps[-1].why, list(run.ready())) == (S.WAITING, Why.WINDOW, [])
        run.end_target(0, M.SUCCEEDED, closed + 1)
        run.advance(closed + 1)
        assert (state_of(run), run.status.wave) == (S.WAITING, 0)
        run.pause(closed + 2, "anna")
        run.resume(closed + 3, "anna")
        assert state_of(run) is S.WAITING
        run.advance(HOUR)
        assert state_of(run) is S.LAPSED, "its time is over, window or not"

    def test_it_goes_on_where_it_was_when_the_next_one_opens(self) -> None:
        run = begun(3, spec([1], windows=[NIGHT, {"from": "00:20", "to": "00:30"}]))
        work(run)
        assert run.status.wave == 1
        run.advance(12 * 60 * SECOND)
        run.advance(20 * 60 * SECOND)
        assert (state_of(run), list(run.ready())) == (S.RUNNING, [1, 2])
        assert run.status.wave_began == 1, "the wave began before"

    def test_it_begins_in_its_first_window(self) -> None:
        run = new_run(spec(windows=[{"from": "00:05", "to": "00:10"}]), 2)
        run.advance(1)
        assert state_of(run) is S.WAITING
        run.advance(5 * 60 * SECOND)
        assert state_of(run) is S.RUNNING

    def test_no_command_is_held_longer_than_its_window_is_open(self) -> None:
        wanted = spec(windows=[NIGHT])
        assert wanted.longest_hold(8 * 60 * SECOND) == timedelta(minutes=1)
        assert wanted.longest_hold(9 * 60 * SECOND + 30 * SECOND) == timedelta(seconds=30)
        assert wanted.longest_hold(11 * 60 * SECOND) == timedelta()
        assert spec().longest_hold(11 * 60 * SECOND) == timedelta(minutes=1)


class TestGoals:
    def test_when_it_is_reached_nothing_more_is_handed_out_and_the_run_has_succeeded(self) -> None:
        run = begun(10, spec(in_flight=4, done={"succeeded": "50%"}))
        run.hand([0, 1, 2, 3])
        run.end_target(0, M.FAILED, 1)
        for index in (1, 2):
            run.end_target(index, M.SUCCEEDED, 1)
        run.hand([4, 5, 6])
        for index in (3, 4, 5):
            run.end_target(index, M.SUCCEEDED, 1)
        assert (state_of(run), run.status.steps[-1].said) == (S.FINISHING, "5 targets have succeeded")
        assert run.counts() == {"handed": 1, "succeeded": 5, "failed": 1, "skipped": 3}
        run.end_target(6, M.TIMED_OUT, 1)
        run.advance(1)
        assert state_of(run) is S.SUCCEEDED

    def test_one_that_goes_on_gives_everybody_a_turn(self) -> None:
        run = begun(10, spec(done={"succeeded": 3, "then": "go_on"}))
        work(run, most=4)
        work(run, M.FAILED)
        assert (state_of(run), run.counts()) == (S.SUCCEEDED, {"succeeded": 4, "failed": 6})

    def test_it_pauses_at_the_first_target_by_which_it_is_out_of_reach(self) -> None:
        run = begun(10, spec(done={"succeeded": 8}))
        work(run, M.FAILED, most=2)
        assert state_of(run) is S.RUNNING
        run.hand([2])
        run.end_target(2, M.UNREACHABLE, 1)
        said = "quorum_lost: 8 targets were to succeed; 0 have, and 7 are left"
        assert (state_of(run), run.status.steps[-1].why, run.status.steps[-1].said) == (S.PAUSED, Why.QUORUM, said)
        with pytest.raises(RunStateError, match=r"quorum_lost.*forgive"):
            FleetRun(run.spec, RunStatus.from_json(run.kept()), bytearray(run.marks)).resume(2, "anna")
        run.resume(2, "anna", forgive=True)
        work(run, M.SUCCEEDED)
        assert (state_of(run), run.counts()) == (S.FAILED, {"succeeded": 7, "failed": 2, "unreachable": 1})
