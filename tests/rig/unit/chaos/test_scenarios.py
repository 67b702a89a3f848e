"""Short forms judge what must never happen; how fast it was is for the full forms, which have the machine."""

from __future__ import annotations

import pytest

from homing_rig.chaos.kept_events import EVENTS_LOST
from homing_rig.chaos.scenario import Form
from homing_rig.chaos.scenarios import SCENARIOS
from homing_rig.chaos.scenarios.events import GAP
from homing_rig.programs import MOSQUITTO_SETTINGS

GENEROUS_SECONDS = 30


@pytest.mark.parametrize("name", SCENARIOS)
def test_short_forms_judge_no_speed(name: str) -> None:
    times = [one for one in SCENARIOS[name].figures if one.name.endswith(("_s", "_ms", "_ratio"))]
    judged = [one.name for one in times if not one.timing and (one.short or 0) < GENEROUS_SECONDS]
    assert judged == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_lease_in_a_short_form_is_as_long_as_in_life(name: str) -> None:
    assert SCENARIOS[name].short.settings.get("HOMING_CLUSTER_LEASE", "5s") == "5s"


@pytest.mark.parametrize("form", ["full", "short"])
@pytest.mark.parametrize("name", [name for name, one in SCENARIOS.items() if EVENTS_LOST in one.figures])
def test_the_broker_keeps_what_comes_until_another_node_has_taken_over(name: str, form: str) -> None:
    """Else it drops events that it has acknowledged to devices, and a run says nothing of Homing."""
    settings = dict(line.split(maxsplit=1) for line in MOSQUITTO_SETTINGS)
    size: Form = getattr(SCENARIOS[name], form)
    assert size.events * (size.down + GAP.limit) <= int(settings["max_queued_messages"])
