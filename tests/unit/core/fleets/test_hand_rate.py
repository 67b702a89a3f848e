"""Targets get their turn at a rate, whoever drives the run."""

from __future__ import annotations

import pytest

from app.core.errors import InvalidInputError
from app.core.fleets.hand_rate import HandAllowance, read_rate
from app.core.fleets.spec import read_further
from tests.contract.store_backends import ManualClock


def handed(allowance: HandAllowance, clock: ManualClock, rate: str, seconds: int) -> int:
    """Return how many have their turn in so many seconds, if all are ready and a driver looks ten times a second."""
    total = 0
    for _ in range(seconds * 10):
        room = allowance.room(read_rate(rate), 1_000)
        allowance.spend(room)
        total += room
        clock.now += 0.1
    return total


@pytest.mark.parametrize(("rate", "in_a_minute"), [("100/s", 6_000), ("30/m", 30), ("1/m", 1), ("120/h", 2)])
def test_so_many_have_their_turn_as_the_rate_says(rate: str, in_a_minute: int) -> None:
    clock = ManualClock()
    assert abs(handed(HandAllowance(clock), clock, rate, 60) - in_a_minute) <= max(1, in_a_minute // 100)


def test_a_pause_saves_up_a_second_at_most_and_what_is_not_used_stays() -> None:
    clock = ManualClock()
    allowance = HandAllowance(clock)
    assert allowance.room(read_rate("50/s"), 1_000) == 1, "whoever takes over begins with one"
    clock.now += 3_600
    assert allowance.room(read_rate("50/s"), 1_000) == 50
    assert allowance.room(read_rate("50/s"), 20) == 20, "no more than may be in flight"
    allowance.spend(20)
    assert allowance.room(read_rate("50/s"), 1_000) == 30


@pytest.mark.parametrize("rate", ["0/s", "2001/s", "1/d", "5", 5, None, "1.5/s", "200000/m", ["1/s"]])
def test_what_is_no_rate_is_refused(rate: object) -> None:
    with pytest.raises(InvalidInputError, match="allowed: such as 100/s"):
        read_further({"rate": rate})
