"""The doctor's diagnosis of the event log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from app.cli.diagnosis import CheckLevel
from app.cli.event_diagnosis import about_cold, about_events
from app.runtime.system import SystemClock, new_secret
from app.settings import EventsSettings
from app.store.archive import ArchiveFacts
from app.store.parquet.place import ObjectStore
from app.store.parquet.place_facts import inspect_place
from app.store.redis.events.facts import EventFacts
from tests.waiting import PATIENCE

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


def found(facts: EventFacts, settings: EventsSettings = SETTINGS) -> dict[str, tuple[CheckLevel, str]]:
    return {one.subject: (one.level, one.seen) for one in about_events(settings, facts, NOW)}


def test_a_log_that_is_well() -> None:
    said = found(WELL)
    assert {level for level, _ in said.values()} == {CheckLevel.OK}
    assert said["intake"][1] == "node 'node-1' brings events in; the last event is 5s old"
    assert said["quota"][1] == "1,000 of 10,000,000 bytes"


@pytest.mark.parametrize(
    ("change", "subject", "level", "says"),
    [
        ({"holder": None}, "intake", CheckLevel.WARN, "no node brings events in"),
        ({"size": 8_500_000}, "quota", CheckLevel.WARN, "8,500,000 of"),
        ({"size": 10_000_000}, "quota", CheckLevel.FAIL, "nothing is taken any more"),
        ({"maxmemory": 5_000_000}, "maxmemory", CheckLevel.WARN, "about 6,000,000 bytes"),
        ({"oldest": {"events": NOW - 3 * HOUR}}, "retention", CheckLevel.WARN, "events has events that are 3h old"),
        ({"clock_off": -4.2}, "clock", CheckLevel.WARN, "Redis is 4.2 s behind"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], subject: str, level: CheckLevel, says: str) -> None:
    said = found(replace(WELL, **change))
    assert said[subject][0] is level
    assert says in said[subject][1]
    assert {one for name, (one, _) in said.items() if name != subject} == {CheckLevel.OK}


def test_a_full_quota_is_no_failure_where_the_oldest_goes() -> None:
    settings = EventsSettings(url="redis://h", databases="events=2h", quota_bytes=10_000_000, discard="old")
    assert found(replace(WELL, size=11_000_000), settings)["quota"][0] is CheckLevel.WARN


def cold(facts: ArchiveFacts) -> dict[str, tuple[CheckLevel, str]]:
    return {one.subject: (one.level, one.seen) for one in about_cold(SETTINGS, facts, NOW)}


def place_at(url: str, seconds: float = PATIENCE) -> ArchiveFacts:
    return inspect_place(url, ["events", "other"], SystemClock(), new_secret, seconds)


def test_a_cold_place_that_is_well_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "db=events" / "date=2026-11-21" / "hour=10").mkdir(parents=True)
    (tmp_path / "db=events" / "date=2026-11-22" / "hour=09").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    facts = place_at(str(tmp_path))
    assert facts == ArchiveFacts(oldest={"events": 1_795_255_200_000_000})
    assert sorted(tmp_path.rglob("*")) == before
    assert place_at("memory://doctor") == ArchiveFacts()


def test_a_cold_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    facts = place_at(f"{tmp_path}/file")
    assert "NotADirectoryError" in facts.trouble
    assert cold(facts) == {"cold place": (CheckLevel.FAIL, facts.trouble)}


@pytest.mark.parametrize("given_back", [b"", b"else"])
def test_a_cold_place_that_gives_back_something_else(monkeypatch: pytest.MonkeyPatch, given_back: bytes) -> None:
    put = ObjectStore.put
    monkeypatch.setattr(ObjectStore, "put", lambda place, path, _data: put(place, path, memoryview(given_back)))
    assert f"gives {len(given_back)} other bytes" in place_at("memory://doctor-else").trouble


def test_a_cold_place_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Event()
    monkeypatch.setattr(ObjectStore, "put", lambda *_: answer.wait(PATIENCE))
    assert place_at("memory://doctor-slow", 0.01).trouble.endswith("does not answer within 0.01 s")
    answer.set()


@pytest.mark.parametrize(("hours", "level"), [(3, CheckLevel.OK), (5, CheckLevel.WARN)])
def test_what_lies_in_the_cold_place_for_too_long_is_named(hours: int, level: CheckLevel) -> None:
    said = cold(ArchiveFacts(oldest={"events": NOW - hours * HOUR}))
    assert {name: one for name, (one, _) in said.items()} == {"cold place": CheckLevel.OK, "cold sweep": level}
    if level is CheckLevel.WARN:
        assert said["cold sweep"][1] == "events has a folder that is 5h old, and should keep 2h"
