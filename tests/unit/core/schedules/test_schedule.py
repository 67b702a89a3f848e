"""Schedules: the occurrence that is due, what becomes of it, and that all of it is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from app.core.errors import InvalidInputError
from app.core.schedules.schedule import (
    KEPT_OCCURRENCES,
    Occurrence,
    OccurrenceResult,
    Schedule,
    ScheduleSpec,
    decode_schedule,
    encode_schedule,
    validate_schedule_name,
)

EVERY = 100
CATCH_UP = 250


def upcoming(behind: int) -> Iterator[int]:
    """Every hundredth instant."""
    at = behind - behind % EVERY
    while True:
        at += EVERY
        yield at


def schedule(**members: Any) -> Schedule:
    spec = ScheduleSpec(
        cron="* * * * *",
        zone="UTC",
        device="dock-1",
        command={"method": "ok"},
        catch_up=CATCH_UP,
        until=members.pop("until", None),
        enabled=members.pop("enabled", True),
    )
    plain: dict[str, Any] = {"tenant": "", "by": "", "who": "", "generation": 1000, "decided": 1000}
    return Schedule(name="nightly", spec=spec, **{**plain, **members})


def occurrence(at: int, result: OccurrenceResult = OccurrenceResult.BEGAN, **members: Any) -> Occurrence:
    return Occurrence(at=at, result=result, noted_at=at + 1, node="node-a", **members)


@pytest.mark.parametrize("now", range(1050, 2200, 50))
@pytest.mark.parametrize("known", [0, 1100, 1200, 1500, 1600, 2100, 9000])
def test_what_was_due_before_changes_nothing_but_the_way_there(now: int, known: int) -> None:
    """The clock may have been set back since, and the catch-up may be over."""
    assert schedule().due(upcoming, now, known) == schedule().due(upcoming, now)


@pytest.mark.parametrize(
    ("now", "due"),
    [
        (1099, None),
        (1100, (1100, False, False)),
        (1199, (1100, False, False)),
        (1200, (1200, False, True)),  # the latest one runs, once
        (1350, (1300, False, True)),
        (9999, (9900, False, True)),
    ],
)
def test_the_latest_occurrence_within_the_catch_up_is_due(now: int, due: object) -> None:
    assert schedule().due(upcoming, now) == due


def test_an_occurrence_is_begun_for_as_long_as_the_catch_up() -> None:
    def once(behind: int) -> Iterator[int]:
        return iter([1100] if behind < 1100 else [])

    assert schedule().due(once, 1100 + CATCH_UP) == (1100, False, False)
    assert schedule().due(once, 1101 + CATCH_UP) == (1100, True, False)


def test_what_is_too_old_is_decided_together() -> None:
    def often_then_never(behind: int) -> Iterator[int]:
        return (at for at in range(1100, 2000, 100) if at > behind)

    now = 5000
    known = schedule()
    due = known.due(often_then_never, now)
    assert due == (1100, True, False)
    after = known.with_decided(occurrence(1100, OccurrenceResult.MISSED), now)
    assert after.due(often_then_never, now) is None
    assert len(after.occurrences) == 1


@pytest.mark.parametrize("stands", [{"enabled": False}, {"paused": "may not"}, {"until": 1099}])
def test_what_does_not_go_on_is_never_due(stands: dict[str, Any]) -> None:
    known = schedule(**stands)
    assert known.due(upcoming, 1500) is None
    assert known.coming(upcoming, 1050, 3) == []


def test_the_last_instant_counts() -> None:
    known = schedule(until=1200)
    assert known.due(upcoming, 1300) == (1200, False, True)
    assert known.coming(upcoming, 1000, 10) == [1100, 1200]
    assert schedule().coming(upcoming, 1250, 3) == [1300, 1400, 1500]


def test_an_occurrence_is_decided_once() -> None:
    known = schedule()
    after = known.with_decided(occurrence(1100, OccurrenceResult.BEGINNING, began="run-1"), 1100)
    assert after.due(upcoming, 1150) is None
    assert after.unfinished() == after.occurrences[0]
    ended = after.with_ended(occurrence(1100, OccurrenceResult.REFUSED, reason="no"), "no")
    assert (ended.unfinished(), ended.paused, ended.decided) == (None, "no", 1100)
    assert ended.due(upcoming, 9999) is None


def test_the_latest_occurrences_are_kept() -> None:
    known = schedule()
    for number in range(30):
        known = known.with_decided(occurrence(1100 + number, began=f"run-{number}"), 1100)
    known = known.with_decided(occurrence(1200, OccurrenceResult.SKIPPED), 1200)
    assert len(known.occurrences) == KEPT_OCCURRENCES
    assert known.occurrences[0].at == 1200
    assert known.last_begun == "run-29"


def test_ids_follow_from_name_generation_and_instant() -> None:
    known = schedule()
    same = [known, replace(known, decided=5000, by="other")]
    assert len({(one.key_of(1100), one.command_id_of(1100)) for one in same}) == 1
    others = [replace(known, name="other"), replace(known, tenant="acme"), replace(known, generation=2)]
    assert len({one.command_id_of(1100) for one in [known, *others]} | {known.command_id_of(1200)}) == 5
    assert " " in known.key_of(1100), "no caller can send such a key"


def test_what_is_kept_is_read() -> None:
    known = schedule(tenant=None, until=2000, paused="it may not").with_decided(
        occurrence(1100, OccurrenceResult.FAILED, reason="nø"), 1100
    )
    assert decode_schedule(encode_schedule(known)) == known
    later = encode_schedule(known).replace(b'"v":1', b'"v":2')
    with pytest.raises(ValueError, match="later version"):
        decode_schedule(later)


@pytest.mark.parametrize("name", ["", "Nightly", "-a", "a b", "a" * 65, "a\n", "ä"])
def test_a_name_is_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"allowed: 1 to 64 of a-z"):
        validate_schedule_name(name)
    assert validate_schedule_name("a.b_c-9") == "a.b_c-9"
