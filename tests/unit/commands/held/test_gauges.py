"""Held commands as `/metrics` shows them."""

from __future__ import annotations

from app.commands.held.gauges import FAMILIES, HELD, OLDEST, OTHER, OVERDUE, STOPPED, HeldGauges, HeldSighting
from app.core.commands.command import WaitReason

NOW = 10_000_000


class Waiting(set[str]):
    """Devices that wait; the first has been due for so long."""

    overdue = 0.0


def seconds_to(instant: int) -> float:
    return (instant - NOW) / 1_000_000


def shown(gauges: HeldGauges) -> tuple[dict[str, float], dict[str, float]]:
    found = dict(gauges.shown())
    assert tuple(found) == FAMILIES
    counts, ages = ({word: value for (word,), value in found[family].items()} for family in (HELD, OLDEST))
    return counts, ages


def test_commands_are_counted_by_what_they_wait_for_and_the_oldest_is_told() -> None:
    gauges = HeldGauges(Waiting(("dock-1", "dock-2")), seconds_to)
    none = dict.fromkeys((*WaitReason, OTHER), 0)
    assert shown(gauges) == (none, none)
    gauges.saw("dock-1", [HeldSighting(WaitReason.LANE, 4_000_000), HeldSighting(WaitReason.LANE, 3_000_000)])
    gauges.saw("dock-2", [HeldSighting(OTHER, 9_000_000)])
    assert shown(gauges) == (none | {"lane": 2, "other": 1}, none | {"lane": 7, "other": 1})
    gauges.saw("dock-1", [HeldSighting(WaitReason.DEVICE, 4_000_000)])
    assert shown(gauges) == (none | {"device": 1, "other": 1}, none | {"device": 6, "other": 1})


def test_a_device_for_which_nothing_waits_any_more_is_forgotten() -> None:
    waiting = Waiting(("dock-1", "dock-2"))
    gauges = HeldGauges(waiting, seconds_to)
    for device in waiting:
        gauges.saw(device, [HeldSighting(WaitReason.DEVICE, 0)])
    gauges.saw("dock-1", [])
    assert shown(gauges)[0]["device"] == 1
    waiting.remove("dock-2")
    assert shown(gauges)[0]["device"] == 0


def test_a_lane_that_stands_is_counted_once_however_many_wait_in_it() -> None:
    gauges = HeldGauges(Waiting(("dock-1", "dock-2")), seconds_to)
    waiting = [HeldSighting(WaitReason.LANE, 0, one) for one in ("flight", "flight", None, "aim")]
    for device in ("dock-1", "dock-2"):
        gauges.saw(device, waiting)
    assert dict(gauges.shown())[STOPPED] == {(): 4}
    gauges.saw("dock-2", [])
    assert dict(gauges.shown())[STOPPED] == {(): 2}


def test_a_look_that_is_overdue_is_told() -> None:
    waiting = Waiting()
    gauges = HeldGauges(waiting, seconds_to)
    assert dict(gauges.shown())[OVERDUE] == {(): 0.0}
    waiting.overdue = 31.0
    assert dict(gauges.shown())[OVERDUE] == {(): 31.0}
