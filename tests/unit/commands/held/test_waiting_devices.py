"""Devices that held commands wait for are looked at: at once where something is known, else later and later."""

from __future__ import annotations

from math import inf

import pytest

from app.commands.held.waiting_devices import (
    FIRST_PAUSE,
    LATELY,
    LEAST_PAUSE,
    SOON,
    UNHEARD_A_SECOND,
    WaitingDevice,
    WaitingDevices,
)
from app.core.commands.routing import Follower
from app.core.events.presence import Whereabouts
from tests.contract.store_backends import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def waiting(clock: ManualClock) -> WaitingDevices:
    return WaitingDevices(clock)


def taken(waiting: WaitingDevices) -> WaitingDevice | None:
    """Return whom to look at next: who has its turn goes first."""
    return waiting.turn_taken() or waiting.taken()


def looked_at(waiting: WaitingDevices) -> WaitingDevice:
    """Return a device that is being looked at, with one command."""
    waiting.next_in_lane(Follower("first", "dock-1"))
    device = taken(waiting)
    assert device is not None
    return device


def test_a_device_is_back_since_it_spoke_after_a_silence_or_as_its_presence_says(
    waiting: WaitingDevices, clock: ManualClock
) -> None:
    device, unknown = looked_at(waiting), Whereabouts(None)
    assert waiting.known_for(device, unknown) == inf, "it may have been there all the time"
    for pause in (LATELY + 1, 5.0, 6.0):
        clock.now += pause
        waiting.heard("dock-1")
    assert waiting.known_for(device, unknown) == 11
    waiting.known_for(device, Whereabouts(True, 7))
    clock.now += 2
    assert waiting.known_for(device, Whereabouts(True, 7)) == 2
    assert waiting.known_for(device, Whereabouts(True, 8)) == 0, "it was away in between"


def test_who_has_its_turn_is_looked_at_at_once_and_whoever_looks_is_told(waiting: WaitingDevices) -> None:
    told: list[str] = []
    waiting.changed.add(lambda: told.append("changed"))
    assert looked_at(waiting).ids == {"first": None}
    assert told == ["changed"]


def test_what_comes_while_a_device_is_looked_at_is_looked_at_next(waiting: WaitingDevices) -> None:
    device = looked_at(waiting)
    waiting.next_in_lane(Follower("second", "dock-1"))
    assert taken(waiting) is None, "nobody looks at a device twice at once"
    waiting.drop("dock-1", "first")
    waiting.looked(device, fruitless=False)
    assert taken(waiting) is device
    waiting.drop("dock-1", "second")
    waiting.looked(device, fruitless=False)
    assert (len(waiting), taken(waiting)) == (0, None)


def test_so_it_is_after_a_look_in_vain(waiting: WaitingDevices, clock: ManualClock) -> None:
    device = looked_at(waiting)
    waiting.next_in_lane(Follower("second", "dock-1"))
    waiting.looked(device, fruitless=True)
    assert taken(waiting) is device
    waiting.looked(device, fruitless=True)
    assert taken(waiting) is None
    clock.now += FIRST_PAUSE * 2
    assert taken(waiting) is device


def test_a_look_that_failed_says_nothing_of_the_device(waiting: WaitingDevices, clock: ManualClock) -> None:
    """A node without room put a device off that was there, each time for twice as long, up to five minutes."""
    device = looked_at(waiting)
    for _ in range(20):
        waiting.looked(device, fruitless=True, failed=True)
        assert taken(waiting) is None
        clock.now += LEAST_PAUSE
        assert taken(waiting) is device
    waiting.looked(device, fruitless=True)
    clock.now += FIRST_PAUSE
    assert taken(waiting) is device


def test_a_look_is_as_late_as_what_is_waited_for(waiting: WaitingDevices, clock: ManualClock) -> None:
    device = looked_at(waiting)
    waiting.looked(device, fruitless=True, again_in=2.0)
    clock.now += 1.9
    assert taken(waiting) is None
    clock.now += 0.1
    assert taken(waiting) is device
    waiting.looked(device, fruitless=True, again_in=-5.0)
    assert taken(waiting) is None, "what should have come is not asked for without a pause"
    clock.now += 0.2
    assert taken(waiting) is device


def test_a_device_that_spoke_once_is_there_however_late_it_is_looked_at(
    waiting: WaitingDevices, clock: ManualClock
) -> None:
    device = waiting.add("dock-1", "first")
    assert device is not None
    waiting.heard("dock-1")
    clock.now += 10 * LATELY  # thousands were looked at before it
    assert taken(waiting) is device
    assert waiting.heed(device)
    waiting.looked(device, fruitless=True)
    clock.now += 10 * LATELY
    assert taken(waiting) is device
    assert not waiting.heed(device), "it was looked at since"


def test_what_a_device_says_while_it_is_looked_at_counts_for_the_next_look(
    waiting: WaitingDevices, clock: ManualClock
) -> None:
    device = looked_at(waiting)
    assert not waiting.heed(device)
    waiting.heard("dock-1")
    waiting.looked(device, fruitless=True)
    clock.now += 10 * LATELY
    assert taken(waiting) is device
    assert waiting.heed(device)


def test_of_many_that_are_not_heard_so_many_are_looked_at_in_a_second(
    waiting: WaitingDevices, clock: ManualClock
) -> None:
    device = looked_at(waiting)
    for number in range(20 * UNHEARD_A_SECOND - 1):
        waiting.add(f"lamp-{number}", f"c{number}")
    waiting.looked(device, fruitless=True)
    clock.now += 19.0
    assert taken(waiting) is None
    clock.now += 2.0
    assert taken(waiting) is device


def test_how_long_the_first_one_has_been_due_is_known(waiting: WaitingDevices, clock: ManualClock) -> None:
    assert waiting.overdue == 0
    for name in ("dock-1", "dock-2", "dock-3"):
        waiting.add(name, f"{name} first")
    waiting.heard("dock-1")
    assert waiting.overdue == 0
    clock.now += 40
    waiting.heard("dock-2")
    third = waiting.add("dock-3", "dock-3 second")
    assert third is not None
    waiting.take_turn(third)
    assert waiting.overdue == pytest.approx(40 - SOON)
    assert waiting.turn_taken() is third
    first = waiting.taken()
    assert first is not None
    assert first.device_id == "dock-1"
    clock.now += 5
    assert waiting.overdue == pytest.approx(5 - SOON)
    waiting.taken()
    assert waiting.overdue == 0
    waiting.take_turn(third)
    clock.now += 7
    assert waiting.overdue == pytest.approx(7)
