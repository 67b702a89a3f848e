"""When Redis is away as a whole, outcomes that are due then wait until it is back, and those of other times do not."""

from __future__ import annotations

import pytest

from homing_rig.chaos.history import Fault, FaultPhase
from homing_rig.chaos.outages import StoreOutages


def outages(*faults: tuple[str, str, float, float]) -> StoreOutages:
    found = StoreOutages()
    for kind, target, gone, back in faults:
        found.take(Fault(at=gone, kind=kind, target=target, phase=FaultPhase.BEGIN))
        found.take(Fault(at=back, kind=kind, target=target, phase=FaultPhase.END))
    return found


@pytest.mark.parametrize(
    ("due", "writable"), [(10.0, 13.0), (12.9, 13.0), (8.1, 13.0), (7.9, 7.9), (13.1, 13.1), (20.5, 23.0)]
)
def test_what_is_due_in_an_outage_or_right_before_it_waits_for_its_end(due: float, writable: float) -> None:
    twice = outages(("kill", "redis", 10.0, 13.0), ("freeze", "redis", 20.0, 23.0))
    assert twice.writable(due, 2.0) == writable


@pytest.mark.parametrize(("kind", "target"), [("slow", "redis"), ("kill", "n1"), ("forget_scripts", "redis")])
def test_nothing_else_is_an_outage(kind: str, target: str) -> None:
    assert outages((kind, target, 10.0, 13.0)).writable(11.0, 2.0) == 11.0


def test_an_outage_that_has_not_ended_excuses_nothing() -> None:
    found = StoreOutages()
    found.take(Fault(at=10.0, kind="kill", target="redis", phase=FaultPhase.BEGIN))
    assert found.writable(11.0, 2.0) == 11.0
