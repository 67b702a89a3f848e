"""What the doctor says of the event log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.cli.diagnosis import Level
from app.cli.event_diagnosis import about_events
from app.settings import EventsSettings
from app.store.redis.event_facts import EventFacts

NOW = 1_790_000_000_000_000
HOUR = 3_600_000_000
WELL = EventFacts(
    holder="node-1",
    size=1000,
    latest=NOW - 5_000_000,
    oldest={"events": NOW - HOUR},
    clock_off=0.01,
    maxmemory=0,
)
SETTINGS = EventsSettings(url="redis://h", databases="events=2h", quota_bytes=10_000_000)


def found(facts: EventFacts, settings: EventsSettings = SETTINGS) -> dict[str, tuple[Level, str]]:
    return {one.subject: (one.level, one.seen) for one in about_events(settings, facts, NOW)}


def test_a_log_that_is_well() -> None:
    said = found(WELL)
    assert {level for level, _ in said.values()} == {Level.OK}
    assert said["intake"][1] == "node 'node-1' brings events in; the last event is 5s old"
    assert said["quota"][1] == "1,000 of 10,000,000 bytes"


@pytest.mark.parametrize(
    ("change", "subject", "level", "says"),
    [
        ({"holder": None}, "intake", Level.WARN, "no node brings events in"),
        ({"size": 8_500_000}, "quota", Level.WARN, "8,500,000 of"),
        ({"size": 10_000_000}, "quota", Level.FAIL, "nothing is taken any more"),
        ({"maxmemory": 5_000_000}, "maxmemory", Level.WARN, "about 6,000,000 bytes"),
        ({"oldest": {"events": NOW - 3 * HOUR}}, "retention", Level.WARN, "events has events that are 3h old"),
        ({"clock_off": -4.2}, "clock", Level.WARN, "Redis is 4.2 s behind"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], subject: str, level: Level, says: str) -> None:
    said = found(replace(WELL, **change))
    assert said[subject][0] is level
    assert says in said[subject][1]
    assert {one for name, (one, _) in said.items() if name != subject} == {Level.OK}


def test_a_full_quota_is_no_failure_where_the_oldest_goes() -> None:
    settings = EventsSettings(url="redis://h", databases="events=2h", quota_bytes=10_000_000, discard="old")
    assert found(replace(WELL, size=11_000_000), settings)["quota"][0] is Level.WARN
