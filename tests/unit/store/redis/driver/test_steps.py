from __future__ import annotations

from collections import Counter

import pytest

from app.store.redis.driver.steps import LEAST_STEP_US, MOST_ERAS, StoreClocks, StoreSteps

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND


def told(steps: StoreSteps, at: float, ahead: float = 0.0, takes: float = 0.001) -> int:
    """The store's reply at a monotonic instant, with a clock that is so many seconds ahead of where it began."""
    return steps.told(NOON + round((at + ahead) * SECOND), at, at + takes)


def test_a_clock_that_goes_on_has_one_era() -> None:
    steps = StoreSteps()
    assert [told(steps, at, ahead=at / 5000) for at in range(10)] == [0] * 10
    (era,) = steps.eras
    assert (era.first, era.set_since) == (0, 0)


def test_a_slow_reply_is_no_step() -> None:
    steps = StoreSteps()
    assert told(steps, 0, takes=3) == 0
    assert told(steps, 5) == 0
    assert told(steps, 6, ahead=1.5, takes=3) == 0


@pytest.mark.parametrize("seconds", [600, -600, 1, -1, 0.4])
def test_a_step_is_noticed_once(seconds: float) -> None:
    steps = StoreSteps()
    assert told(steps, 0) == 0
    assert told(steps, 1, ahead=seconds) == pytest.approx(seconds * SECOND, abs=2000)
    assert told(steps, 2, ahead=seconds) == 0


def test_after_a_step_forward_what_was_registered_before_it_is_judged_by_the_clock_as_it_went() -> None:
    steps = StoreSteps()
    told(steps, 0)
    told(steps, 1, ahead=600)
    before, now = steps.eras
    assert before.first < NOON < NOON + SECOND < before.last < now.first < NOON + 601 * SECOND < now.last
    assert before.set_since == pytest.approx(600 * SECOND, abs=2000)
    assert now.set_since == 0


def test_steps_add_up_for_whom_they_all_befell() -> None:
    steps = StoreSteps()
    for at, ahead in enumerate((0, 600, 500)):
        told(steps, at, ahead=ahead)
    assert [round(era.set_since / SECOND) for era in steps.eras] == [500, -100, 0]


def test_no_more_eras_are_kept_than_a_script_looks_at() -> None:
    steps = StoreSteps()
    for at in range(50):
        told(steps, at, ahead=at * 10)
    assert len(steps.eras) == MOST_ERAS
    assert LEAST_STEP_US < 500_000  # the grace of a sweep


def test_scripts_are_told_where_the_clock_is_and_of_eras_once_it_was_set() -> None:
    clocks = StoreClocks(Counter())
    assert clocks.told_to_scripts("", 5, SECOND) == (), "nobody has looked at that clock"
    clocks.told("", NOON, 0, 0.001)
    least, most = clocks.told_to_scripts("", 5, SECOND)
    assert least < NOON + 5 * SECOND - LEAST_STEP_US < NOON + 6 * SECOND <= most
    clocks.told("", NOON + 601 * SECOND, 1, 1.001)
    least, most, *eras = clocks.told_to_scripts("", 5, SECOND)
    assert least < NOON + 605 * SECOND - LEAST_STEP_US < NOON + 606 * SECOND <= most
    assert len(eras) == 6
    assert eras[2] == pytest.approx(600 * SECOND, abs=2000)
    assert eras[5] == 0
