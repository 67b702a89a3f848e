"""A node looks at devices that come back together at a pace, which gives way to its other work."""

from __future__ import annotations

from app.commands.held.look_pace import BURST_SECONDS, LEAST_SHARE, TICK_SECONDS, LookPace
from app.commands.held.waiting_devices import SOON, WaitingDevices
from app.core.commands.routing import Follower
from tests.contract.store_backends import ManualClock

MOST = 100


def looks(pace: LookPace, clock: ManualClock, seconds: float) -> int:
    """Return how often one may look in so many seconds, if one always wants to."""
    done, ends = 0, clock.now + seconds
    while clock.now < ends:
        while pace.take():
            done += 1
        clock.now += 0.001
    return done


def test_a_single_device_is_looked_at_at_once_and_many_at_the_rate() -> None:
    clock = ManualClock()
    pace = LookPace(clock, MOST, lambda: 0.0)
    assert pace.take()
    assert not pace.take()
    assert 0 < pace.seconds_to_next <= 1 / MOST
    assert abs(looks(pace, clock, 5.0) - 5 * MOST) <= 1
    clock.now += 3600
    assert looks(pace, clock, 0.001) == MOST * BURST_SECONDS, "a long rest saves up no herd"


def test_who_looked_at_nobody_has_not_looked() -> None:
    pace = LookPace(ManualClock(), MOST, lambda: 0.0)
    assert pace.take()
    pace.give_back()
    assert pace.take()


def test_it_halves_while_the_loop_is_late_or_the_window_is_half_taken_and_grows_again() -> None:
    clock, taken = ManualClock(), [0.0]
    pace = LookPace(clock, MOST, lambda: taken[0])
    pace.tended(0.06)
    assert pace.rate == MOST / 2
    taken[0] = 0.51
    pace.tended(0.0)
    assert pace.rate == MOST / 4
    taken[0] = 0.5
    for _ in range(round(1 / TICK_SECONDS)):
        pace.tended(0.05)
    assert pace.rate == MOST * 0.35, "a tenth in a second"
    for _ in range(100):
        pace.tended(1.0)
    assert pace.rate == MOST * LEAST_SHARE, "and it never stands"
    for _ in range(100):
        pace.tended(0.0)
    assert pace.rate == MOST


def test_a_herd_is_spread_over_the_time_that_its_looks_take() -> None:
    clock = ManualClock()
    waiting = WaitingDevices(clock, MOST)
    for number in range(1_000):
        waiting.add(f"dock-{number}", f"command-{number}")
    for number in range(1_000):
        waiting.heard(f"dock-{number}")
    found = []
    for _ in range(10):
        clock.now += 1.0
        found.append(sum(1 for _ in iter(waiting.taken, None)))
    assert sum(found) >= 1_000 - round(MOST * SOON * 2)
    assert max(found) < 3 * MOST


def test_who_has_its_turn_waits_behind_no_herd() -> None:
    clock = ManualClock()
    waiting = WaitingDevices(clock, MOST)
    for number in range(100):
        waiting.add(f"dock-{number}", f"command-{number}")
        waiting.heard(f"dock-{number}")
    clock.now += 30
    waiting.next_in_lane(Follower("next", "dock-7"))
    first = waiting.turn_taken()
    assert first is not None
    assert first.device_id == "dock-7"
    assert waiting.turn_taken() is None
    assert sum(1 for _ in iter(waiting.taken, None)) == 99, "it is not looked at twice"
