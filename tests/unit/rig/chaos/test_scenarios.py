"""Short forms judge what must never happen; how fast it was is for the full forms, which have the machine."""

from __future__ import annotations

import pytest

from app.rig.chaos.scenarios import SCENARIOS

GENEROUS_SECONDS = 30


@pytest.mark.parametrize("name", SCENARIOS)
def test_short_forms_judge_no_speed(name: str) -> None:
    times = [one for one in SCENARIOS[name].figures if one.name.endswith(("_s", "_ms", "_ratio"))]
    judged = [one.name for one in times if not one.timing and (one.short or 0) < GENEROUS_SECONDS]
    assert judged == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_lease_in_a_short_form_is_as_long_as_in_life(name: str) -> None:
    assert SCENARIOS[name].short.settings.get("HOMING_CLUSTER_LEASE", "5s") == "5s"
